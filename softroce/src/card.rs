//! The engine with its fabric: what lies behind the progress gate.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use softroce_engine::{
    Acks, CompletionJudge, Config, Counters, CqId, Engine, EngineEvent, SrqId, Time, TxBatch,
};
use softroce_faults::{Event, Work};
use verbs_api::{CmEventKind, EventKind, EventSource, Gid, PortState, QpAttr, QpState};

use crate::cm::card::CmCard;
use crate::cq::CqShared;
use crate::events::AsyncQueue;
use crate::fabric::{Fabric, FabricCounters};
use crate::faults::Faults;
use crate::journal;
use crate::orphans::{Orphan, Orphans};
use crate::pace::Pace;
use crate::qp::QpShared;
use crate::srq::SrqShared;
use crate::unacknowledged::Unacknowledged;
use crate::xrc::Domains;

/// Bytes of packets built before they are handed to the fabric: one full train, which stays in the cache, or a little
/// more to fill it. Room for much more would end in a fragment of a train behind the full ones.
const BATCH_BYTES: usize = 65_493;
/// Packets in a batch.
const BATCH_PACKETS: usize = 256;
/// Batches that one round sends at most; what is left goes in the next one.
const BATCHES_PER_ROUND: usize = 8;
/// How long the engine lets an acknowledgement wait for data to travel with, ns. Only a program that leaves off in the
/// middle of a conversation makes one wait so long: the next empty poll sends it.
const ACK_DELAY_NS: u64 = 150_000;

/// The process's part of the queue pair numbers stands above so many bits; its communication IDs begin likewise.
const SLICE_SHIFT: u32 = 16;

/// Requests or packets under way to a process behind which small ones may gather: below, it would run dry meanwhile.
const UNDER_WAY: u64 = 2;
/// So many requests, or bytes, are a train: they leave.
const GATHERED_REQUESTS: u32 = 32;
const GATHERED_BYTES: u64 = 32 * 1024;

/// A round's way with acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundAcks {
    /// Send those now that the last round left. New ones wait: the program is about to answer what arrived, and its
    /// answer goes first.
    WithAnswer,
    /// Leave them to the program's answer, or to the engine's clock.
    Later,
    /// Send them now: nobody is about to answer.
    Now,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Datagrams received.
    pub(crate) received: usize,
    /// Whether packets left, a timer ran or an event was passed on.
    pub(crate) acted: bool,
    /// Whether there is more to send at once.
    pub(crate) more: bool,
}

impl Done {
    /// Whether the round found anything to do.
    pub(crate) fn something(self) -> bool {
        self.received != 0 || self.acted
    }
}

/// Engine, fabric, and those who want to hear of events.
pub(crate) struct Card {
    pub(crate) engine: Engine,
    pub(crate) fabric: Box<dyn Fabric>,
    batch: TxBatch,
    /// Requests posted since packets were last built, and their bytes.
    gathered: (u32, u64),
    posting: Posting,
    pub(crate) listeners: Listeners,
    pub(crate) domains: Domains,
    pub(crate) orphans: Orphans,
    pub(crate) cm: CmCard,
    /// See [`Card::force_port`].
    forced_state: Option<PortState>,
}

/// Who is told of an event.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) cqs: HashMap<CqId, Arc<CqShared>>,
    pub(crate) srqs: HashMap<SrqId, Arc<SrqShared>>,
    /// By number; an XRC target may have several handles.
    qps: HashMap<u32, Vec<Arc<QpShared>>>,
    /// Open contexts: events of the port reach all of them.
    contexts: Vec<Weak<AsyncQueue>>,
}

