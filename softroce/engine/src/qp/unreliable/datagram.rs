//! Datagrams: each goes its own way, in one packet.
#![forbid(unsafe_code)]

use roce_wire::{Bth, Deth, Headers, ICRC_LEN, ImmDt, Opcode, QKey, Qpn, pad_len, source_port};
use verbs_api::{QpType, SendFlags, WcStatus};

use crate::batch::TxBatch;
use crate::mutants::{Mutant, is_on};
use crate::qp::operation::{Operation, SendTail};
use crate::qp::requester::emit;
use crate::qp::{PARTITION, Qp, Turn};
use crate::shared::Shared;

/// The Q_Key of the general service interface (IBA 3.5.3).
const GSI_QKEY: u32 = 0x8001_0000;
/// A Q_Key with this bit in a request stands for the queue pair's own: so none may be used that the owner was not
/// given (IBA 10.2.5).
const OWN_QKEY: u32 = 0x8000_0000;

impl Qp {
    /// Send the oldest request. How many bytes the packet has, or why the turn ends without it.
    pub(super) fn send_datagram(&mut self, shared: &mut Shared, batch: &mut TxBatch) -> Result<usize, Turn> {
        let number = self.send_queue.head();
        let payload_len = self.send_queue.get(&shared.sends, number).length as usize;
        // The port's MTU was larger when the request was posted. Such a message is never sent (IBA C10-93.1.1).
        if payload_len > shared.port_mtu_bytes {
            shared.counters.send_err += 1;
            self.complete_oldest(shared);
            return Ok(0);
        }
        let destination = *self.send_queue.destination(&shared.sends, number);
        let Some(mut path) = destination.path else {
            return Err(Turn::Done);
        };
        // The handle leaves it to each queue pair, so that each has its own way through the network.
        if path.source_port == 0 {
            let label = source_port::flow_label(self.id.qpn, destination.qpn);
            path.source_port = source_port::from_flow_label(label);
        }
        let headers = self.datagram_headers(shared, number, (destination.qpn, destination.qkey), payload_len);
        let len = headers.len() + payload_len + usize::from(headers.bth.pad) + ICRC_LEN;
        let out = batch.push(path, len).ok_or(Turn::BatchFull)?;
        let payload = emit(&headers, out, payload_len);
        if self.copy_payload(shared, number, 0, payload).is_err() {
            batch.pop();
            self.fail_oldest(shared, WcStatus::LocProtErr);
            return Err(Turn::Done);
        }
        self.note_sent_for_good(shared, len);
        Ok(len)
    }

    fn datagram_headers(
        &self,
        shared: &Shared,
        number: u64,
        (dest_qp, qkey): (Qpn, u32),
        payload_len: usize,
    ) -> Headers {
        let wqe = self.send_queue.get(&shared.sends, number);
        let immediate = if let Operation::Send {
            tail: SendTail::Immediate(imm),
        } = wqe.op
        {
            Some(ImmDt(imm.to_be_bytes()))
        } else {
            None
        };
        let opcode = if immediate.is_some() {
            Opcode::UD_SEND_ONLY_WITH_IMMEDIATE
        } else {
            Opcode::UD_SEND_ONLY
        };
        let mut bth = Bth::new(opcode, dest_qp, self.requester.next.psn());
        bth.pkey = PARTITION;
        bth.pad = pad_len(payload_len);
        bth.ack_request |= is_on(Mutant::UdAsksForAck);
        bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let mut headers = Headers::new(bth);
        headers.immediate = immediate;
        headers.deth = Some(Deth {
            qkey: QKey(if qkey & OWN_QKEY == 0 {
                qkey
            } else {
                self.own_qkey()
            }),
            source_qp: self.id.qpn,
        });
        headers
    }

    /// The key that datagrams to this queue pair must carry.
    pub(crate) fn own_qkey(&self) -> u32 {
        match self.id.qp_type {
            QpType::Gsi => GSI_QKEY,
            QpType::Rc
            | QpType::Uc
            | QpType::Ud
            | QpType::RawPacket
            | QpType::XrcInitiator
            | QpType::XrcTarget => self.attr.qkey.unwrap_or(0),
        }
    }
}
