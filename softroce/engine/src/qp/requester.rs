//! The requester: turns send requests into packets, keeps them within window and budgets, and sends again what was
//! lost (go-back-N). Its other half, which learns from responses, is [`super::completer`].
//!
//! Three sequence numbers: everything before `una` is acknowledged; `next` goes out next; nothing from `sent_end` on
//! was ever sent. A retry moves `next` back to `una` and changes nothing else.
#![forbid(unsafe_code)]

use roce_wire::{Psn, RnrTimer};
use verbs_api::{QpAttr, QpState, SendFlags, WcStatus};

use super::operation::Operation;
use super::send_queue::{LocalFault, SendQueue, packets_of};
use super::{Qp, Turn};
use crate::Time;
use crate::batch::TxBatch;
use crate::mutants::{Mutant, is_on, wrong};
use crate::psn::Seq;
use crate::shared::Shared;

mod confirmed;
mod deadlines;
mod local;
mod packet;

pub(super) use packet::{data_packet, emit};

/// PSNs that may be outstanding: half of all would make old and new ambiguous (IBA 9.7.2).
const MAX_OUTSTANDING_PSNS: u32 = (1 << 23) - 1;
/// Packets of one turn, at most.
const TURN_PACKETS: u32 = 64;
/// Bytes of one turn, at most: about one train.
const TURN_BYTES: usize = 60 << 10;
/// Packets between two that ask for an acknowledgement.
const ACK_REQUEST_EVERY: u32 = 16;
/// `rnr_retry` of 7 means without end (IBA 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

/// Why a queue pair with work does not send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    #[default]
    Nothing,
    /// The responder was not ready; try again then, and send nothing until then.
    Rnr(Time),
    /// What nobody acknowledges has its rate, and this one has its turn then.
    Rate(Time),
}

/// How careful to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pace {
    #[default]
    Window,
    /// After a timeout: one packet, until something comes back. A peer that is gone is not flooded.
    Probe,
    /// Nothing has come back for so long that what was in flight no longer counts against the window. Nothing more is
    /// sent until something comes back or times out, else a peer that sleeps would find its buffer overrun.
    Stalled,
    /// As stalled, but what was sent last asked for no acknowledgement, so perhaps none will come: one packet more,
    /// which asks.
    Ask,
    /// The same where nothing ever times out: one packet a lease, in case only the acknowledgement was lost.
    Trickle,
}

/// What made it send again, if it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Nothing, or a timeout or a NAK, with which the ACK timer begins anew.
    #[default]
    Regular,
    /// A probe: the ACK timer goes on as if nothing had been sent.
    Probing,
}

/// State of the requester.
#[derive(Debug, Default)]
pub(super) struct Requester {
    pub(super) una: Seq,
    pub(super) next: Seq,
    pub(super) sent_end: Seq,
    /// The request that `next` belongs to, or the one to begin with it.
    pub(super) current: u64,
    /// Requests before this one have their PSNs.
    pub(super) begun_end: u64,
    /// No request from this one on has begun and is a local one.
    pub(super) local_end: u64,
    /// READ and atomic requests without their full answer, since the last retry.
    pub(super) requests_out: u32,
    /// READ response bytes asked for that have not come, since the last retry.
    pub(super) read_bytes_out: u32,
    /// What it holds of the peer's window, and for how many packets.
    pub(super) charge: u32,
    pub(super) packets_out: u32,
    /// Since the last packet that asked for an acknowledgement.
    unasked_packets: u32,
    unasked_bytes: u32,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    pub(super) hold: Hold,
    pub(super) pace: Pace,
    /// When the lease of its charges began: with the first one, or with the last progress.
    pub(super) leased_at: Time,
    /// When something was last acknowledged, or sent while nothing was outstanding.
    pub(super) progress_at: Time,
    /// The packet that was sent again last, and since when it waits.
    stuck: Option<(Seq, Time)>,
    /// `una` when an RNR NAK came last.
    pub(super) rnr_at: Option<Seq>,
    /// Timeouts without progress in between.
    pub(super) timeouts_in_a_row: u8,
    /// When a packet last went out.
    sent_at: Time,
    /// Leases that ended since the last progress or timeout.
    pub(super) stalls: u8,
    pub(super) recovery: Recovery,
    pub(super) fault: Option<LocalFault>,
    /// `una` when the last implied NAK made it retry; a second one without progress is an echo of the first.
    pub(super) implied_nak_at: Option<Seq>,
    /// Packets that one READ request asks for at most.
    pub(super) read_packets_max: u32,
    /// `una` when the retry counters were last renewed.
    pub(super) progress_una: Seq,
    /// In SQD: tell when everything that had begun is complete.
    pub(super) announce_drained: bool,
}

impl Requester {
    pub(super) fn new(first: u32, attr: &QpAttr, head: u64, read_packets_max: u32) -> Self {
        let first = Seq::start(first);
        Requester {
            una: first,
            next: first,
            sent_end: first,
            progress_una: first,
            current: head,
            begun_end: head,
            retries_left: attr.retry_cnt.unwrap_or(0),
            rnr_retries_left: attr.rnr_retry.unwrap_or(0),
            read_packets_max,
            ..Requester::default()
        }
    }