impl Card {
    /// An engine on `fabric`.
    pub(crate) fn new(mut fabric: Box<dyn Fabric>, seed: u64) -> Self {
        let slice = fabric.qpn_slice();
        let port = fabric.port();
        let mut engine = Engine::new(Config {
            seed,
            qpn_base: slice.start,
            qpn_count: slice.end.saturating_sub(slice.start),
            ack_delay_ns: ACK_DELAY_NS,
            receive_buffer_bytes: fabric.receive_buffer_bytes(),
            initial_window_bytes: 0,
            node_guid: port.gids.first().map_or(0, |entry| node_guid(entry.gid)),
        });
        let guid = engine.device_attr().node_guid;
        engine.serve_management();
        engine.set_port(port);
        // The port is as it is from the start: nobody needs to hear that it came up.
        while engine.poll_event().is_some() {}
        Card {
            engine,
            fabric,
            batch: TxBatch::of_whole_trains(BATCH_BYTES, BATCH_PACKETS),
            gathered: (0, 0),
            posting: Posting::default(),
            listeners: Listeners::default(),
            domains: Domains::default(),
            orphans: Orphans::default(),
            cm: CmCard::new(seed, (slice.start >> SLICE_SHIFT) as u8, guid),
            forced_state: None,
        }
    }

    /// Receive one round, run timers that are due, send, and pass events on. Bounded.
    pub(crate) fn round(&mut self, now: Time, acks: RoundAcks, pace: &Pace) -> Done {
        self.round_of_looks(now, acks, pace, 1)
    }

    /// The same with so many looks for packets, as long as there are none.
    pub(crate) fn round_of_looks(&mut self, now: Time, acks: RoundAcks, pace: &Pace, looks: u32) -> Done {
        self.posting.round();
        let engine = &mut self.engine;
        let held = match acks {
            RoundAcks::WithAnswer => engine.holds_ripe_acks(now),
            RoundAcks::Later | RoundAcks::Now => engine.holds_acks(),
        };
        engine.note_receive_pressure(self.fabric.receive_pressure());
        let mut take = |meta: &_, datagram: &_| engine.handle_datagram(now, meta, datagram);
        let mut received = 0;
        for _ in 0..looks {
            received = self.fabric.recv(&mut take);
            if received != 0 {
                break;
            }
        }
        let mut done = Done {
            received,
            ..Done::default()
        };
        if engine.poll_timeout().is_some_and(|deadline| deadline <= now) {
            engine.handle_timeout(now);
            done.acted = true;
        }
        if self.engine.has_mads()
            || self
                .cm
                .agent
                .poll_timeout()
                .is_some_and(|deadline| deadline <= now)
        {
            done.acted |= self.manage(now);
        }
        if received == 0 {
            // A program that polls without end leaves nothing to the background thread, this neither.
            self.look_at_port(now);
        }
        let acks = match acks {
            RoundAcks::WithAnswer if received != 0 && !held => Acks::Defer,
            RoundAcks::WithAnswer => Acks::Ripe,
            RoundAcks::Now => Acks::Flush,
            RoundAcks::Later => Acks::Defer,
        };
        let acks_may_go = acks != Acks::Defer && (received != 0 || held);
        if !acks_may_go && !done.acted && self.gathered.0 == 0 && !self.engine.has_output() {
            // The most frequent rounds of a program that polls: nothing there, or a message that it is about to answer.
            self.note_failures();
            return done;
        }
        self.finish(now, acks, pace, &mut done);
        done
    }

