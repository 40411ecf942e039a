//! What all queue pairs of an engine act on: memory, completion queues, shared receive queues, timers, budgets, counters.

use std::collections::VecDeque;

use verbs_api::{EventKind, Wc, WcStatus};

use crate::budget::{PeerId, Peers, ReadBudget};
use crate::counters::Counters;
use crate::cq::{CompletionQueues, Pushed, Solicited};
use crate::failure::{Cause, Failure, Failures};
use crate::judge::Judge;
use crate::memory::Memory;
use crate::pacer::Pacer;
use crate::qp::{ReceivePools, SendPools};
use crate::slot_list::SlotList;
use crate::srq::{Level, SharedReceiveQueues};
use crate::timer::Timers;
use crate::{CqId, EngineEvent, RxMeta, SrqId, Time};

/// The bits of a traffic class that routers use to say "congestion experienced", and their value then (RFC 3168).
const ECN_MASK: u8 = 0b11;
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// Events that one queue pair may raise before its owner looks.
const EVENTS_A_QP: usize = 7;
/// A notification, and an overflow.
const EVENTS_A_CQ: usize = 2;
/// Its limit, once.
const EVENTS_A_SRQ: usize = 1;
/// Its state has changed, and its addresses.
const EVENTS_OF_PORT: usize = 4;

/// Everything of an engine but its queue pairs.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The time of the call that is being served.
    pub(crate) now: Time,
    pub(crate) memory: Memory,
    pub(crate) cqs: CompletionQueues,
    pub(crate) srqs: SharedReceiveQueues,
    /// Where the requests of all queues lie.
    pub(crate) sends: SendPools,
    pub(crate) receives: ReceivePools,
    pub(crate) counters: Counters,
    pub(crate) events: VecDeque<EngineEvent>,
    /// What to tell the driver about errors.
    pub(crate) failures: Failures,
    /// What completions are made to fail.
    pub(crate) judge: Judge,
    pub(crate) timers: Timers,
    pub(crate) peers: Peers,
    /// The rate of what nobody acknowledges.
    pub(crate) pacer: Pacer,
    pub(crate) reads: ReadBudget,
    /// Slots of queue pairs that may have packets to send.
    pub(crate) ready: SlotList,
    /// Slots of queue pairs with an acknowledgement that may wait.
    pub(crate) acks: SlotList,
    /// When the first of them should leave, or somewhat earlier.
    pub(crate) acks_ripen: Time,
    /// A completion queue that overflowed: its queue pairs must fail. One a call is enough, the others overflow again.
    pub(crate) overflowed: VecDeque<CqId>,
    /// How long an acknowledgement may wait, ns.
    pub(crate) ack_delay_ns: u64,
    /// The own socket is filling up: ask senders to slow down.
    pub(crate) is_pressed: bool,
    /// The port's MTU, payload bytes: what a datagram may have.
    pub(crate) port_mtu_bytes: usize,
    /// Number of the current transmit call.
    pub(crate) batch_number: u64,
}

impl Shared {
    /// Report a completion. On an overflow the completion is lost, and the queue's users fail when the call ends.
    pub(crate) fn complete(&mut self, cq: CqId, wc: Wc, solicited: Solicited) {
        match self.cqs.push(self.now, cq, wc, solicited) {
            Pushed::Quietly => {}
            // Of a queue pair that came, or came back, after the overflow.
            Pushed::Lost => {
                if wc.status == WcStatus::Success && !self.overflowed.contains(&cq) {
                    self.overflowed.push_back(cq);
                }
            }
            Pushed::Notify => self.events.push_back(EngineEvent::CqNotify(cq)),
            Pushed::Overflowed => {
                self.events.push_back(EngineEvent::Cq(cq, EventKind::CqErr));
                self.failures.note(Failure {
                    at: self.now,
                    qpn: wc.qp_num,
                    qp_type: None,
                    peer: None,
                    peer_qpn: 0,
                    psn: 0,
                    cause: Cause::CqOverflow,
                });
                self.overflowed.push_back(cq);
            }
        }
    }

    /// A request was taken out of a shared receive queue.
    pub(crate) fn note_level(&mut self, srq: SrqId, level: Level) {
        match level {
            Level::Fine => {}
            Level::LimitReached => self
                .events
                .push_back(EngineEvent::Srq(srq, EventKind::SrqLimitReached)),
        }
    }

    /// The earliest deadline of a queue pair or a completion queue.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match (self.timers.next(), self.cqs.next_due()) {
            (Some(qp), Some(cq)) => Some(qp.min(cq)),
            (qp, cq) => qp.or(cq),
        }
    }

    /// Report the events of completion queues that were held back long enough.
    pub(crate) fn notify_due(&mut self) {
        while let Some(cq) = self.cqs.pop_due(self.now) {
            self.events.push_back(EngineEvent::CqNotify(cq));
        }
    }

    /// Count a packet that passed all checks of form and destination.
    pub(crate) fn note_received(&mut self, meta: &RxMeta, len: usize) {
        self.counters.rcvd_pkts += 1;
        self.counters.rcvd_bytes += len as u64;
        let is_marked = meta.traffic_class & ECN_MASK == CONGESTION_EXPERIENCED;
        self.counters.np_ecn_marked_roce_packets += u64::from(is_marked);
    }

    /// Raise an asynchronous event of a queue pair.
    pub(crate) fn raise(&mut self, qpn: u32, kind: EventKind) {
        self.events.push_back(EngineEvent::Qp(qpn, kind));
    }

    /// The queue pair in `slot` owes an acknowledgement, which should leave at `ripe` unless it travels with data before.
    pub(crate) fn let_ack_wait(&mut self, slot: u32, ripe: Time) {
        self.acks_ripen = match self.acks.is_empty() {
            true => ripe,
            false => self.acks_ripen.min(ripe),
        };
        self.acks.push(slot);
    }

    /// Make room in all lists for queue pairs in slots `0..count`.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.timers.reserve(count);
        self.peers.reserve(count);
        self.reads.reserve(count);
        self.ready.reserve(count);
        self.acks.reserve(count);
    }

    /// Room for what may happen to all of so many queue pairs, and to all completion queues and shared receive queues,
    /// before the driver looks.
    pub(crate) fn reserve_events(&mut self, qps: usize) {
        let (cqs, srqs) = (self.cqs.len(), self.srqs.len());
        let most = qps * EVENTS_A_QP + cqs * EVENTS_A_CQ + srqs * EVENTS_A_SRQ + EVENTS_OF_PORT;
        self.events.reserve(most.saturating_sub(self.events.len()));
        self.overflowed.reserve(cqs.saturating_sub(self.overflowed.len()));
    }

    /// Let queue pairs that waited for room toward `peer`, or for READ responses, try again.
    pub(crate) fn wake_waiting(&mut self, peer: PeerId) {
        if let Some(slot) = self.peers.wake(peer) {
            self.ready.push(slot);
        }
        if let Some(slot) = self.reads.wake() {
            self.ready.push(slot);
        }
    }
}
