//! The completer: what responses mean for the requests outstanding (IBA 9.7.5, 9.7.6).
//!
//! Acknowledgements are cumulative for SEND and WRITE. They cannot stand for the answer to a READ or an atomic: a
//! response beyond an unanswered one says that its answer was lost (an implied NAK), and it is asked for again.
//! Requests complete strictly in order.
#![forbid(unsafe_code)]

use std::cmp::Ordering;

use roce_wire::{AtomicAckEth, NakCode, Packet, Position, Syndrome};
use verbs_api::{QpState, WcStatus};

use super::Qp;
use super::operation::Operation;
use super::requester::{Pace, Recovery};
use super::send_queue::Data;
use crate::mutants::{Mutant, is_on};
use crate::psn::Seq;
use crate::shared::Shared;

/// How far a cumulative acknowledgement got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// Everything before the PSN is acknowledged.
    All,
    /// A READ or atomic before the PSN has no answer.
    Unanswered,
}

impl Qp {
    /// Take a response in. The caller has checked that it is one, and that the state admits it.
    pub(crate) fn handle_response(&mut self, shared: &mut Shared, packet: &Packet<'_>) {
        let psn = self.requester.una.nearest(packet.headers.bth.psn);
        if psn < self.requester.una || psn >= self.requester.sent_end {
            shared.counters.dropped_ghost_ack += 1;
            return;
        }
        let before = self.requester.una;
        if let Some(info) = packet.headers.bth.opcode.info() {
            use roce_wire::Operation as Wire;
            match info.operation {
                Wire::Acknowledge => self.handle_acknowledge(shared, packet, psn),
                Wire::ReadResponse => self.handle_read_response(shared, packet.payload, info.position, psn),
                Wire::AtomicAcknowledge => {
                    self.handle_atomic_response(shared, packet.headers.atomic_ack, psn)
                }
                Wire::Send
                | Wire::Write
                | Wire::ReadRequest
                | Wire::CompareSwap
                | Wire::FetchAdd
                | Wire::AtomicWrite
                | Wire::Flush
                | Wire::CongestionNotification => {}
            }
        }
        if self.state != QpState::Err {
            self.note_progress(shared, before);
            self.arm(shared);
        }
    }

    fn handle_acknowledge(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq) {
        let Some(aeth) = packet.headers.aeth else { return };
        match aeth.syndrome {
            Syndrome::Ack(_) => {
                if self.acknowledge_before(shared, psn + 1) == Reached::Unanswered {
                    self.handle_implied_nak(shared);
                }
            }
            Syndrome::RnrNak(timer) => {
                shared.counters.rcvd_rnr_err += 1;
                match self.acknowledge_before(shared, psn) {
                    Reached::Unanswered => self.handle_implied_nak(shared),
                    // An echo: it is waiting already, or nothing went out since it began again.
                    Reached::All if self.requester.next == self.requester.una => {}
                    Reached::All => {
                        self.renew_retries(shared);
                        self.hold_for_rnr(shared, timer);
                    }
                }
            }
            Syndrome::Nak(code) => self.handle_nak(shared, code, psn),
            Syndrome::Reserved(_) => {}
        }
    }

    fn handle_nak(&mut self, shared: &mut Shared, code: NakCode, psn: Seq) {
        let status = match code {
            NakCode::PsnSequence => None,
            NakCode::InvalidRequest => Some(WcStatus::RemInvReqErr),
            NakCode::RemoteAccess => Some(WcStatus::RemAccessErr),
            NakCode::RemoteOperational => Some(WcStatus::RemOpErr),
            NakCode::InvalidRd => Some(WcStatus::RemInvRdReqErr),
            // Without meaning, so without effect.
            NakCode::Reserved(_) => return,
        };
        if status.is_none() {
            shared.counters.rcvd_seq_err += 1;
        }
        let reached = self.acknowledge_before(shared, psn);
        let head_holds_psn = self.send_queue.get(&shared.sends, self.send_queue.head()).last >= psn;
        match status {
            // The refused request fails once everything before it has its answer.
            Some(status) if reached == Reached::All || head_holds_psn => self.fail_send(shared, status),
            Some(_) => self.handle_implied_nak(shared),
            None if reached == Reached::Unanswered => self.handle_implied_nak(shared),
            None if self.requester.next == self.requester.una => {}
            None => {
                shared.counters.completer_retry_err += 1;
                self.shrink_window(shared);
                self.renew_retries(shared);
                self.retry(shared);
            }
        }
    }

