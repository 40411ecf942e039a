//! The responder of UC: what cannot be served is dropped without a word (IBA 9.8.2, 9.8.3).
//!
//! A message is whole or it does not count: after a gap, or a packet that cannot be served, the rest of it is dropped
//! until the next one begins. The receive request of a SEND that came in part is there for the next one; one that was
//! taken out of a shared queue cannot go back, and completes in error (class E). The queue pair goes on.
#![forbid(unsafe_code)]

use roce_wire::Packet;
use verbs_api::WcStatus;

use super::Message;
use super::fault::Fault;
use crate::failure::{Cause, DropReason};
use crate::psn::Seq;
use crate::qp::Qp;
use crate::shared::Shared;

impl Qp {
    /// Take a UC packet in. The caller has checked that the state admits it.
    pub(crate) fn handle_unacknowledged(&mut self, shared: &mut Shared, packet: &Packet<'_>) {
        self.note_pressure(shared, packet);
        let bth = &packet.headers.bth;
        let is_expected = bth.psn == self.responder.expected.psn();
        let starts_message = bth
            .opcode
            .info()
            .is_some_and(|info| info.position.starts_message());
        if !is_expected {
            shared.counters.out_of_seq_request += 1;
        }
        if !is_expected || starts_message {
            // What was under way has lost a packet, or its end.
            self.abandon_message(shared, WcStatus::RemInvReqErr);
        }
        // A message may begin with any PSN (IBA C9-166).
        self.responder.expected = Seq::start(bth.psn.value()) + 1;
        let served = self
            .admit_request(shared, packet)
            .and_then(|info| self.execute(shared, packet, info).map(|()| info));
        match served {
            Ok(info) => {
                self.note_established(shared);
                shared.counters.rdma_recvs += u64::from(info.position.ends_message());
            }
            Err(fault) => self.drop_message(shared, fault),
        }
    }

    /// The rest of the message under way will not come, or does not count.
    fn abandon_message(&mut self, shared: &mut Shared, status: WcStatus) {
        self.responder.message = Message::None;
        if let Some(finished) = self.receives.abandon(shared) {
            self.report_failed_receive(shared, finished, status);
        }
    }

    /// A message cannot be served: the peer is not told. A receive request whose memory is broken is this side's own
    /// fault, and the owner must learn of it.
    fn drop_message(&mut self, shared: &mut Shared, fault: Fault) {
        if !matches!(fault, Fault::ReceiveBroken | Fault::Injected(_)) {
            self.abandon_message(shared, fault.verdict().status);
        }
        match fault {
            Fault::ReceiveBroken | Fault::Injected(_) => self.fail_receive(shared, fault.verdict().status),
            Fault::NotReady => {
                shared.counters.dropped_no_receive += 1;
                let psn = self.responder.expected_psn().value();
                self.note_once(shared, psn, Cause::Dropped(DropReason::NoReceive));
            }
            Fault::OpcodeSequence
            | Fault::OpcodeInvalid
            | Fault::TooManyReads
            | Fault::Length
            | Fault::Misaligned
            | Fault::RemoteAccess
            | Fault::WrongSrq
            | Fault::ReceiveTooSmall
            | Fault::CannotInvalidate => shared.counters.dropped_unserved += 1,
        }
    }
}
