//! Why a request is refused, and what that means to both sides.
#![forbid(unsafe_code)]

use roce_wire::{NakCode, Packet, RnrTimer, Syndrome};
use verbs_api::{EventKind, WcStatus};

use super::{Message, Nak, Silence};
use crate::failure::{Cause, Refusal};
use crate::memory::MemoryFault;
use crate::mutants::{Mutant, is_on};
use crate::psn::Seq;
use crate::qp::Qp;
use crate::shared::Shared;

/// Why a request is refused: the rows of the responder error table (IBA 9.9.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
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
    /// An XRC request names no shared receive queue of the target's domain, or another one than its message began with.
    WrongSrq,
    /// The message is longer than the receive request.
    ReceiveTooSmall,
    /// The receive request's memory cannot be written.
    ReceiveBroken,
    /// A SEND with invalidate whose key cannot be invalidated: class J, no NAK (IBA 9.9.6.3).
    CannotInvalidate,
    /// The receive request is made to fail with this status.
    Injected(WcStatus),
}

/// What a fault means to both sides.
pub(super) struct Verdict {
    nak: Option<NakCode>,
    /// Status of the receive request that is in use, if one is.
    pub(super) status: WcStatus,
    /// Raised when no receive request is in use.
    event: EventKind,
}

impl Fault {
    pub(super) fn verdict(self) -> Verdict {
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
            Fault::RemoteAccess | Fault::WrongSrq => (
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
            Fault::Injected(status) => (nak_of(status), status, EventKind::QpFatal),
            Fault::CannotInvalidate => (None, WcStatus::RemInvReqErr, EventKind::QpAccessErr),
            // Not an error of the queue pair; answered before it gets here.
            Fault::NotReady => (None, WcStatus::Success, EventKind::QpReqErr),
        };
        Verdict { nak, status, event }
    }
}

/// What a peer is told when a receive request fails so.
fn nak_of(status: WcStatus) -> Option<NakCode> {
    let code = match status {
        WcStatus::LocLenErr | WcStatus::RemInvReqErr => NakCode::InvalidRequest,
        WcStatus::LocAccessErr | WcStatus::RemAccessErr => NakCode::RemoteAccess,
        WcStatus::WrFlushErr => return None,
        _ => NakCode::RemoteOperational,
    };
    Some(code)
}

impl From<MemoryFault> for Fault {
    fn from(fault: MemoryFault) -> Self {
        match fault {
            MemoryFault::Misaligned => Fault::Misaligned,
            MemoryFault::BadKey
            | MemoryFault::WrongPd
            | MemoryFault::WrongQp
            | MemoryFault::AccessDenied
            | MemoryFault::OutOfBounds => Fault::RemoteAccess,
        }
    }
}

impl Qp {
    /// Answer a request that cannot be served, and fail if it is that bad.
    pub(super) fn refuse(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq, fault: Fault) {
        if fault == Fault::NotReady {
            let code = self.attr.min_rnr_timer.unwrap_or(0);
            let timer = RnrTimer::new(code & 0x1f).expect("five bits are a timer code");
            shared.counters.send_rnr_err += 1;
            self.note_once(shared, psn.psn().value(), Cause::NoReceive);
            self.responder.silence = Silence::UntilExpected;
            self.responder.nak = Some(Nak::Refused {
                psn,
                syndrome: Syndrome::RnrNak(timer),
            });
            self.make_ready(shared);
            return;
        }
        if fault == Fault::OpcodeInvalid && is_on(Mutant::UnknownOpcodeIsSwallowed) {
            return;
        }
        let refusal = self.explain_fault(shared, packet, fault);
        self.note_refused(shared, psn, refusal);
        let verdict = fault.verdict();
        let consumes = packet
            .headers
            .bth
            .opcode
            .info()
            .is_some_and(|info| info.consumes_receive);
        let is_checked_late = !matches!(
            fault,
            Fault::OpcodeSequence | Fault::OpcodeInvalid | Fault::WrongSrq
        );
        let holds_receive = match self.responder.message {
            Message::Send { .. } => self.receives.current(shared).is_some(),
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

    /// The fault in words, with the numbers that explain it.
    fn explain_fault(&self, shared: &Shared, packet: &Packet<'_>, fault: Fault) -> Refusal {
        Refusal::Rule(match fault {
            Fault::ReceiveTooSmall => {
                let received = match self.responder.message {
                    Message::Send { received } => received,
                    Message::None | Message::Write { .. } => 0,
                };
                let current = self.receives.current(shared).map(|(wqe, _)| wqe.capacity);
                return Refusal::TooLong {
                    message: u64::from(received) + packet.payload.len() as u64,
                    receive: current.unwrap_or(0),
                };
            }
            Fault::RemoteAccess => {
                let under_way = match self.responder.message {
                    Message::Write { rkey, va, total, .. } => {
                        Some((verbs_api::RemoteAddr { addr: va, rkey }, total))
                    }
                    Message::None | Message::Send { .. } => None,
                };
                return self.explain_access(shared, packet, under_way);
            }
            Fault::OpcodeSequence => "does not follow from the one before it",
            Fault::OpcodeInvalid => "it does not permit (access flags of the queue pair), or that is unknown",
            Fault::NotReady => "finds no receive",
            Fault::TooManyReads => "is one READ or atomic more than max_dest_rd_atomic",
            Fault::Length => "has a length that the protocol does not allow",
            Fault::Misaligned => "is an atomic on an address that is not a multiple of 8",
            Fault::WrongSrq => {
                "names no shared receive queue of its XRC domain, of which each process has its own"
            }
            Fault::ReceiveBroken => {
                "fell into a receive whose memory cannot be written (lkey, range, protection domain or rights)"
            }
            Fault::Injected(_) => "fell into a receive that is made to fail, as a fault rule says",
            Fault::CannotInvalidate => "invalidates a key that cannot be invalidated",
        })
    }

    /// Leave a last NAK behind the answers that are owed already.
    pub(in crate::qp) fn refuse_fatally(&mut self, shared: &mut Shared, psn: Seq, code: Option<NakCode>) {
        if let Some(code) = code {
            self.responder.nak = Some(Nak::Refused {
                psn,
                syndrome: Syndrome::Nak(code),
            });
            self.make_ready(shared);
        }
    }
}
