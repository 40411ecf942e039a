//! Packets of UC: those of a reliable connection that nobody acknowledges.
#![forbid(unsafe_code)]

use roce_wire::Transport;
use verbs_api::WcStatus;

use crate::batch::TxBatch;
use crate::mutants::{Mutant, is_on};
use crate::qp::requester::{data_packet, emit};
use crate::qp::{Qp, Turn};
use crate::shared::Shared;

impl Qp {
    /// Send the packet with PSN `next`. How many bytes it has, or why the turn ends without it.
    pub(super) fn send_connected_packet(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
    ) -> Result<usize, Turn> {
        let Some(link) = self.link else {
            return Err(Turn::Done);
        };
        let number = self.send_queue.head();
        let wqe = self.send_queue.get(&shared.sends, number);
        let mut packet = data_packet(Transport::Uc, &link, wqe, self.requester.next - wqe.first);
        packet.headers.bth.psn = self.requester.next.psn();
        packet.headers.bth.ack_request = false;
        packet.headers.bth.ack_request |= is_on(Mutant::UcAsksForAck);
        let len = packet.len();
        let out = batch.push(link.path, len).ok_or(Turn::BatchFull)?;
        let payload = emit(&packet.headers, out, packet.payload_len);
        if self.copy_payload(shared, number, packet.offset, payload).is_err() {
            batch.pop();
            self.fail_oldest(shared, WcStatus::LocProtErr);
            return Err(Turn::Done);
        }
        shared.peers.get_mut(link.peer).last_batch = shared.batch_number;
        self.note_sent_for_good(shared, len);
        Ok(len)
    }
}
