//! The responder: what requests do here (IBA 9.7.4, 9.7.5, 9.9.3).
//!
//! A request passes named stages in a fixed order: PSN, opcode sequence, opcode valid and enabled, resources, length,
//! rkey; then it is executed and acknowledged. Each stage either lets it pass or names a [`fault::Fault`],
//! whose verdict says what it means to both sides. Nothing before execution changes anything.
#![forbid(unsafe_code)]

use std::cmp::Ordering;

use roce_wire::{Msn, NakCode, OpcodeInfo, Operation, Packet, Position, Psn, Syndrome};
use verbs_api::{EventKind, QpState, QpType};

use super::Qp;
use super::resources::Resources;
use crate::Time;
use crate::psn::Seq;
use crate::shared::Shared;
use patience::Patience;

mod checks;
mod datagram;
mod duplicate;
mod execute;
mod fault;
mod patience;
mod unacknowledged;

/// Packets that asked for an acknowledgement, at which one no longer waits.
const ACK_BACKLOG_PACKETS: u32 = 16;
/// Bytes since the last acknowledgement, at which one no longer waits.
const ACK_BACKLOG_BYTES: u32 = 16 << 10;
/// Time between two congestion notifications, ns.
const CNP_INTERVAL_NS: u64 = 50_000;

/// State of the responder.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// The PSN of the next request.
    expected: Seq,
    /// Messages completed.
    msn: Msn,
    /// After a NAK: say nothing more until the expected PSN arrives.
    silence: Silence,
    message: Message,
    pub(super) resources: Resources,
    pub(super) ack: Option<PendingAck>,
    patience: Patience,
    /// A duplicate arrived: acknowledge again, up to here.
    pub(super) ack_again: Option<Seq>,
    pub(super) nak: Option<Nak>,
    /// One past the highest request that was dropped for a gap.
    gap_end: Seq,
    pub(super) cnp: Cnp,
    backlog_packets: u32,
    backlog_bytes: u32,
    ack_delay_ns: u64,
    /// A request has been accepted.
    is_established: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Silence {
    #[default]
    No,
    UntilExpected,
}

/// A message of several packets that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Message {
    #[default]
    None,
    /// It holds the oldest receive request.
    Send { received: u32 },
    Write {
        rkey: verbs_api::RKey,
        va: u64,
        total: u32,
        received: u32,
    },
}

/// A negative acknowledgement that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nak {
    /// The expected request is missing; which one that is, is known when it goes out.
    Gap,
    /// This request was refused.
    Refused { psn: Seq, syndrome: Syndrome },
}

/// An acknowledgement that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingAck {
    pub(super) psn: Seq,
    /// By when it must go.
    pub(super) due: Time,
    /// When it should leave unless it travels with data.
    pub(super) ripe: Time,
    pub(super) urgency: Urgency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It may wait for data to travel with.
    Relaxed,
    Now,
}

/// Congestion notifications, paced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cnp {
    pub(super) is_due: bool,
    last: Option<Time>,
}

impl Responder {
    pub(super) fn new(first: u32, resources: u8, ack_delay_ns: u64) -> Self {
        Responder {
            expected: Seq::start(first),
            resources: Resources::new(resources),
            ack_delay_ns,
            ..Responder::default()
        }
    }

    pub(super) fn expected_psn(&self) -> Psn {
        self.expected.psn()
    }

    /// Take the NAK that is due, if one is: its PSN and syndrome. From now on it is silent.
    pub(super) fn take_nak(&mut self) -> Option<(Psn, Syndrome)> {
        Some(match self.nak.take()? {
            Nak::Gap => {
                self.silence = Silence::UntilExpected;
                (self.expected.psn(), Syndrome::Nak(NakCode::PsnSequence))
            }
            Nak::Refused { psn, syndrome } => (psn.psn(), syndrome),
        })
    }

    pub(super) fn msn(&self) -> Msn {
        self.msn
    }

    /// When the pending acknowledgement can wait no longer. One that is on its way already has no deadline.
    pub(super) fn ack_deadline(&self) -> Option<Time> {
        self.ack
            .filter(|ack| ack.urgency == Urgency::Relaxed)
            .map(|ack| ack.due)
    }

    pub(super) fn hurry_ack(&mut self) {
        if let Some(ack) = &mut self.ack {
            ack.urgency = Urgency::Now;
        }
    }

    /// An acknowledgement of everything up to `psn` went out at `now`.
    pub(super) fn note_acknowledged_up_to(&mut self, now: Time, psn: Seq) {
        self.patience.ends(now);
        match self.ack {
            Some(ack) if ack.psn > psn => self.ack_again = None,
            Some(_) | None => self.note_acknowledged(),
        }
    }

    /// Up to where the next acknowledgement reaches.
    pub(super) fn next_ack(&self) -> Option<Seq> {
        self.ack_again.or(self.ack.map(|ack| ack.psn))
    }

    /// An acknowledgement went out, or something that implies it.
    pub(super) fn note_acknowledged(&mut self) {
        self.ack = None;
        self.ack_again = None;
        self.backlog_packets = 0;
        self.backlog_bytes = 0;
    }