    fn handle_read_response(&mut self, shared: &mut Shared, payload: &[u8], position: Position, psn: Seq) {
        if self.acknowledge_before(shared, psn) == Reached::Unanswered {
            self.handle_implied_nak(shared);
            return;
        }
        let number = self.send_queue.head();
        let wqe = *self.send_queue.get(&shared.sends, number);
        match wqe.op {
            Operation::Read { .. } => {}
            Operation::AtomicWrite { .. } | Operation::Flush { .. } => {
                self.handle_confirmation(shared, payload, position, psn);
                return;
            }
            Operation::Send { .. }
            | Operation::Write { .. }
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::LocalInvalidate { .. }
            | Operation::Bind(_) => {
                self.fail_send(shared, WcStatus::BadRespErr);
                return;
            }
        }
        let mtu = self.link.map_or(256, |link| link.mtu);
        let offset = u64::from(psn - wqe.first) * u64::from(mtu);
        let expected_len = (u64::from(wqe.length) - offset).min(u64::from(mtu)) as usize;
        let piece = self.requester.read_packets_max;
        let at = (psn - wqe.first) % piece;
        let ends_piece = psn == wqe.last || at == piece - 1;
        let expected_position = match (at == 0, ends_piece) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        // After it was asked for again, answers to the first question may still come; the data are the same.
        if position != expected_position && !wqe.is_asked_again {
            self.fail_send(shared, WcStatus::BadRespErr);
            return;
        }
        if payload.len() != expected_len && !is_on(Mutant::ReadAnswerOfAnyLength) {
            self.fail_send(shared, WcStatus::LocLenErr);
            return;
        }
        let Data::Sges(sges) = self.send_queue.data(&shared.sends, number) else {
            return;
        };
        if !payload.is_empty() && shared.memory.scatter(self.id.pd, sges, offset, payload).is_err() {
            self.fail_send(shared, WcStatus::LocProtErr);
            return;
        }
        let r = &mut self.requester;
        let refund = r.read_bytes_out.min(payload.len() as u32);
        r.read_bytes_out -= refund;
        shared.reads.refund(refund);
        r.una = psn + 1;
        if ends_piece {
            r.requests_out = r.requests_out.saturating_sub(1);
            self.refund_packets(shared, 1);
        }
        if psn == wqe.last {
            self.complete_send(shared, WcStatus::Success);
        }
    }

    /// An empty READ response is the answer to ATOMIC WRITE and FLUSH (annex A19).
    fn handle_confirmation(&mut self, shared: &mut Shared, payload: &[u8], position: Position, psn: Seq) {
        if position != Position::Only {
            self.fail_send(shared, WcStatus::BadRespErr);
            return;
        }
        if !payload.is_empty() {
            self.fail_send(shared, WcStatus::LocLenErr);
            return;
        }
        self.note_answered(shared, psn);
    }

    /// The whole answer to the oldest request, which has one PSN, has come.
    fn note_answered(&mut self, shared: &mut Shared, psn: Seq) {
        let r = &mut self.requester;
        r.una = psn + 1;
        r.requests_out = r.requests_out.saturating_sub(1);
        self.refund_packets(shared, 1);
        self.complete_send(shared, WcStatus::Success);
    }

    fn handle_atomic_response(&mut self, shared: &mut Shared, answer: Option<AtomicAckEth>, psn: Seq) {
        if self.acknowledge_before(shared, psn) == Reached::Unanswered {
            self.handle_implied_nak(shared);
            return;
        }
        let number = self.send_queue.head();
        let (Some(answer), true) = (answer, self.send_queue.get(&shared.sends, number).op.is_atomic()) else {
            self.fail_send(shared, WcStatus::BadRespErr);
            return;
        };
        let Data::Sges(sges) = self.send_queue.data(&shared.sends, number) else {
            return;
        };
        if shared
            .memory
            .scatter(self.id.pd, sges, 0, &answer.original.to_ne_bytes())
            .is_err()
        {
            self.fail_send(shared, WcStatus::LocProtErr);
            return;
        }
        self.note_answered(shared, psn);
    }

