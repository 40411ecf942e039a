//! What all queue pairs of an engine act on: memory, completion queues, timers, budgets, counters.

use std::collections::VecDeque;

use verbs_api::{EventKind, Wc};

use crate::budget::{PeerId, Peers, ReadBudget};
use crate::counters::Counters;
use crate::cq::{CqTable, Pushed};
use crate::memory::Memory;
use crate::timer::Timers;
use crate::{CqId, EngineEvent, Time};

/// Everything of an engine but its queue pairs.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The time of the call that is being served.
    pub(crate) now: Time,
    pub(crate) memory: Memory,
    pub(crate) cqs: CqTable,
    pub(crate) counters: Counters,
    pub(crate) events: VecDeque<EngineEvent>,
    pub(crate) timers: Timers,
    pub(crate) peers: Peers,
    pub(crate) reads: ReadBudget,
    /// Slots of queue pairs that may have packets to send.
    pub(crate) ready: VecDeque<u32>,
    /// Slots of queue pairs with an acknowledgement that may wait.
    pub(crate) acks: VecDeque<u32>,
    /// A completion queue that overflowed: its queue pairs must fail. One a call is enough, the others overflow again.
    pub(crate) overflowed: VecDeque<CqId>,
    /// How long an acknowledgement may wait, ns.
    pub(crate) ack_delay_ns: u64,
    /// The own socket is filling up: ask senders to slow down.
    pub(crate) is_pressed: bool,
    /// Number of the current transmit call.
    pub(crate) batch_number: u64,
}

/// Whether a completion may wake a channel that waits for solicited ones only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solicited {
    Yes,
    No,
}

impl Shared {
    /// Report a completion. On an overflow the completion is lost, and the queue's users fail when the call ends.
    pub(crate) fn complete(&mut self, cq: CqId, wc: Wc, solicited: Solicited) {
        match self.cqs.push(cq, wc, solicited == Solicited::Yes) {
            Pushed::Quiet => {}
            Pushed::Notify => self.events.push_back(EngineEvent::CqNotify(cq)),
            Pushed::Overflow => {
                self.events.push_back(EngineEvent::Cq(cq, EventKind::CqErr));
                self.overflowed.push_back(cq);
            }
            Pushed::Dead => {}
        }
    }

    /// Raise an asynchronous event of a queue pair.
    pub(crate) fn raise(&mut self, qpn: u32, kind: EventKind) {
        self.events.push_back(EngineEvent::Qp(qpn, kind));
    }

    /// Let queue pairs that waited for room toward `peer`, or for READ responses, try again.
    pub(crate) fn wake_waiting(&mut self, peer: PeerId) {
        if let Some(slot) = self.peers.get_mut(peer).wake() {
            self.ready.push_back(slot);
        }
        self.wake_readers();
    }

    /// Let a queue pair that waited to ask for READ responses try again.
    pub(crate) fn wake_readers(&mut self) {
        if let Some(slot) = self.reads.wake() {
            self.ready.push_back(slot);
        }
    }
}
