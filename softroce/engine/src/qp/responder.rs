//! The responder: what requests do here (IBA 9.7.4, 9.7.5, 9.9.3).
//!
//! A request passes named stages in a fixed order: PSN, opcode sequence, opcode valid and enabled, resources, length,
//! rkey; then it is executed and acknowledged. Each stage either lets it pass or names a [`Fault`], and
//! [`Fault::verdict`] is the table of what the fault means. Nothing before execution changes anything.
#![forbid(unsafe_code)]

use std::cmp::Ordering;

use roce_wire::{
    ImmDt, Msn, NakCode, OpcodeInfo, Operation, Packet, PayloadRule, Position, Psn, Reth, RnrTimer, Syndrome,
};
use verbs_api::{Access, EventKind, QpState, WcFlags, WcOpcode, WcStatus};

use super::Qp;
use super::resources::{Kind, Resources};
use super::send_queue::{MAX_MESSAGE_BYTES, packets_of};
use crate::Time;
use crate::cq::Solicited;
use crate::memory::{AtomicOp, MemoryFault};
use crate::psn::Seq;
use crate::shared::Shared;

/// Packets that asked for an acknowledgement, at which one no longer waits.
const ACK_BACKLOG_PACKETS: u32 = 16;
/// Bytes since the last acknowledgement, at which one no longer waits.
const ACK_BACKLOG_BYTES: u32 = 32 << 10;
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

/// Why a request is refused: the rows of the responder error table (IBA 9.9.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Not what may follow the packet before.
    OpcodeSequence,
    /// A reserved opcode, or an operation that this queue pair does not offer or permit.
    OpcodeInvalid,
    /// No receive request.
    NotReady,
    /// More READs and atomics than agreed.
    TooManyReads,
    /// Payload, padding or DMA length break the rules.
    Length,
    /// An atomic on an address that is not a multiple of eight.
    Misaligned,
    /// Key, domain, rights or bounds of the remote address.
    RemoteAccess,
    /// The message is longer than the receive request.
    ReceiveTooSmall,
    /// The receive request's memory cannot be written.
    ReceiveBroken,
    /// A SEND with invalidate whose key cannot be invalidated: class J, no NAK (IBA 9.9.6.3).
    CannotInvalidate,
}

/// What a fault means to both sides.
struct Verdict {
    nak: Option<NakCode>,
    /// Status of the receive request that is in use, if one is.
    status: WcStatus,
    /// Raised when no receive request is in use.
    event: EventKind,
}

impl Fault {
    fn verdict(self) -> Verdict {
        let (nak, status, event) = match self {
            Fault::OpcodeSequence
            | Fault::OpcodeInvalid
            | Fault::TooManyReads
            | Fault::Length
            | Fault::Misaligned => (
                Some(NakCode::InvalidRequest),
                WcStatus::RemInvReqErr,
                EventKind::QpReqErr,
            ),
            Fault::RemoteAccess => (
                Some(NakCode::RemoteAccess),
                WcStatus::LocAccessErr,
                EventKind::QpAccessErr,
            ),
            Fault::ReceiveTooSmall => (
                Some(NakCode::InvalidRequest),
                WcStatus::LocLenErr,
                EventKind::QpReqErr,
            ),
            Fault::ReceiveBroken => (
                Some(NakCode::RemoteOperational),
                WcStatus::LocProtErr,
                EventKind::QpFatal,
            ),
            Fault::CannotInvalidate => (None, WcStatus::RemInvReqErr, EventKind::QpAccessErr),
            // Not an error of the queue pair; answered before it gets here.
            Fault::NotReady => (None, WcStatus::Success, EventKind::QpReqErr),
        };
        Verdict { nak, status, event }
    }
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