    /// Acknowledge the SEND and WRITE packets before `end`, up to the first request that needs an answer of its own.
    fn acknowledge_before(&mut self, shared: &mut Shared, end: Seq) -> Reached {
        while self.requester.una < end {
            let wqe = *self.send_queue.get(&shared.sends, self.send_queue.head());
            if wqe.op.has_response() && !is_on(Mutant::AckStandsForReadAnswer) {
                return Reached::Unanswered;
            }
            let stop = end.min(wqe.last + 1);
            let packets = stop - self.requester.una;
            self.requester.una = stop;
            self.refund_packets(shared, packets);
            if stop > wqe.last {
                self.complete_send(shared, WcStatus::Success);
            }
        }
        self.complete_local(shared);
        Reached::All
    }

    /// An answer was lost. Once without progress is enough: what was on its way meanwhile says the same again.
    fn handle_implied_nak(&mut self, shared: &mut Shared) {
        if self.requester.implied_nak_at == Some(self.requester.una)
            || self.requester.next == self.requester.una
        {
            return;
        }
        shared.counters.completer_retry_err += 1;
        self.shrink_window(shared);
        self.renew_retries(shared);
        self.requester.implied_nak_at = Some(self.requester.una);
        self.retry(shared);
    }

    fn shrink_window(&self, shared: &mut Shared) {
        if let Some(link) = self.link {
            shared.peers.get_mut(link.peer).shrink(shared.now);
        }
    }

    /// `packets` that were charged have arrived: their share of the charge comes back.
    fn refund_packets(&mut self, shared: &mut Shared, packets: u32) {
        let r = &mut self.requester;
        let packets = packets.min(r.packets_out);
        if packets == 0 {
            return;
        }
        let share = (u64::from(r.charge) * u64::from(packets) / u64::from(r.packets_out)) as u32;
        r.charge -= share;
        r.packets_out -= packets;
        if let Some(link) = self.link {
            let peer = shared.peers.get_mut(link.peer);
            peer.refund(share, packets);
            peer.grow(share);
        }
    }

    /// Something new was acknowledged since `before`: budgets, counters and timers start afresh.
    fn note_progress(&mut self, shared: &mut Shared, before: Seq) {
        if self.requester.una == before {
            return;
        }
        self.renew_retries(shared);
        self.complete_local(shared);
        let head = self.send_queue.head();
        let r = &mut self.requester;
        r.pace = Pace::Window;
        r.implied_nak_at = r.implied_nak_at.filter(|at| *at >= r.una);
        if r.next.cmp(&r.una) == Ordering::Less {
            // Answers to the first question overtook the second one.
            r.next = r.una;
            r.current = head;
        }
        // A retry may not have passed by local requests that are complete now.
        r.current = r.current.max(head);
        self.settle_fault(shared);
        if self.state == QpState::Err {
            return;
        }
        self.note_drained(shared);
        self.make_ready(shared);
        if let Some(link) = self.link {
            shared.wake_waiting(link.peer);
        }
    }

    /// What was acknowledged since the last time renews the retry counters. A NAK that acknowledges something does
    /// this first, and uses one retry up then.
    fn renew_retries(&mut self, shared: &mut Shared) {
        let r = &mut self.requester;
        if r.progress_una == r.una {
            return;
        }
        r.progress_una = r.una;
        r.progress_at = shared.now;
        r.leased_at = shared.now;
        r.timeouts_in_a_row = 0;
        r.stalls = 0;
        r.recovery = Recovery::Regular;
        r.retries_left = self.attr.retry_cnt.unwrap_or(0);
        r.rnr_retries_left = self.attr.rnr_retry.unwrap_or(0);
    }

    /// In SQD the last request that had begun may just have completed.
    pub(crate) fn note_drained(&mut self, shared: &mut Shared) {
        if self.state == QpState::Sqd
            && self.requester.announce_drained
            && (!self.requester.has_begun_work(&self.send_queue) || is_on(Mutant::DrainedTooEarly))
        {
            self.requester.announce_drained = false;
            shared.raise(self.id.qpn.value(), verbs_api::EventKind::SqDrained);
        }
    }
}
