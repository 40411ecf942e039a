//! Outputs: packets, deadlines.
#![forbid(unsafe_code)]

use super::Engine;
use crate::qp::Turn;
use crate::{Acks, Time, TxBatch};

/// Deadlines that one call pushes back at most.
const STALE_DEADLINES: usize = 4;

impl Engine {
    /// Append packets to `batch` until it is full or nothing more may go now. True when more would come with an
    /// empty batch. The last four bytes of each packet are left for the fabric, which seals them.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut TxBatch, acks: Acks) -> bool {
        self.shared.now = now;
        self.shared.batch_number += 1;
        if self
            .shared
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.handle_timeout(now);
        }
        let is_full = !self.send_management(batch)
            || !self.give_turns(batch, acks)
            || !self.send_waiting_acks(batch, acks);
        self.fail_overflowed();
        self.push_stale_deadlines_back();
        is_full || !self.shared.ready.is_empty()
    }

    /// Management datagrams go first: they are few. False when the batch is full.
    fn send_management(&mut self, batch: &mut TxBatch) -> bool {
        if !self.management.has_output() {
            return true;
        }
        let (packets, bytes, is_done) = self.management.transmit(batch);
        self.shared.counters.sent_pkts += packets;
        self.shared.counters.sent_bytes += bytes;
        is_done
    }

    /// Every ready queue pair has its turn, round and round. False when the batch is full.
    fn give_turns(&mut self, batch: &mut TxBatch, acks: Acks) -> bool {
        while let Some(slot) = self.shared.ready.pop() {
            let Some(qp) = self.qps.in_slot(slot) else {
                continue;
            };
            let peer = qp.link.map(|link| link.peer);
            let turn = qp.transmit(&mut self.shared, batch, acks);
            match turn {
                Turn::Done | Turn::WaitsForPeer | Turn::WaitsForReads => {}
                Turn::Again => self.shared.ready.push(slot),
                Turn::BatchFull => {
                    self.shared.ready.push_front(slot);
                    return false;
                }
                Turn::BatchFullAgain => {
                    self.shared.ready.push(slot);
                    return false;
                }
            }
            self.shared.peers.end_turn(slot);
            if turn == Turn::WaitsForPeer {
                self.shared.reads.suspend_turn(slot);
            } else {
                self.shared.reads.end_turn(slot);
            }
            if let (Some(peer), true) = (peer, turn != Turn::WaitsForPeer) {
                self.shared.wake_waiting(peer);
            }
        }
        true
    }

    /// Acknowledgements that may wait go when all must, when they have waited enough, or behind data to the same peer.
    /// False when the batch is full.
    fn send_waiting_acks(&mut self, batch: &mut TxBatch, acks: Acks) -> bool {
        let now = self.shared.now;
        let may_go = match acks {
            Acks::Hold => false,
            Acks::Defer => !batch.is_empty(),
            Acks::Ripe => !batch.is_empty() || self.holds_ripe_acks(now),
            Acks::Flush => true,
        };
        if !may_go {
            return true;
        }
        for _ in 0..self.shared.acks.len() {
            let Some(slot) = self.shared.acks.pop() else { break };
            let Some(qp) = self.qps.in_slot(slot) else {
                continue;
            };
            let (Some(link), Some(ripe)) = (qp.link, qp.ack_ripens()) else {
                continue;
            };
            let travels = self.shared.peers.get(link.peer).last_batch == self.shared.batch_number;
            let waits = match acks {
                Acks::Hold | Acks::Defer => true,
                Acks::Ripe => ripe > now,
                Acks::Flush => false,
            };
            if waits && !travels {
                self.shared.let_ack_wait(slot, ripe);
                continue;
            }
            if qp.send_ack(&mut self.shared, batch) == Turn::BatchFull {
                self.shared.acks.push_front(slot);
                self.shared.acks_ripen = self.shared.acks_ripen.min(ripe);
                return false;
            }
        }
        true
    }

    /// The earliest entries of the heap may be earlier than what their queue pairs want by now: an acknowledgement that
    /// might have waited has just left, most often. A driver that sleeps until then would wake up for nothing.
    fn push_stale_deadlines_back(&mut self) {
        for _ in 0..STALE_DEADLINES {
            let Some((entry, slot)) = self.shared.timers.first() else {
                return;
            };
            let wanted = self.qps.in_slot(slot).and_then(|qp| qp.deadline());
            if wanted.is_some_and(|wanted| wanted <= entry) {
                return;
            }
            self.shared.timers.disarm(slot);
            if let Some(wanted) = wanted {
                self.shared.timers.arm(slot, wanted);
            }
        }
    }

    /// What is under way to the peer of a queue pair: its own send requests that have begun, or the packets of all queue
    /// pairs to the same process, whichever are more. A driver may let more requests gather behind them, so that their
    /// packets leave as one train.
    pub fn under_way(&self, qpn: u32) -> u64 {
        let Some(qp) = self.qps.get(qpn) else { return 0 };
        let packets = qp
            .link
            .map_or(0, |link| self.shared.peers.get(link.peer).packets_in_flight());
        qp.requests_under_way().max(packets.into())
    }

    /// Whether packets may be ready, an event waits to be passed on, or queue pairs must fail.
    pub fn has_output(&self) -> bool {
        !self.shared.ready.is_empty()
            || !self.shared.events.is_empty()
            || !self.shared.overflowed.is_empty()
            || self.shared.judge.has_doomed()
            || self.management.has_output()
    }

    /// Whether acknowledgements wait for data to travel with.
    pub fn holds_acks(&self) -> bool {
        !self.shared.acks.is_empty()
    }

    /// Whether some of these have waited long enough at `now`, or may have.
    pub fn holds_ripe_acks(&self, now: Time) -> bool {
        self.holds_acks() && self.shared.acks_ripen <= now
    }

    /// When [`Engine::handle_timeout`] must be called next, if at all. Calling it late delays, and breaks nothing.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.shared.next_deadline()
    }

    /// Deadlines up to `now` have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.shared.now = now;
        while let Some(slot) = self.shared.timers.pop_due(now) {
            if let Some(qp) = self.qps.in_slot(slot) {
                qp.handle_timeout(&mut self.shared);
            }
        }
        self.shared.notify_due();
        self.fail_overflowed();
    }

    /// Queue pairs whose completion queue overflowed fail (IBA class G), and those of which a completion was made to.
    #[inline]
    pub(super) fn fail_overflowed(&mut self) {
        if !self.shared.overflowed.is_empty() || self.shared.judge.has_doomed() {
            self.fail_those();
        }
    }

    #[cold]
    fn fail_those(&mut self) {
        while let Some(cq) = self.shared.overflowed.pop_front() {
            for qp in self.qps.iter_mut() {
                if qp.uses_cq(cq) && qp.is_alive() {
                    self.shared
                        .raise(qp.id.qpn.value(), verbs_api::EventKind::QpFatal);
                    qp.fail(&mut self.shared);
                }
            }
        }
        while let Some(qpn) = self.shared.judge.pop_doomed() {
            if let Some(qp) = self.qps.get_mut(qpn)
                && qp.is_alive()
            {
                qp.follow_failed_send(&mut self.shared);
            }
        }
    }
}