    /// The PSN of the next packet that goes out for the first time.
    pub(super) fn next_new_psn(&self) -> Psn {
        self.sent_end.psn()
    }

    fn pace_allows(&self) -> bool {
        match self.pace {
            Pace::Window | Pace::Ask => true,
            Pace::Probe => self.next == self.una,
            Pace::Stalled => false,
            Pace::Trickle => self.packets_out == 0,
        }
    }

    /// Since when the oldest packet waits, retries included.
    pub(super) fn waiting_since(&self) -> Time {
        match self.stuck {
            Some((una, since)) if una == self.una => since,
            Some(_) | None => self.progress_at,
        }
    }

    /// The oldest packet is to be sent again.
    fn note_stuck(&mut self) {
        self.stuck = Some((self.una, self.waiting_since()));
    }

    /// Something was sent and is not answered.
    pub(super) fn is_waiting(&self) -> bool {
        self.una < self.sent_end
    }

    /// Whether requests that have begun are incomplete.
    pub(super) fn has_begun_work(&self, queue: &SendQueue) -> bool {
        queue.head() < self.begun_end
    }

    /// The retry counters were changed while nothing is under way.
    pub(super) fn retune(&mut self, attr: &QpAttr) {
        self.retries_left = attr.retry_cnt.unwrap_or(0);
        self.rnr_retries_left = attr.rnr_retry.unwrap_or(0);
    }

    /// No more timers, no more retries.
    pub(super) fn stop(&mut self) {
        self.hold = Hold::Nothing;
        self.una = self.sent_end;
        self.next = self.sent_end;
        self.fault = None;
    }
}

/// What the requester can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Send the packet with PSN `next` of request `current`.
    Packet,
    /// Carry request `current` out, which needs no packet, or pass it by when that was done before.
    Local,
    /// Nothing.
    Nothing,
}

impl Qp {
    /// Send requests until the turn is over or nothing more may go. What goes on in a later turn asks for an
    /// acknowledgement now: others may use the window up before, and what nobody asked for would hold it.
    pub(super) fn send_requests(&mut self, shared: &mut Shared, batch: &mut TxBatch) -> Turn {
        let mut bytes = 0;
        let turn = self.send_request_packets(shared, batch, &mut bytes);
        if turn != Turn::Done && bytes > 0 && self.requester.unasked_packets > 0 {
            batch.ask_with_last();
            self.requester.unasked_packets = 0;
            self.requester.unasked_bytes = 0;
        }
        turn
    }

    fn send_request_packets(&mut self, shared: &mut Shared, batch: &mut TxBatch, bytes: &mut usize) -> Turn {
        for _ in 0..TURN_PACKETS {
            if *bytes >= TURN_BYTES {
                return Turn::Again;
            }
            match self.next_step(shared) {
                Step::Nothing => return Turn::Done,
                Step::Local => self.carry_out_local(shared),
                Step::Packet => match self.send_request_packet(shared, batch) {
                    Ok(sent) => *bytes += sent,
                    Err(turn) => return turn,
                },
            }
        }
        Turn::Again
    }

    /// Decide whether the next packet may be built, and begin its request if it is the first one.
    fn next_step(&mut self, shared: &mut Shared) -> Step {
        let may_begin = self.state == QpState::Rts;
        if !may_begin && self.state != QpState::Sqd {
            return Step::Nothing;
        }
        let r = &mut self.requester;
        if r.hold != Hold::Nothing
            || r.fault.is_some()
            || r.current >= self.send_queue.tail()
            || r.next - r.una >= MAX_OUTSTANDING_PSNS
            || !r.pace_allows()
        {
            return Step::Nothing;
        }
        let is_new = r.current >= r.begun_end;
        if is_new && !may_begin && !is_on(Mutant::SqdBeginsRequests) {
            return Step::Nothing;
        }
        let head = self.send_queue.head();
        let wqe = self.send_queue.get_mut(&mut shared.sends, r.current);
        if wqe.op.is_local() && !is_new {
            return Step::Local;
        }
        let is_at_start = is_new || r.next == wqe.first;
        if is_at_start && wqe.flags.contains(SendFlags::FENCE) && r.requests_out > 0 {
            return Step::Nothing;
        }
        let limit = u32::from(self.attr.max_rd_atomic.unwrap_or(0));
        if wqe.op.has_response() && r.requests_out >= limit {
            return Step::Nothing;
        }
        if wqe.op.is_local() {
            // Invalidating waits for all that came before (IBA 10.6.5.1).
            let must_wait = matches!(wqe.op, Operation::LocalInvalidate { .. }) && r.current != head;
            return if must_wait { Step::Nothing } else { Step::Local };
        }
        if is_new {
            let mtu = self.link.map_or(256, |link| link.mtu);
            let packets = match wqe.op {
                Operation::Send { .. } | Operation::Write { .. } | Operation::Read { .. } => {
                    packets_of(wqe.length, mtu)
                }
                Operation::CompareSwap { .. }
                | Operation::FetchAdd { .. }
                | Operation::AtomicWrite { .. }
                | Operation::Flush { .. }
                | Operation::LocalInvalidate { .. }
                | Operation::Bind(_) => 1,
            };
            wqe.first = r.next;
            wqe.last = r.next + (packets - 1);
            r.begun_end = r.current + 1;
        }
        Step::Packet
    }