    /// Owe nothing to the peer any more.
    pub(super) fn drop_debts(&mut self) {
        self.resources.forgive();
        self.note_acknowledged();
        self.nak = None;
        self.cnp.is_due = false;
    }

    /// Change how many READs and atomics it remembers.
    pub(super) fn set_resources(&mut self, count: u8) {
        self.resources.resize(count);
    }
}

impl Qp {
    /// Take a request in. The caller has checked that it is one, and that the state admits it.
    pub(crate) fn handle_request(&mut self, shared: &mut Shared, packet: &Packet<'_>) {
        self.note_pressure(shared, packet);
        let psn = self.responder.expected.nearest(packet.headers.bth.psn);
        match psn.cmp(&self.responder.expected) {
            Ordering::Less => self.handle_duplicate(shared, packet, psn),
            Ordering::Greater => self.handle_gap(shared, psn),
            Ordering::Equal => {
                self.responder.silence = Silence::No;
                self.receives.note_request(shared, packet);
                match self.admit_request(shared, packet) {
                    Ok(info) => match self.execute(shared, packet, info) {
                        Ok(()) => self.note_accepted(shared, packet, psn, info),
                        Err(fault) => self.refuse(shared, packet, psn, fault),
                    },
                    Err(fault) => self.refuse(shared, packet, psn, fault),
                }
            }
        }
        self.arm(shared);
    }

    /// A request is missing before this one: say so once, with the PSN that is wanted (IBA 9.7.5.1.3).
    fn handle_gap(&mut self, shared: &mut Shared, psn: Seq) {
        shared.counters.out_of_seq_request += 1;
        self.responder.gap_end = self.responder.gap_end.max(psn + 1);
        if self.responder.silence == Silence::UntilExpected {
            shared.counters.dropped_after_nak += 1;
            return;
        }
        self.responder.silence = Silence::UntilExpected;
        self.responder.nak = Some(Nak::Gap);
        self.make_ready(shared);
    }

    /// A request was executed: expect the next one, and answer.
    fn note_accepted(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq, info: &OpcodeInfo) {
        let r = &mut self.responder;
        r.expected = r.expected + 1;
        match r.nak {
            // What was missing has come meanwhile.
            Some(Nak::Gap) if r.expected >= r.gap_end => r.nak = None,
            Some(Nak::Refused { .. }) => r.nak = None,
            Some(Nak::Gap) | None => {}
        }
        self.note_established(shared);
        let is_answered = match info.operation {
            Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush => true,
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CongestionNotification => false,
        };
        if is_answered {
            // The answer acknowledges all before it.
            self.responder.note_acknowledged();
            self.make_ready(shared);
            return;
        }
        shared.counters.rdma_recvs += u64::from(info.position.ends_message());
        self.responder.backlog_bytes = self
            .responder
            .backlog_bytes
            .saturating_add(packet.payload.len() as u32);
        if packet.headers.bth.ack_request {
            self.owe_ack(shared, psn, info.position);
        }
    }

    /// The first request was accepted.
    fn note_established(&mut self, shared: &mut Shared) {
        let r = &mut self.responder;
        if !r.is_established {
            r.is_established = true;
            if self.state == QpState::Rtr {
                shared.raise(self.id.qpn.value(), EventKind::CommEst);
            }
        }
    }

    fn owe_ack(&mut self, shared: &mut Shared, psn: Seq, position: Position) {
        let r = &mut self.responder;
        r.backlog_packets += 1;
        let is_backlog = r.backlog_packets >= ACK_BACKLOG_PACKETS || r.backlog_bytes >= ACK_BACKLOG_BYTES;
        // Who asks in the middle of a message waits for his window.
        let urgency = if is_backlog || !position.ends_message() {
            Urgency::Now
        } else {
            Urgency::Relaxed
        };
        if r.ack.is_none() && urgency == Urgency::Relaxed {
            shared.counters.ack_deferred += 1;
        }
        let (due, ripe) = match r.ack {
            Some(ack) => (ack.due, r.patience.goes_on(shared.now)),
            None => (shared.now + r.ack_delay_ns, r.patience.begins(shared.now)),
        };
        r.ack = Some(PendingAck {
            psn,
            due,
            ripe,
            urgency,
        });
        match urgency {
            Urgency::Now => self.make_ready(shared),
            Urgency::Relaxed => shared.let_ack_wait(self.id.slot, ripe),
        }
    }

    /// While the own socket fills up, ask senders to slow down. One alone is bounded by its own window, which fits; one
    /// that is not acknowledged has none.
    fn note_pressure(&mut self, shared: &mut Shared, packet: &Packet<'_>) {
        let is_acknowledged = self.id.qp_type != QpType::Uc;
        if !shared.is_pressed || (is_acknowledged && !packet.headers.bth.ack_request) {
            return;
        }
        let cnp = &mut self.responder.cnp;
        if cnp
            .last
            .is_none_or(|last| shared.now.since(last) >= CNP_INTERVAL_NS)
        {
            cnp.last = Some(shared.now);
            cnp.is_due = !is_acknowledged || shared.peers.are_several_awake(shared.now);
            if cnp.is_due {
                self.make_ready(shared);
            }
        }
    }
}