    /// Send what a verb has made ready, and pass events on. Bounded.
    pub(crate) fn settle(&mut self, now: Time, pace: &Pace) -> Done {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            // What it waits for may lie in the socket, if all threads slept too long: look there before it runs out.
            return self.round(now, RoundAcks::WithAnswer, pace);
        }
        let mut done = Done::default();
        // A program that polls sends acknowledgements with its next poll; a message alone leaves sooner than in a train.
        let acks = if pace.thread_watches() {
            Acks::Hold
        } else {
            Acks::Defer
        };
        self.finish(now, acks, pace, &mut done);
        done
    }

    /// Whether a request of `bytes` just posted to `qpn` may wait for others, to leave with them as one train.
    pub(crate) fn gathers(&mut self, qpn: u32, bytes: u64) -> bool {
        self.gathered.0 += 1;
        self.gathered.1 += bytes;
        self.posting.post()
            && self.gathered.0 < GATHERED_REQUESTS
            && self.gathered.1 < GATHERED_BYTES
            && self.engine.under_way(qpn) >= UNDER_WAY
    }

    /// Send every acknowledgement that waits.
    pub(crate) fn flush(&mut self, now: Time, pace: &Pace) {
        self.finish(now, Acks::Flush, pace, &mut Done::default());
    }

    fn finish(&mut self, now: Time, acks: Acks, pace: &Pace, done: &mut Done) {
        self.gathered = (0, 0);
        // Before a NAK leaves: who gets it may end this process.
        self.note_failures();
        for _ in 0..BATCHES_PER_ROUND {
            self.engine.note_unread(self.fabric.unread_bytes());
            done.more = self.engine.poll_transmit(now, &mut self.batch, acks);
            if self.batch.is_empty() {
                break;
            }
            done.acted = true;
            if self.forced_state != Some(PortState::Down) {
                self.fabric.send(&mut self.batch);
            }
            self.batch.clear();
            if !done.more {
                break;
            }
        }
        self.pass_events_on(pace, done);
    }

    /// Write down why something failed.
    fn note_failures(&mut self) {
        while let Some(failure) = self.engine.poll_failure() {
            journal::failures::note(&failure, &self.engine, &*self.fabric);
        }
    }

    /// Tell programs what the engine reports.
    pub(crate) fn pass_events_on(&mut self, pace: &Pace, done: &mut Done) {
        self.note_failures();
        while let Some(event) = self.engine.poll_event() {
            done.acted = true;
            self.listeners.deliver(event, pace);
        }
    }

    /// Let go of regions that waited for a window to go. What comes back must be dropped outside the gate.
    pub(crate) fn free_orphans(&mut self) -> Vec<Orphan> {
        self.orphans.free(&mut self.engine)
    }

    /// Take over what has changed about the interfaces.
    pub(crate) fn look_at_port(&mut self, now: Time) {
        if self.fabric.port_changed() {
            self.renew_port(now);
        }
    }

    fn renew_port(&mut self, now: Time) {
        let mut port = self.fabric.port();
        if let Some(state) = self.forced_state {
            port.state = state;
        }
        let had_address = !self.engine.gid_table().is_empty();
        self.engine.set_port(port);
        if had_address && self.engine.gid_table().is_empty() {
            self.tell_ids(CmEventKind::AddrChange);
        }
        while let Some((event, qpns)) = self.fabric.disturbance() {
            self.disturb(now, event, |qpn| qpns.contains(qpn.into()));
        }
    }

    /// A fault rule does something to queue pairs.
    fn disturb(&mut self, now: Time, event: Event, concerns: impl Fn(u32) -> bool) {
        let failed = QpAttr {
            state: Some(QpState::Err),
            ..QpAttr::default()
        };
        let mut qpns: Vec<u32> = self.listeners.qps.keys().copied().collect();
        qpns.sort_unstable();
        for qpn in qpns.into_iter().filter(|qpn| concerns(*qpn)) {
            // Refused by those in RESET, which have nothing to fail.
            if self.engine.modify_qp(now, qpn, &failed).is_ok() && event == Event::QpFatal {
                self.listeners.deliver_qp(qpn, EventKind::QpFatal);
            }
        }
        if event == Event::DeviceFatal {
            self.listeners.deliver_device_fatal();
            self.tell_ids(CmEventKind::DeviceRemoval);
        }
    }

    /// Other fault rules are at work, or none any more.
    pub(crate) fn use_faults(&mut self, now: Time, faults: &Arc<Faults>) {
        let judge = faults.judge_completions().then(|| {
            let faults = faults.clone();
            Box::new(move |qpn, is_receive| {
                let work = match is_receive {
                    true => Work::Receive,
                    false => Work::Send,
                };
                faults.completion(qpn, work)
            }) as CompletionJudge
        });
        self.engine.set_completion_judge(judge);
        self.renew_port(now);
    }

    /// Have the port in this state, whatever the interface says: for tests of programs. `None` lets it be as it is.
    /// While it is forced down nothing is sent.
    pub(crate) fn force_port(&mut self, now: Time, state: Option<PortState>) {
        self.forced_state = state;
        self.renew_port(now);
    }

    /// Descriptors to wait on.
    pub(crate) fn fds(&self) -> Vec<std::os::fd::RawFd> {
        self.fabric.fds()
    }

    /// After a fork, in the child.
    pub(crate) fn close_in_child(&mut self) {
        self.fabric.close_in_child();
    }

    /// What engine and fabric have counted.
    pub(crate) fn counters(&self) -> (Counters, FabricCounters) {
        (*self.engine.counters(), self.fabric.counters())
    }
}