    /// Change how many READs and atomics it remembers; what it remembered is forgotten.
    pub(super) fn set_resources(&mut self, count: u8) {
        self.resources = Resources::new(count);
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

    /// All stages between PSN and execution.
    fn admit_request(&self, shared: &Shared, packet: &Packet<'_>) -> Result<&'static OpcodeInfo, Fault> {
        let info = packet.headers.bth.opcode.info().ok_or(Fault::OpcodeInvalid)?;
        check_sequence(self.responder.message, info)?;
        check_enabled(self.attr.access.unwrap_or_default(), info)?;
        self.check_resources(info)?;
        let mtu = self.link.map_or(256, |link| link.mtu);
        check_length(self.responder.message, packet, info, mtu)?;
        self.check_remote(shared, packet, info)?;
        Ok(info)
    }

    fn check_resources(&self, info: &OpcodeInfo) -> Result<(), Fault> {
        if info.consumes_receive && self.receive_queue.is_empty() {
            return Err(Fault::NotReady);
        }
        let needs_resource = match info.operation {
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd => true,
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::AtomicWrite
            | Operation::CongestionNotification => false,
        };
        if needs_resource && !self.responder.resources.has_room() {
            return Err(Fault::TooManyReads);
        }
        Ok(())
    }

    /// The whole remote range, once a message. A length of 0 touches nothing, and its key means nothing (IBA C9-88).
    fn check_remote(&self, shared: &Shared, packet: &Packet<'_>, info: &OpcodeInfo) -> Result<(), Fault> {
        if let Some(atomic) = packet.headers.atomic_eth {
            if atomic.va % 8 != 0 {
                return Err(Fault::Misaligned);
            }
            return self.check_range(shared, atomic.va, atomic.rkey, 8, Access::REMOTE_ATOMIC);
        }
        let Some(reth) = packet.headers.reth.filter(|reth| reth.dma_length > 0) else {
            return Ok(());
        };
        let need = if info.operation == Operation::ReadRequest {
            Access::REMOTE_READ
        } else {
            Access::REMOTE_WRITE
        };
        self.check_range(shared, reth.va, reth.rkey, reth.dma_length, need)
    }

    fn check_range(
        &self,
        shared: &Shared,
        va: u64,
        rkey: roce_wire::RKey,
        len: u32,
        need: Access,
    ) -> Result<(), Fault> {
        match shared
            .memory
            .remote(self.id.pd, verbs_api::RKey(rkey.0), va, u64::from(len), need)
        {
            Ok(_) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    fn execute(&mut self, shared: &mut Shared, packet: &Packet<'_>, info: &OpcodeInfo) -> Result<(), Fault> {
        match info.operation {
            Operation::Send => self.execute_send(shared, packet, info.position),
            Operation::Write => self.execute_write(shared, packet, info.position),
            Operation::ReadRequest => {
                let Some(reth) = packet.headers.reth else {
                    return Err(Fault::OpcodeInvalid);
                };
                self.execute_read(&reth);
                Ok(())
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                self.execute_atomic(shared, packet, info.operation)
            }
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::AtomicWrite
            | Operation::CongestionNotification => Err(Fault::OpcodeInvalid),
        }
    }

    fn execute_send(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        position: Position,
    ) -> Result<(), Fault> {
        let received = match self.responder.message {
            Message::Send { received } => received,
            Message::None | Message::Write { .. } => 0,
        };
        let Some((wqe, sges)) = self.receive_queue.front() else {
            return Err(Fault::NotReady);
        };
        let end = u64::from(received) + packet.payload.len() as u64;
        if end > MAX_MESSAGE_BYTES {
            return Err(Fault::Length);
        }
        if end > wqe.capacity {
            return Err(Fault::ReceiveTooSmall);
        }
        if !packet.payload.is_empty() {
            let scattered = shared
                .memory
                .scatter(self.id.pd, sges, u64::from(received), packet.payload);
            scattered.map_err(|_| Fault::ReceiveBroken)?;
        }
        if !position.ends_message() {
            self.responder.message = Message::Send { received: end as u32 };
            return Ok(());
        }
        // No key of ours can be invalidated from afar yet: only memory windows of type 2 could.
        if packet.headers.invalidate.is_some() {
            return Err(Fault::CannotInvalidate);
        }
        self.complete_receive(shared, packet, WcOpcode::Recv, end as u32);
        self.end_message();
        Ok(())
    }

    fn execute_write(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        position: Position,
    ) -> Result<(), Fault> {
        let (rkey, va, total, received) = match (self.responder.message, packet.headers.reth) {
            (_, Some(reth)) => (verbs_api::RKey(reth.rkey.0), reth.va, reth.dma_length, 0),
            (
                Message::Write {
                    rkey,
                    va,
                    total,
                    received,
                },
                None,
            ) => (rkey, va, total, received),
            (Message::None | Message::Send { .. }, None) => return Err(Fault::OpcodeSequence),
        };
        if !packet.payload.is_empty() {
            let at = va.wrapping_add(u64::from(received));
            shared.memory.write_remote(self.id.pd, rkey, at, packet.payload)?;
        }
        let received = received + packet.payload.len() as u32;
        if position.ends_message() {
            if packet.headers.immediate.is_some() {
                self.complete_receive(shared, packet, WcOpcode::RecvRdmaWithImm, total);
            }
            self.end_message();
        } else {
            self.responder.message = Message::Write {
                rkey,
                va,
                total,
                received,
            };
        }
        Ok(())
    }

    /// Accept a READ: it is answered packet by packet later, and counts as done now (IBA C9-148).
    fn execute_read(&mut self, reth: &Reth) {
        let mtu = self.link.map_or(256, |link| link.mtu);
        let first = self.responder.expected;
        let last = first + (packets_of(reth.dma_length, mtu) - 1);
        let kind = Kind::Read {
            va: reth.va,
            rkey: reth.rkey,
            length: reth.dma_length,
        };
        self.responder.resources.store(first, last, kind);
        self.responder.expected = last;
        self.end_message();
    }

    fn execute_atomic(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        operation: Operation,
    ) -> Result<(), Fault> {
        let Some(atomic) = packet.headers.atomic_eth else {
            return Err(Fault::OpcodeInvalid);
        };
        let op = if operation == Operation::CompareSwap {
            AtomicOp::CompareSwap {
                compare: atomic.compare,
                swap: atomic.swap_or_add,
            }
        } else {
            AtomicOp::FetchAdd {
                add: atomic.swap_or_add,
            }
        };
        let original = shared
            .memory
            .atomic(self.id.pd, verbs_api::RKey(atomic.rkey.0), atomic.va, op)?;
        let psn = self.responder.expected;
        self.responder
            .resources
            .store(psn, psn, Kind::Atomic { original });
        self.end_message();
        Ok(())
    }

    fn end_message(&mut self) {
        self.responder.message = Message::None;
        self.responder.msn = self.responder.msn.next();
    }

    fn complete_receive(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
    ) {
        let Some(wqe) = self.receive_queue.pop() else {
            return;
        };
        let mut wc = self.completion(wqe.wr_id, WcStatus::Success);
        wc.opcode = opcode;
        wc.byte_len = byte_len;
        if let Some(ImmDt(imm)) = packet.headers.immediate {
            wc.flags = WcFlags::WITH_IMM;
            wc.imm = u32::from_be_bytes(imm);
        }
        let solicited = if packet.headers.bth.solicited {
            Solicited::Yes
        } else {
            Solicited::No
        };
        shared.complete(self.id.recv_cq, wc, solicited);
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
        if !r.is_established {
            r.is_established = true;
            if self.state == QpState::Rtr {
                shared.raise(self.id.qpn.value(), EventKind::CommEst);
            }
        }
        let is_answered = match info.operation {
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd => true,
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::AtomicWrite
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
            self.owe_ack(shared, psn);
        }
    }

    fn owe_ack(&mut self, shared: &mut Shared, psn: Seq) {
        let r = &mut self.responder;
        r.backlog_packets += 1;
        let due = r.ack.map_or(shared.now + r.ack_delay_ns, |ack| ack.due);
        let is_backlog = r.backlog_packets >= ACK_BACKLOG_PACKETS || r.backlog_bytes >= ACK_BACKLOG_BYTES;
        let urgency = if is_backlog {
            Urgency::Now
        } else {
            Urgency::Relaxed
        };
        r.ack = Some(PendingAck { psn, due, urgency });
        if is_backlog {
            self.make_ready(shared);
        } else {
            shared.acks.push(self.id.slot);
        }
    }

    /// Serve a repeated request: never executed again, but for READs, which change nothing (IBA C9-105).
    fn handle_duplicate(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq) {
        shared.counters.duplicate_request += 1;
        let Some(info) = packet.headers.bth.opcode.info() else {
            return;
        };
        match info.operation {
            Operation::Send | Operation::Write => {
                // Not beyond a READ or atomic that came after it: that would say that its answer is lost.
                let first = self.responder.resources.first_after(psn);
                self.responder.ack_again = Some(first.unwrap_or(self.responder.expected).before());
                self.make_ready(shared);
            }
            Operation::ReadRequest => self.repeat_read(shared, packet, psn),
            Operation::CompareSwap | Operation::FetchAdd => {
                let found = self.responder.resources.find(psn);
                if let Some(Kind::Atomic { .. }) = found.map(|resource| resource.kind) {
                    self.responder.resources.owe_again(psn, psn);
                    self.make_ready(shared);
                }
            }
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::AtomicWrite
            | Operation::CongestionNotification => {}
        }
    }

    /// A READ came again, whole or in part: the same PSNs carry the same bytes. Anything else is dropped.
    fn repeat_read(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq) {
        let (Some(resource), Some(reth)) = (self.responder.resources.find(psn), packet.headers.reth) else {
            return;
        };
        let Kind::Read { va, rkey, length } = resource.kind else {
            return;
        };
        let mtu = self.link.map_or(256, |link| link.mtu);
        let skipped = u64::from(psn - resource.first) * u64::from(mtu);
        let is_subset = reth.rkey == rkey
            && reth.va == va.wrapping_add(skipped)
            && skipped + u64::from(reth.dma_length) <= u64::from(length);
        if !is_subset || self.check_duplicate_range(shared, &reth).is_err() {
            return;
        }
        let end = psn + (packets_of(reth.dma_length, mtu) - 1);
        if end > resource.last {
            return;
        }
        self.responder.resources.owe_again(psn, end);
        self.make_ready(shared);
    }

    fn check_duplicate_range(&self, shared: &Shared, reth: &Reth) -> Result<(), Fault> {
        match reth.dma_length {
            0 => Ok(()),
            length => self.check_range(shared, reth.va, reth.rkey, length, Access::REMOTE_READ),
        }
    }

    /// Answer a request that cannot be served, and fail if it is that bad.
    fn refuse(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq, fault: Fault) {
        if fault == Fault::NotReady {
            let code = self.attr.min_rnr_timer.unwrap_or(0);
            let timer = RnrTimer::new(code & 0x1f).expect("five bits are a timer code");
            shared.counters.send_rnr_err += 1;
            self.responder.silence = Silence::UntilExpected;
            self.responder.nak = Some(Nak::Refused {
                psn,
                syndrome: Syndrome::RnrNak(timer),
            });
            self.make_ready(shared);
            return;
        }
        let verdict = fault.verdict();
        let consumes = packet
            .headers
            .bth
            .opcode
            .info()
            .is_some_and(|info| info.consumes_receive);
        let is_checked_late = !matches!(fault, Fault::OpcodeSequence | Fault::OpcodeInvalid);
        let holds_receive = match self.responder.message {
            Message::Send { .. } => true,
            Message::None | Message::Write { .. } => consumes && is_checked_late,
        };
        self.refuse_fatally(shared, psn, verdict.nak);
        if holds_receive {
            self.fail_receive(shared, verdict.status);
        } else {
            shared.raise(self.id.qpn.value(), verdict.event);
            self.fail(shared);
        }
    }

    /// Leave a last NAK behind the answers that are owed already.
    pub(super) fn refuse_fatally(&mut self, shared: &mut Shared, psn: Seq, code: Option<NakCode>) {
        if let Some(code) = code {
            self.responder.nak = Some(Nak::Refused {
                psn,
                syndrome: Syndrome::Nak(code),
            });
            self.make_ready(shared);
        }
    }

    /// While the own socket fills up, ask senders to slow down.
    fn note_pressure(&mut self, shared: &mut Shared, packet: &Packet<'_>) {
        if !shared.is_pressed || !packet.headers.bth.ack_request {
            return;
        }
        let cnp = &mut self.responder.cnp;
        if cnp
            .last
            .is_none_or(|last| shared.now.since(last) >= CNP_INTERVAL_NS)
        {
            cnp.last = Some(shared.now);
            cnp.is_due = true;
            self.make_ready(shared);
        }
    }
}

impl From<MemoryFault> for Fault {
    fn from(fault: MemoryFault) -> Self {
        match fault {
            MemoryFault::Misaligned => Fault::Misaligned,
            MemoryFault::BadKey
            | MemoryFault::WrongPd
            | MemoryFault::AccessDenied
            | MemoryFault::OutOfBounds => Fault::RemoteAccess,
        }
    }
}

/// Stage: after First and Middle comes only Middle or Last of the same operation, and they come nowhere else.
fn check_sequence(message: Message, info: &OpcodeInfo) -> Result<(), Fault> {
    let continues = match message {
        Message::None => {
            return if info.position.starts_message() {
                Ok(())
            } else {
                Err(Fault::OpcodeSequence)
            };
        }
        Message::Send { .. } => Operation::Send,
        Message::Write { .. } => Operation::Write,
    };
    if info.operation == continues && !info.position.starts_message() {
        Ok(())
    } else {
        Err(Fault::OpcodeSequence)
    }
}

/// Stage: the queue pair permits the operation.
fn check_enabled(access: Access, info: &OpcodeInfo) -> Result<(), Fault> {
    let needed = match info.operation {
        Operation::Send => Access::empty(),
        Operation::Write => Access::REMOTE_WRITE,
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        Operation::AtomicWrite
        | Operation::ReadResponse
        | Operation::Acknowledge
        | Operation::AtomicAcknowledge
        | Operation::CongestionNotification => return Err(Fault::OpcodeInvalid),
    };
    if access.contains(needed) {
        Ok(())
    } else {
        Err(Fault::OpcodeInvalid)
    }
}

/// Stage: payload, padding and DMA length (IBA C9-92, C9-94).
fn check_length(message: Message, packet: &Packet<'_>, info: &OpcodeInfo, mtu: u32) -> Result<(), Fault> {
    let len = packet.payload.len();
    let pad_is_right = packet.headers.bth.pad == roce_wire::pad_len(len);
    if !info.payload.allows(len, mtu as usize) || !pad_is_right {
        return Err(Fault::Length);
    }
    if packet
        .headers
        .reth
        .is_some_and(|reth| u64::from(reth.dma_length) > MAX_MESSAGE_BYTES)
    {
        return Err(Fault::Length);
    }
    if info.operation != Operation::Write {
        debug_assert!(info.operation != Operation::ReadRequest || info.payload == PayloadRule::Empty);
        return Ok(());
    }
    let left = match (message, packet.headers.reth) {
        (_, Some(reth)) => reth.dma_length,
        (Message::Write { total, received, .. }, None) => total - received,
        (Message::None | Message::Send { .. }, None) => return Err(Fault::OpcodeSequence),
    };
    let fits = if info.position.ends_message() {
        len as u64 == u64::from(left)
    } else {
        (len as u64) < u64::from(left)
    };
    if fits { Ok(()) } else { Err(Fault::Length) }
}
