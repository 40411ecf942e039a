//! ATOMIC WRITE and FLUSH: one packet, whose answer is an empty READ response (annex A19).
#![forbid(unsafe_code)]

use roce_wire::{Feth, ICRC_LEN, Opcode, RKey, Reth};
use verbs_api::{RemoteAddr, WcStatus};

use super::emit;
use crate::batch::TxBatch;
use crate::qp::send_queue::{Data, SendWqe};
use crate::qp::{Link, Qp, Turn};
use crate::shared::Shared;

/// Bytes of an ATOMIC WRITE.
const WORD: usize = 8;

impl Qp {
    /// The bytes are copied again at a retry, unless they were given inline: a program that changes them meanwhile
    /// gets one of the values written.
    pub(super) fn send_atomic_write(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
        link: &Link,
        wqe: &SendWqe,
        (remote, inline): (RemoteAddr, Option<[u8; WORD]>),
    ) -> Result<usize, Turn> {
        let mut word = inline.unwrap_or_default();
        if let (None, Data::Sges(sges)) = (
            inline,
            self.send_queue.data(&shared.sends, self.requester.current),
        ) && shared.memory.gather(self.id.pd, sges, 0, &mut word).is_err()
        {
            self.note_fault(shared, WcStatus::LocProtErr);
            return Err(Turn::Done);
        }
        let mut headers = self.request_headers(link, wqe, Opcode::RC_ATOMIC_WRITE);
        headers.reth = Some(Reth {
            va: remote.addr,
            rkey: RKey(remote.rkey.0),
            dma_length: WORD as u32,
        });
        let len = headers.len() + WORD + ICRC_LEN;
        let cost = self.admit(shared, batch, link, len)?;
        let Some(out) = batch.push(link.path, len) else {
            return Err(Turn::BatchFull);
        };
        emit(&headers, out, WORD).copy_from_slice(&word);
        self.requester.requests_out += 1;
        self.note_sent(shared, (1, wqe.last), len, cost);
        Ok(len)
    }

    pub(super) fn send_flush(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
        link: &Link,
        wqe: &SendWqe,
        (remote, dma_length, feth): (RemoteAddr, u32, Feth),
    ) -> Result<usize, Turn> {
        let mut headers = self.request_headers(link, wqe, Opcode::RC_FLUSH);
        headers.feth = Some(feth);
        headers.reth = Some(Reth {
            va: remote.addr,
            rkey: RKey(remote.rkey.0),
            dma_length,
        });
        let len = headers.len() + ICRC_LEN;
        let cost = self.admit(shared, batch, link, len)?;
        let Some(out) = batch.push(link.path, len) else {
            return Err(Turn::BatchFull);
        };
        emit(&headers, out, 0);
        self.requester.requests_out += 1;
        self.note_sent(shared, (1, wqe.last), len, cost);
        Ok(len)
    }
}
