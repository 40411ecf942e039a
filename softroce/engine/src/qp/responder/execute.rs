//! What requests do.
#![forbid(unsafe_code)]

use roce_wire::{Ieth, ImmDt, OpcodeInfo, Operation, Packet, Position, Reth};
use verbs_api::{WcFlags, WcOpcode, WcStatus};

use super::Message;
use super::fault::Fault;
use crate::cq::Solicited;
use crate::memory::AtomicOp;
use crate::qp::Qp;
use crate::qp::resources::Kind;
use crate::qp::send_queue::{MAX_MESSAGE_BYTES, packets_of};
use crate::shared::Shared;

impl Qp {
    pub(super) fn execute(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
    ) -> Result<(), Fault> {
        match info.operation {
            Operation::Send => self.execute_send(shared, packet, info.position),
            Operation::Write => self.execute_write(shared, packet, info.position),
            Operation::ReadRequest => {
                let Some(reth) = packet.headers.reth else {
                    return Err(Fault::OpcodeInvalid);
                };
                self.execute_read(&reth);
                Ok(())
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                self.execute_atomic(shared, packet, info.operation)
            }
            Operation::AtomicWrite => self.execute_atomic_write(shared, packet),
            Operation::Flush => {
                // In order, after all that was written before: that is done, so what is left is to show it.
                shared.memory.make_visible();
                self.store_confirmed();
                Ok(())
            }
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CongestionNotification => Err(Fault::OpcodeInvalid),
        }
    }

    fn execute_send(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        position: Position,
    ) -> Result<(), Fault> {
        let received = match self.responder.message {
            Message::Send { received } => received,
            Message::None | Message::Write { .. } => {
                self.receives.begin(shared);
                0
            }
        };
        let Some((wqe, sges)) = self.receives.current(shared) else {
            return Err(Fault::NotReady);
        };
        let end = u64::from(received) + packet.payload.len() as u64;
        if end > MAX_MESSAGE_BYTES {
            return Err(Fault::Length);
        }
        if end > wqe.capacity {
            return Err(Fault::ReceiveTooSmall);
        }
        if !packet.payload.is_empty() {
            let scattered = shared.memory.scatter(
                self.receives.pd(self.id.pd),
                sges,
                u64::from(received),
                packet.payload,
            );
            scattered.map_err(|_| Fault::ReceiveBroken)?;
        }
        if !position.ends_message() {
            self.responder.message = Message::Send { received: end as u32 };
            return Ok(());
        }
        if let Some(Ieth(rkey)) = packet.headers.invalidate {
            let rkey = verbs_api::RKey(rkey.0);
            shared
                .memory
                .invalidate(self.accessor(), rkey)
                .map_err(|_| Fault::CannotInvalidate)?;
        }
        self.judge_receive(shared)?;
        self.complete_receive(shared, packet, WcOpcode::Recv, end as u32);
        self.end_message();
        Ok(())
    }

    fn execute_write(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        position: Position,
    ) -> Result<(), Fault> {
        let (rkey, va, total, received) = match (self.responder.message, packet.headers.reth) {
            (_, Some(reth)) => (verbs_api::RKey(reth.rkey.0), reth.va, reth.dma_length, 0),
            (
                Message::Write {
                    rkey,
                    va,
                    total,
                    received,
                },
                None,
            ) => (rkey, va, total, received),
            (Message::None | Message::Send { .. }, None) => return Err(Fault::OpcodeSequence),
        };
        if !packet.payload.is_empty() {
            let at = va.wrapping_add(u64::from(received));
            shared
                .memory
                .write_remote(self.accessor(), rkey, at, packet.payload)?;
        }
        let received = received + packet.payload.len() as u32;
        if position.ends_message() {
            if packet.headers.immediate.is_some() {
                self.receives.begin(shared);
                self.judge_receive(shared)?;
                self.complete_receive(shared, packet, WcOpcode::RecvRdmaWithImm, total);
            }
            self.end_message();
        } else {
            self.responder.message = Message::Write {
                rkey,
                va,
                total,
                received,
            };
        }
        Ok(())
    }

