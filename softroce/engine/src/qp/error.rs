//! The ways into ERR and SQE, and the flush of work queues.
//!
//! The request that caused the error completes first, with its own status; everything else of its queue follows in
//! order with WR_FLUSH_ERR, unsignalled requests included (IBA 10.7.3.1). The two queues are independent.
#![forbid(unsafe_code)]

use verbs_api::{EventKind, QpState, Wc, WcStatus};

use super::receive_source::Finished;
use super::{Qp, is_reliable};
use crate::cq::Solicited;
use crate::mutants::{Mutant, is_on};
use crate::shared::Shared;

impl Qp {
    /// Go to ERR and flush. Requests in a shared receive queue stay there for others; the owner learns when this queue
    /// pair holds none of them any more (LAST_WQE_REACHED, IBA 11.6.3.2), and may destroy it then. What the responder
    /// already owes to the peer (earlier READ responses, a NAK) still leaves; nothing else does.
    pub(crate) fn fail(&mut self, shared: &mut Shared) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.attr.state = Some(QpState::Err);
        self.release_charges(shared);
        self.requester.stop();
        self.flush_send_queue(shared);
        self.flush_receives(shared);
        if self.srq().is_some() {
            shared.raise(self.id.qpn.value(), EventKind::QpLastWqeReached);
        }
    }

    /// To ERR by the owner's command: what is owed to the peer is dropped too.
    pub(crate) fn fail_by_command(&mut self, shared: &mut Shared) {
        self.responder.drop_debts();
        self.fail(shared);
    }

    /// The oldest send request fails, and with it the queue pair; of an unreliable service, the send queue alone.
    pub(crate) fn fail_send(&mut self, shared: &mut Shared, status: WcStatus) {
        if !self.send_queue.is_empty() {
            self.note_failed_send(shared, status);
            self.complete_send(shared, status);
        }
        self.follow_failed_send(shared);
    }

    /// A send request has failed: so does the queue pair, or its send queue alone.
    pub(crate) fn follow_failed_send(&mut self, shared: &mut Shared) {
        if is_reliable(self.id.qp_type) {
            self.fail(shared);
        } else {
            self.stop_sending(shared);
        }
    }

    /// To SQE: the send queue is flushed, the receive side goes on, and the owner may go back to RTS.
    fn stop_sending(&mut self, shared: &mut Shared) {
        self.state = QpState::Sqe;
        self.attr.state = Some(QpState::Sqe);
        self.requester.announce_drained = false;
        self.flush_send_queue(shared);
    }

    /// The receive request of the message under way fails, or the next one, and with it the queue pair.
    pub(crate) fn fail_receive(&mut self, shared: &mut Shared, status: WcStatus) {
        self.receives.begin(shared);
        if let Some(finished) = self.receives.finish(shared) {
            self.report_failed_receive(shared, finished, status);
        }
        self.fail(shared);
    }

    pub(super) fn flush_send_queue(&mut self, shared: &mut Shared) {
        while !self.send_queue.is_empty() {
            let is_unstarted = self.send_queue.head() >= self.requester.begun_end;
            if is_unstarted && is_on(Mutant::UnstartedSendsAreNotFlushed) {
                return self.send_queue.clear(&mut shared.sends);
            }
            self.complete_send(shared, WcStatus::WrFlushErr);
            if is_on(Mutant::FlushStaysAtFirst) {
                return self.send_queue.clear(&mut shared.sends);
            }
        }
    }

    /// Its own receive requests; of a shared queue the one that it holds.
    pub(super) fn flush_receives(&mut self, shared: &mut Shared) {
        while let Some(finished) = self.receives.finish(shared) {
            self.report_failed_receive(shared, finished, WcStatus::WrFlushErr);
        }
    }

    /// Complete the oldest send request.
    pub(super) fn complete_send(&mut self, shared: &mut Shared, status: WcStatus) {
        let wqe = self.send_queue.pop(&mut shared.sends);
        let status = match status == WcStatus::Success && shared.judge.sits() {
            true => shared.judge.send(self.id.qpn.value()),
            false => status,
        };
        if status == WcStatus::Success {
            shared.counters.rdma_sends += u64::from(wqe.op.sends_message());
            if !wqe.is_signaled {
                return;
            }
        }
        let mut wc = self.completion(wqe.wr_id, status);
        if status != WcStatus::Success && is_on(Mutant::FailedCompletionSaysNotWhose) {
            wc.qp_num = 0;
        }
        if status == WcStatus::Success {
            wc.opcode = wqe.op.wc_opcode();
            wc.byte_len = if wqe.op.returns_data() { wqe.length } else { 0 };
        }
        if let Some(cq) = self.id.send_cq {
            shared.complete(cq, wc, Solicited::No);
        }
    }

    /// Put the completion of a receive where it belongs.
    pub(super) fn report_receive(
        &self,
        shared: &mut Shared,
        finished: Finished,
        wc: Wc,
        solicited: Solicited,
    ) {
        if let Some(cq) = finished.cq.or(self.id.recv_cq) {
            shared.complete(cq, wc, solicited);
        }
    }

    pub(super) fn report_failed_receive(&self, shared: &mut Shared, finished: Finished, status: WcStatus) {
        let wc = self.completion(finished.wr_id, status);
        self.report_receive(shared, finished, wc, Solicited::Yes);
    }
}