    /// Book a packet that went out, of a request that ends with PSN `last`: `psns` of them are used up by it.
    fn note_sent(&mut self, shared: &mut Shared, (psns, last): (u32, Seq), len: usize, cost: u32) {
        let r = &mut self.requester;
        if r.next < r.sent_end {
            shared.counters.retransmitted_bytes += len as u64;
        }
        if r.next == r.una && r.recovery == Recovery::Regular {
            r.progress_at = shared.now;
        }
        r.sent_at = shared.now;
        if r.charge == 0 {
            r.leased_at = shared.now;
        }
        if r.pace == Pace::Ask {
            r.pace = Pace::Stalled;
        }
        r.charge += cost;
        r.packets_out += 1;
        if let Some(link) = self.link {
            shared.peers.charge(link.peer, self.id.slot, cost);
            shared.peers.get_mut(link.peer).last_batch = shared.batch_number;
        }
        r.next = r.next + psns;
        r.sent_end = r.sent_end.max(r.next);
        if r.next > last {
            r.current += 1;
        }
        shared.counters.sent_pkts += 1;
        shared.counters.sent_bytes += len as u64;
    }

    /// A request cannot go on. It fails when all requests before it are complete, which may be now. What it has sent
    /// itself may never be acknowledged: nothing asked for that.
    fn note_fault(&mut self, shared: &mut Shared, status: WcStatus) {
        shared.counters.send_err += 1;
        self.requester.fault = Some(LocalFault {
            number: self.requester.current,
            status,
        });
        self.settle_fault(shared);
    }

    /// Fail the faulty request once it is the oldest.
    pub(super) fn settle_fault(&mut self, shared: &mut Shared) {
        if let Some(fault) = self.requester.fault
            && self.send_queue.head() >= fault.number
        {
            self.fail_send(shared, fault.status);
        }
    }

    /// Begin again at the oldest unacknowledged packet.
    pub(super) fn rewind(&mut self, shared: &mut Shared) {
        self.release_charges(shared);
        let r = &mut self.requester;
        r.next = r.una;
        r.pace = Pace::Window;
        r.current = self.send_queue.head();
        r.requests_out = 0;
        r.fault = None;
        r.unasked_packets = 0;
        r.unasked_bytes = 0;
        for number in r.current..r.begun_end {
            self.send_queue.get_mut(&mut shared.sends, number).is_asked_again = true;
        }
        self.make_ready(shared);
    }

    /// Something was lost: use up a retry, or give up.
    pub(super) fn retry(&mut self, shared: &mut Shared) {
        self.requester.note_stuck();
        if self.requester.retries_left > 0 {
            self.requester.retries_left -= 1;
        } else if self.has_migrated_instead(shared) {
            self.requester.retries_left = self.attr.retry_cnt.unwrap_or_default();
            self.requester.timeouts_in_a_row = 0;
        } else {
            shared.counters.retry_exceeded_err += 1;
            self.fail_send(shared, WcStatus::RetryExcErr);
            return;
        }
        self.requester.progress_at = shared.now;
        self.requester.stalls = 0;
        self.requester.recovery = Recovery::Regular;
        self.rewind(shared);
    }

    /// The responder had no receive request: wait, then try again, or give up.
    pub(super) fn hold_for_rnr(&mut self, shared: &mut Shared, timer: RnrTimer) {
        let r = &mut self.requester;
        r.note_stuck();
        r.rnr_at = Some(r.una);
        if self.attr.rnr_retry != Some(RNR_RETRY_FOREVER) {
            if r.rnr_retries_left == 0 {
                shared.counters.retry_rnr_exceeded_err += 1;
                self.fail_send(shared, WcStatus::RnrRetryExcErr);
                return;
            }
            r.rnr_retries_left -= 1;
        }
        r.hold = Hold::Rnr(shared.now + timer.nanos());
        if is_on(Mutant::RnrRetryComesEarly) {
            r.hold = Hold::Rnr(shared.now + wrong::hurried(timer.nanos()));
        }
        self.rewind(shared);
    }

    /// Give back what it holds of the peer's window and of the READ budget.
    pub(super) fn release_charges(&mut self, shared: &mut Shared) {
        let reads = std::mem::take(&mut self.requester.read_bytes_out);
        shared.reads.refund(reads);
        self.release_window(shared);
    }

    fn release_window(&mut self, shared: &mut Shared) {
        let r = &mut self.requester;
        let packets = std::mem::take(&mut r.packets_out);
        let charge = std::mem::take(&mut r.charge);
        if let Some(link) = self.link {
            shared.peers.get_mut(link.peer).refund(charge, packets);
            shared.wake_waiting(link.peer);
        }
    }
}