    /// Accept a READ: it is answered packet by packet later, and counts as done now (IBA C9-148).
    fn execute_read(&mut self, reth: &Reth) {
        let mtu = self.link.map_or(256, |link| link.mtu);
        let first = self.responder.expected;
        let last = first + (packets_of(reth.dma_length, mtu) - 1);
        let kind = Kind::Read {
            va: reth.va,
            rkey: reth.rkey,
            length: reth.dma_length,
            pd: self.accessor().pd,
        };
        self.responder.resources.store(first, last, kind);
        self.responder.expected = last;
        self.end_message();
    }

    fn execute_atomic(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        operation: Operation,
    ) -> Result<(), Fault> {
        let Some(atomic) = packet.headers.atomic_eth else {
            return Err(Fault::OpcodeInvalid);
        };
        let op = if operation == Operation::CompareSwap {
            AtomicOp::CompareSwap {
                compare: atomic.compare,
                swap: atomic.swap_or_add,
            }
        } else {
            AtomicOp::FetchAdd {
                add: atomic.swap_or_add,
            }
        };
        let original =
            shared
                .memory
                .atomic(self.accessor(), verbs_api::RKey(atomic.rkey.0), atomic.va, op)?;
        let psn = self.responder.expected;
        self.responder
            .resources
            .store(psn, psn, Kind::Atomic { original });
        self.end_message();
        Ok(())
    }

    fn execute_atomic_write(&mut self, shared: &mut Shared, packet: &Packet<'_>) -> Result<(), Fault> {
        let (Some(reth), Ok(word)) = (packet.headers.reth, packet.payload.try_into()) else {
            return Err(Fault::Length);
        };
        let rkey = verbs_api::RKey(reth.rkey.0);
        shared.memory.write_word(self.accessor(), rkey, reth.va, word)?;
        self.store_confirmed();
        Ok(())
    }

    /// It is done, and that is the whole answer.
    fn store_confirmed(&mut self) {
        let psn = self.responder.expected;
        self.responder.resources.store(psn, psn, Kind::Confirmed);
        self.end_message();
    }

    fn end_message(&mut self) {
        self.responder.message = Message::None;
        self.responder.msn = self.responder.msn.next();
    }

    /// A receive request is about to complete, unless it is made to fail.
    fn judge_receive(&self, shared: &mut Shared) -> Result<(), Fault> {
        if !shared.judge.sits() {
            return Ok(());
        }
        let failed = shared.judge.receive(self.id.qpn.value());
        failed.map_or(Ok(()), |status| Err(Fault::Injected(status)))
    }

    pub(super) fn complete_receive(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
    ) {
        self.complete_receive_at(shared, packet, opcode, byte_len, 0);
    }

    /// As [`complete_receive`](Self::complete_receive), with what stands in the place of the service level.
    pub(super) fn complete_receive_at(
        &mut self,
        shared: &mut Shared,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
        service_level: u8,
    ) {
        let Some(finished) = self.receives.finish(shared) else {
            return;
        };
        let mut wc = self.completion(finished.wr_id, WcStatus::Success);
        wc.opcode = opcode;
        wc.byte_len = byte_len;
        wc.sl = service_level;
        if let Some(ImmDt(imm)) = packet.headers.immediate {
            wc.flags = WcFlags::WITH_IMM;
            wc.imm = u32::from_be_bytes(imm);
        }
        if let Some(deth) = packet.headers.deth {
            wc.src_qp = deth.source_qp.value();
            wc.flags |= WcFlags::GRH;
        }
        if let Some(Ieth(rkey)) = packet.headers.invalidate {
            wc.flags = WcFlags::WITH_INV;
            wc.imm = rkey.0;
        }
        let solicited = if packet.headers.bth.solicited {
            Solicited::Yes
        } else {
            Solicited::No
        };
        self.report_receive(shared, finished, wc, solicited);
    }
}