/// The node GUID of the device at `gid`: the same in all processes on an address. FNV-1a, marked as locally assigned.
pub(crate) fn node_guid(gid: Gid) -> u64 {
    let hash = gid.0.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash & !(1 << 56) | 1 << 57
}

/// Whether the program posts several requests between two rounds, as one does that keeps many under way, or one at a
/// time, as in a conversation: that one must leave at once.
#[derive(Debug, Default)]
struct Posting {
    since_round: u32,
    /// The number between the last two rounds with any between them.
    before: u32,
}

impl Posting {
    fn round(&mut self) {
        if self.since_round > 0 {
            self.before = self.since_round;
            self.since_round = 0;
        }
    }

    /// True when more are likely to follow before the next round.
    fn post(&mut self) -> bool {
        self.since_round += 1;
        self.since_round.max(self.before) > 1
    }
}

impl Listeners {
    /// A context that wants events of the port.
    pub(crate) fn add_context(&mut self, queue: &Arc<AsyncQueue>) {
        self.contexts.retain(|other| other.strong_count() != 0);
        self.contexts.push(Arc::downgrade(queue));
    }

    /// A handle of a queue pair.
    pub(crate) fn add_qp(&mut self, qpn: u32, handle: &Arc<QpShared>) {
        self.qps.entry(qpn).or_default().push(handle.clone());
    }

    /// The handle is gone.
    pub(crate) fn remove_qp(&mut self, qpn: u32, handle: &Arc<QpShared>) {
        if let Some(handles) = self.qps.get_mut(&qpn) {
            handles.retain(|other| !Arc::ptr_eq(other, handle));
            if handles.is_empty() {
                self.qps.remove(&qpn);
            }
        }
    }

    fn deliver(&self, event: EngineEvent, pace: &Pace) {
        match event {
            EngineEvent::CqNotify(id) => {
                if let Some(cq) = self.cqs.get(&id) {
                    cq.notify(pace);
                }
            }
            EngineEvent::Cq(id, kind) => {
                if let Some(cq) = self.cqs.get(&id) {
                    cq.async_events
                        .push(kind, EventSource::Cq(cq.cookie), &cq.async_unacknowledged);
                }
            }
            EngineEvent::Qp(qpn, kind) => self.deliver_qp(qpn, kind),
            EngineEvent::Srq(id, kind) => {
                if let Some(srq) = self.srqs.get(&id) {
                    srq.async_events
                        .push(kind, EventSource::Srq(srq.cookie), &srq.async_unacknowledged);
                }
            }
            EngineEvent::Port(kind) => self.deliver_port(kind),
        }
    }

    fn deliver_qp(&self, qpn: u32, kind: EventKind) {
        for qp in self.qps.get(&qpn).into_iter().flatten() {
            qp.async_events
                .push(kind, EventSource::Qp(qpn), &qp.async_unacknowledged);
        }
    }

    fn deliver_port(&self, kind: EventKind) {
        self.deliver_to_all(kind, EventSource::Port(crate::context::PORT));
    }

    fn deliver_device_fatal(&self) {
        self.deliver_to_all(EventKind::DeviceFatal, EventSource::Device);
    }

    fn deliver_to_all(&self, kind: EventKind, source: EventSource) {
        // Nobody destroys a port, so nobody waits for these acknowledgements.
        let nobody = Arc::new(Unacknowledged::default());
        for context in self.contexts.iter().filter_map(Weak::upgrade) {
            context.push(kind, source, &nobody);
        }
    }
}
