//! What the requester does when nothing comes back: leases end, probes are sent, and at last the ACK timeout runs out.
#![forbid(unsafe_code)]

use super::{Hold, Pace, Recovery};
use crate::Time;
use crate::budget::{LEASE_NS, Lease};
use crate::mutants::{Mutant, is_on, wrong};
use crate::qp::{Link, Qp};
use crate::shared::Shared;

/// READ responses that have not come for so many leases do not count against the budget any more.
const READ_LEASES: u8 = 3;
/// A lease grows by doubling at most so often while nothing comes back.
const LEASE_DOUBLINGS: u8 = 3;

impl Qp {
    /// Local ACK timeout T: 4.096 µs · 2^code, 0 is never (IBA 9.7.6.1.3). It may run out between once and four times
    /// that. Twice is kind to peers that share a processor with us; more, when it has run out in vain before, to those
    /// that are away for a while.
    fn ack_timeout_ns(&self) -> Option<u64> {
        let times = u64::from(self.requester.timeouts_in_a_row.min(2) + 2);
        if is_on(Mutant::TimeoutsAreSpurious) {
            return self.attr.timeout.map(wrong::hurried_timeout_ns);
        }
        match self.attr.timeout.unwrap_or(0) {
            0 => None,
            code => Some(times * (4096 << code)),
        }
    }

    fn retransmit_deadline(&self) -> Option<Time> {
        let r = &self.requester;
        let has_yet_to_send = r.next == r.una && r.recovery == Recovery::Regular;
        if r.hold != Hold::Nothing || !r.is_waiting() || has_yet_to_send {
            return None;
        }
        self.ack_timeout_ns().map(|timeout| r.progress_at + timeout)
    }

    fn lease_deadline(&self) -> Option<Time> {
        self.lease_deadline_beside(self.retransmit_deadline())
    }

    /// Ever later while nothing comes back.
    fn lease_deadline_beside(&self, retransmit: Option<Time>) -> Option<Time> {
        let r = &self.requester;
        if r.charge == 0 && r.read_bytes_out == 0 && retransmit.is_none() {
            return None;
        }
        let doublings = match r.pace {
            Pace::Trickle => 0,
            Pace::Window | Pace::Probe | Pace::Stalled | Pace::Ask => {
                r.stalls.saturating_sub(1).min(LEASE_DOUBLINGS)
            }
        };
        Some(r.leased_at + (LEASE_NS << doublings))
    }

    /// The earliest of the requester's deadlines. Asked for with every packet: hence no iterators.
    pub(in crate::qp) fn requester_deadline(&self) -> Option<Time> {
        let held = match self.requester.hold {
            Hold::Rnr(until) | Hold::Rate(until) => until,
            Hold::Nothing => Time::MAX,
        };
        let retransmit = self.retransmit_deadline();
        let lease = self.lease_deadline_beside(retransmit).unwrap_or(Time::MAX);
        let first = held.min(lease).min(retransmit.unwrap_or(Time::MAX));
        (first != Time::MAX).then_some(first)
    }

    pub(in crate::qp) fn handle_requester_timeout(&mut self, shared: &mut Shared) {
        let now = shared.now;
        if let Hold::Rnr(until) | Hold::Rate(until) = self.requester.hold
            && until <= now
        {
            self.requester.hold = Hold::Nothing;
            self.requester.progress_at = now;
            self.make_ready(shared);
        }
        if self.retransmit_deadline().is_some_and(|due| due <= now) {
            shared.counters.timeouts += 1;
            self.requester.timeouts_in_a_row = self.requester.timeouts_in_a_row.saturating_add(1);
            if let Some(link) = self.link {
                shared.peers.get_mut(link.peer).shrink(now);
            }
            self.requester.implied_nak_at = None;
            self.retry(shared);
            self.requester.pace = Pace::Probe;
        } else if self.lease_deadline().is_some_and(|due| due <= now) {
            self.end_lease(shared);
        }
    }

    /// No progress for a lease: others may use what it holds, and it sends no more for now.
    fn end_lease(&mut self, shared: &mut Shared) {
        let Some(link) = self.link else { return };
        self.requester.stalls = self.requester.stalls.saturating_add(1);
        self.requester.leased_at = shared.now;
        if self.is_answer_overdue(shared, &link) {
            self.probe(shared);
            return;
        }
        self.requester.pace = match self.retransmit_deadline() {
            Some(_) if self.requester.unasked_packets > 0 => Pace::Ask,
            Some(_) => Pace::Stalled,
            None => Pace::Trickle,
        };
        // Answers that are late all come at once: others ask for more only when these must be lost.
        if self.requester.pace == Pace::Trickle || self.requester.stalls >= READ_LEASES {
            shared
                .reads
                .refund(std::mem::take(&mut self.requester.read_bytes_out));
        }
        let lease = shared.peers.get_mut(link.peer).end_lease(shared.now);
        match (self.requester.pace, lease) {
            // It still trickles to a peer that sleeps: no timeout will ever ask again.
            (Pace::Trickle, _) | (_, Lease::Release) => self.release_window(shared),
            (Pace::Window | Pace::Probe | Pace::Stalled | Pace::Ask, Lease::Keep) => {
                shared.wake_waiting(link.peer)
            }
        }
        self.make_ready(shared);
    }

    /// Whether the answer to what it sent last must be lost: nothing has come for two leases, while the same process
    /// answered others later. A socket is served in the order of arrival.
    fn is_answer_overdue(&self, shared: &Shared, link: &Link) -> bool {
        let r = &self.requester;
        let leases = match r.pace {
            Pace::Stalled => 2,
            // It stands in line to ask, which among many takes its time.
            Pace::Ask => 5,
            Pace::Window | Pace::Probe | Pace::Trickle => return false,
        };
        r.stalls >= leases
            && self.retransmit_deadline().is_some()
            && shared
                .peers
                .get(link.peer)
                .admits_probe(r.sent_at.max(r.progress_at), shared.now)
    }

    /// Send the oldest packet again, to be told what has arrived. This is no retry: no timeout has run out, and none is
    /// put off. When only the answer was lost, the next one acknowledges all; when more was, it goes on from there.
    fn probe(&mut self, shared: &mut Shared) {
        shared.counters.probes += 1;
        if let Some(link) = self.link {
            shared.peers.get_mut(link.peer).note_probe(shared.now);
        }
        self.requester.implied_nak_at = None;
        self.requester.recovery = Recovery::Probing;
        self.rewind(shared);
        self.requester.pace = Pace::Probe;
    }
}
