//! Sending without acknowledgements: UC and UD.
//!
//! A request is complete when its last packet has been given to the fabric; nothing is ever sent again. What goes wrong
//! on this side fails the request and takes the send queue to SQE (IBA 10.3.1.6); what goes wrong on the way or at the
//! peer nobody learns of.
//!
//! The peer's window is for those who hear back from it. Here a rate bounds all together (see [`crate::pacer`]), and a
//! turn each: others have theirs in between.
#![forbid(unsafe_code)]

use verbs_api::{QpState, QpType, WcStatus};

use super::requester::Hold;
use super::send_queue::packets_of;
use super::{Qp, Turn};
use crate::batch::TxBatch;
use crate::budget::packet_cost;
use crate::pacer::Sent;
use crate::shared::Shared;

mod connected;
mod datagram;

/// Packets of one turn, at most.
const TURN_PACKETS: u32 = 64;
/// Bytes of one turn, at most: about one train.
const TURN_BYTES: usize = 60 << 10;

impl Qp {
    /// Send until the turn is over or nothing is left.
    pub(super) fn transmit_unreliable(&mut self, shared: &mut Shared, batch: &mut TxBatch) -> Turn {
        if let (Some(link), QpType::Uc) = (self.link, self.id.qp_type)
            && self.send_responses(shared, batch, &link) == Turn::BatchFull
        {
            return Turn::BatchFull;
        }
        let mut bytes = 0;
        for _ in 0..TURN_PACKETS {
            if bytes >= TURN_BYTES {
                return Turn::Again;
            }
            if !self.has_packet_to_send(shared) {
                return Turn::Done;
            }
            if self
                .send_queue
                .get(&shared.sends, self.send_queue.head())
                .op
                .is_local()
            {
                self.carry_out_oldest(shared);
                continue;
            }
            let sent = if bytes == 0 {
                Sent::Nothing
            } else {
                Sent::Something
            };
            if let Err(later) = shared.pacer.admit(shared.now, sent) {
                self.requester.hold = Hold::Rate(later);
                self.arm(shared);
                return Turn::Done;
            }
            let sent = match self.id.qp_type {
                QpType::Uc => self.send_connected_packet(shared, batch),
                QpType::Ud | QpType::Gsi => self.send_datagram(shared, batch),
                QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget | QpType::RawPacket => Err(Turn::Done),
            };
            match sent {
                // It was too long for the port by now, and is complete.
                Ok(0) => {}
                Ok(len) => {
                    bytes += len;
                    shared.pacer.charge(cost_of_last(batch));
                }
                // It has had a part of its turn; the next batch is for others first.
                Err(Turn::BatchFull) if bytes > 0 => return Turn::BatchFullAgain,
                Err(turn) => return turn,
            }
        }
        Turn::Again
    }

    /// Whether the oldest request may send a packet now. If that is its first one, it has its PSNs from now on.
    fn has_packet_to_send(&mut self, shared: &mut Shared) -> bool {
        let may_begin = match self.state {
            QpState::Rts => true,
            QpState::Sqd => false,
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => return false,
        };
        let number = self.send_queue.head();
        if number >= self.send_queue.tail() || self.requester.hold != Hold::Nothing {
            return false;
        }
        if number < self.requester.begun_end {
            return true;
        }
        if may_begin {
            let mtu = self.link.map_or(u32::MAX, |link| link.mtu);
            let next = self.requester.next;
            let wqe = self.send_queue.get_mut(&mut shared.sends, number);
            wqe.first = next;
            wqe.last = next + (packets_of(wqe.length, mtu) - 1);
            self.requester.begun_end = number + 1;
        }
        may_begin
    }

    /// The oldest request needs no packet.
    fn carry_out_oldest(&mut self, shared: &mut Shared) {
        match self.carry_out(shared, self.send_queue.head()) {
            Ok(()) => self.complete_oldest(shared),
            Err(_) => self.fail_oldest(shared, WcStatus::MwBindErr),
        }
    }

    /// A packet of the oldest request went out; with the last one it is complete.
    fn note_sent_for_good(&mut self, shared: &mut Shared, len: usize) {
        shared.counters.sent_pkts += 1;
        shared.counters.sent_bytes += len as u64;
        let r = &mut self.requester;
        r.next = r.next + 1;
        r.una = r.next;
        r.sent_end = r.next;
        if r.next > self.send_queue.get(&shared.sends, self.send_queue.head()).last {
            self.complete_oldest(shared);
        }
    }

    fn complete_oldest(&mut self, shared: &mut Shared) {
        self.complete_send(shared, WcStatus::Success);
        self.requester.current = self.send_queue.head();
        self.note_drained(shared);
    }

    /// The oldest request's memory cannot be read.
    fn fail_oldest(&mut self, shared: &mut Shared, status: WcStatus) {
        shared.counters.send_err += 1;
        self.fail_send(shared, status);
        self.requester.current = self.send_queue.head();
    }
}

/// What the batch's last packet costs the receiving socket.
fn cost_of_last(batch: &TxBatch) -> u32 {
    match batch.packets() {
        [.., before, last] => packet_cost(
            last.len as usize,
            before.len == last.len && before.path == last.path,
        ),
        [last] => packet_cost(last.len as usize, false),
        [] => 0,
    }
}
