//! Building one request packet, straight into the batch.
#![forbid(unsafe_code)]

mod data;

use roce_wire::{AtomicEth, Headers, ICRC_LEN, Opcode, RKey, Reth};
use verbs_api::{RemoteAddr, WcStatus};

use super::{ACK_REQUEST_EVERY, Pace};
use crate::batch::TxBatch;
use crate::budget::packet_cost;
use crate::memory::MemoryFault;
use crate::mutants::{Mutant, is_on};
use crate::qp::operation::Operation;
use crate::qp::send_queue::{Data, SendWqe};
use crate::qp::{Link, Qp, Turn};
use crate::shared::Shared;
use data::xrceth;
pub(in crate::qp) use data::{data_packet, emit};

impl Qp {
    /// Build the packet with PSN `next`. How many bytes it has, or why the turn ends without it.
    pub(super) fn send_request_packet(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
    ) -> Result<usize, Turn> {
        let Some(link) = self.link else {
            return Err(Turn::Done);
        };
        let wqe = *self.send_queue.get(&shared.sends, self.requester.current);
        match wqe.op {
            Operation::Send { .. } | Operation::Write { .. } => {
                self.send_data_packet(shared, batch, &link, &wqe)
            }
            Operation::Read { remote } => self.send_read_request(shared, batch, &link, &wqe, remote),
            Operation::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                let atomic = AtomicEth {
                    va: remote.addr,
                    rkey: RKey(remote.rkey.0),
                    swap_or_add: swap,
                    compare,
                };
                self.send_atomic(shared, batch, &link, &wqe, Opcode::RC_COMPARE_SWAP, atomic)
            }
            Operation::FetchAdd { remote, add } => {
                let atomic = AtomicEth {
                    va: remote.addr,
                    rkey: RKey(remote.rkey.0),
                    swap_or_add: add,
                    compare: 0,
                };
                self.send_atomic(shared, batch, &link, &wqe, Opcode::RC_FETCH_ADD, atomic)
            }
            Operation::AtomicWrite { remote, word } => {
                self.send_atomic_write(shared, batch, &link, &wqe, (remote, word))
            }
            Operation::Flush { remote, length, feth } => {
                self.send_flush(shared, batch, &link, &wqe, (remote, length, feth))
            }
            // They have no packet, and never get here.
            Operation::LocalInvalidate { .. } | Operation::Bind(_) => Err(Turn::Done),
        }
    }

    fn send_data_packet(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
        link: &Link,
        wqe: &SendWqe,
    ) -> Result<usize, Turn> {
        let mut packet = data_packet(self.transport(), link, wqe, self.requester.next - wqe.first);
        packet.headers.bth.psn = self.requester.next.psn();
        let len = packet.len();
        let cost = self.admit(shared, batch, link, len)?;
        if !batch.has_room(len) {
            return Err(Turn::BatchFull);
        }
        packet.headers.bth.ack_request =
            self.wants_ack(shared, link, len, cost, packet.headers.bth.ack_request);
        let Some(out) = batch.push(link.path, len) else {
            return Err(Turn::BatchFull);
        };
        let payload = emit(&packet.headers, out, packet.payload_len);
        if self
            .copy_payload(shared, self.requester.current, packet.offset, payload)
            .is_err()
        {
            batch.pop();
            self.note_fault(shared, WcStatus::LocProtErr);
            return Err(Turn::Done);
        }
        self.note_sent(shared, (1, wqe.last), len, cost);
        Ok(len)
    }

    /// The bytes of a request from `offset` on, as many as `payload` holds.
    pub(in crate::qp) fn copy_payload(
        &self,
        shared: &Shared,
        number: u64,
        offset: u64,
        payload: &mut [u8],
    ) -> Result<(), MemoryFault> {
        match self.send_queue.data(&shared.sends, number) {
            Data::Inline(bytes) => {
                let start = offset as usize;
                payload.copy_from_slice(&bytes[start..start + payload.len()]);
                Ok(())
            }
            Data::Sges(_) if payload.is_empty() => Ok(()),
            Data::Sges(sges) => shared.memory.gather(self.id.pd, sges, offset, payload),
        }
    }

    fn send_read_request(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
        link: &Link,
        wqe: &SendWqe,
        remote: RemoteAddr,
    ) -> Result<usize, Turn> {
        let skipped = u64::from(self.requester.next - wqe.first) * u64::from(link.mtu);
        // Pieces begin at fixed places. A second request stays within a piece: the responder remembers each as a READ of
        // its own, and answers again only what lies within one.
        let piece = self.requester.read_packets_max;
        let into_piece = (self.requester.next - wqe.first) % piece;
        let packets = (piece - into_piece).min(wqe.last - self.requester.next + 1);
        let left = u64::from(wqe.length) - skipped;
        let bytes = left.min(u64::from(packets) * u64::from(link.mtu)) as u32;
        let mut headers = self.request_headers(link, wqe, Opcode::RC_READ_REQUEST);
        headers.reth = Some(Reth {
            va: remote.addr.wrapping_add(skipped),
            rkey: RKey(remote.rkey.0),
            dma_length: match is_on(Mutant::RepeatedReadAsksForAll) {
                true => wqe.length,
                false => bytes,
            },
        });
        let len = headers.len() + ICRC_LEN;
        if !shared.reads.admits(self.id.slot, bytes) {
            shared.reads.wait(self.id.slot);
            return Err(Turn::WaitsForReads);
        }
        let cost = self.admit(shared, batch, link, len)?;
        let Some(out) = batch.push(link.path, len) else {
            return Err(Turn::BatchFull);
        };
        emit(&headers, out, 0);
        shared.reads.charge(self.id.slot, bytes);
        self.requester.read_bytes_out += bytes;
        self.requester.requests_out += 1;
        self.note_sent(shared, (packets, wqe.last), len, cost);
        Ok(len)
    }

    fn send_atomic(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
        link: &Link,
        wqe: &SendWqe,
        opcode: Opcode,
        atomic: AtomicEth,
    ) -> Result<usize, Turn> {
        if wqe.length != 8 {
            self.note_fault(shared, WcStatus::LocLenErr);
            return Err(Turn::Done);
        }
        let mut headers = self.request_headers(link, wqe, opcode);
        headers.atomic_eth = Some(atomic);
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

    /// What a packet of `len` bytes costs, if the peer's window has room for it.
    pub(super) fn admit(
        &mut self,
        shared: &mut Shared,
        batch: &TxBatch,
        link: &Link,
        len: usize,
    ) -> Result<u32, Turn> {
        let in_train = batch
            .packets()
            .last()
            .is_some_and(|last| last.len as usize == len && last.path == link.path);
        let cost = packet_cost(len, in_train);
        // A retry after a timeout waits for nobody: it must run out when its time has come.
        if self.requester.pace == Pace::Probe || shared.peers.admits(link.peer, self.id.slot, cost) {
            Ok(cost)
        } else {
            shared.peers.wait(link.peer, self.id.slot);
            Err(Turn::WaitsForPeer)
        }
    }

    pub(super) fn request_headers(&self, link: &Link, wqe: &SendWqe, opcode: Opcode) -> Headers {
        let opcode = opcode.of(self.transport());
        let mut bth = link.bth(opcode, self.requester.next.psn());
        bth.ack_request = true;
        let mut headers = Headers::new(bth);
        headers.xrceth = xrceth(wqe);
        headers
    }

    /// Whether the packet asks for an acknowledgement: the last of a message always does, and so many others that the
    /// window keeps moving.
    fn wants_ack(&mut self, shared: &Shared, link: &Link, len: usize, cost: u32, is_last: bool) -> bool {
        let peer = shared.peers.get(link.peer);
        let r = &mut self.requester;
        r.unasked_packets += 1;
        r.unasked_bytes += cost;
        // Should the next one not follow in the same train, it costs more.
        let is_last_before_limit = peer.in_flight() + cost + packet_cost(len, false) > peer.window();
        let wants = is_last
            || is_last_before_limit
            || r.unasked_packets >= ACK_REQUEST_EVERY
            || r.unasked_bytes >= peer.window() / 4
            || r.pace != Pace::Window;
        if wants {
            r.unasked_packets = 0;
            r.unasked_bytes = 0;
        }
        wants
    }
}
