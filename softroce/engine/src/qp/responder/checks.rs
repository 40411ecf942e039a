//! The stages that a request passes before it is executed. They change nothing.
#![forbid(unsafe_code)]

use roce_wire::{OpcodeInfo, Operation, Packet};
use verbs_api::Access;

use super::Message;
use super::fault::Fault;
use crate::qp::Qp;
use crate::qp::send_queue::MAX_MESSAGE_BYTES;
use crate::shared::Shared;

impl Qp {
    /// All stages between PSN and execution.
    pub(super) fn admit_request(
        &self,
        shared: &Shared,
        packet: &Packet<'_>,
    ) -> Result<&'static OpcodeInfo, Fault> {
        let info = packet.headers.bth.opcode.info().ok_or(Fault::OpcodeInvalid)?;
        check_sequence(self.responder.message, info)?;
        check_enabled(self.attr.access.unwrap_or_default(), info)?;
        self.check_resources(shared, info)?;
        let mtu = self.link.map_or(256, |link| link.mtu);
        check_length(self.responder.message, packet, info, mtu)?;
        self.check_remote(shared, packet, info)?;
        Ok(info)
    }

    pub(super) fn check_resources(&self, shared: &Shared, info: &OpcodeInfo) -> Result<(), Fault> {
        if info.consumes_receive && !self.receives.has_request(shared) {
            return Err(Fault::NotReady);
        }
        let needs_resource = match info.operation {
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd => true,
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::AtomicWrite
            | Operation::CongestionNotification => false,
        };
        if needs_resource && !self.responder.resources.has_room() {
            return Err(Fault::TooManyReads);
        }
        Ok(())
    }

    /// The whole remote range, once a message. A length of 0 touches nothing, and its key means nothing (IBA C9-88).
    pub(super) fn check_remote(
        &self,
        shared: &Shared,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
    ) -> Result<(), Fault> {
        if let Some(atomic) = packet.headers.atomic_eth {
            if atomic.va % 8 != 0 {
                return Err(Fault::Misaligned);
            }
            return self.check_range(shared, atomic.va, atomic.rkey, 8, Access::REMOTE_ATOMIC);
        }
        let Some(reth) = packet.headers.reth.filter(|reth| reth.dma_length > 0) else {
            return Ok(());
        };
        let need = if info.operation == Operation::ReadRequest {
            Access::REMOTE_READ
        } else {
            Access::REMOTE_WRITE
        };
        self.check_range(shared, reth.va, reth.rkey, reth.dma_length, need)
    }

    pub(super) fn check_range(
        &self,
        shared: &Shared,
        va: u64,
        rkey: roce_wire::RKey,
        len: u32,
        need: Access,
    ) -> Result<(), Fault> {
        match shared
            .memory
            .remote(self.id.pd, verbs_api::RKey(rkey.0), va, u64::from(len), need)
        {
            Ok(_) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// Stage: after First and Middle comes only Middle or Last of the same operation, and they come nowhere else.
fn check_sequence(message: Message, info: &OpcodeInfo) -> Result<(), Fault> {
    let continues = match message {
        Message::None => {
            return if info.position.starts_message() {
                Ok(())
            } else {
                Err(Fault::OpcodeSequence)
            };
        }
        Message::Send { .. } => Operation::Send,
        Message::Write { .. } => Operation::Write,
    };
    if info.operation == continues && !info.position.starts_message() {
        Ok(())
    } else {
        Err(Fault::OpcodeSequence)
    }
}

/// Stage: the queue pair permits the operation.
fn check_enabled(access: Access, info: &OpcodeInfo) -> Result<(), Fault> {
    let needed = match info.operation {
        Operation::Send => Access::empty(),
        Operation::Write => Access::REMOTE_WRITE,
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        Operation::AtomicWrite
        | Operation::ReadResponse
        | Operation::Acknowledge
        | Operation::AtomicAcknowledge
        | Operation::CongestionNotification => return Err(Fault::OpcodeInvalid),
    };
    if access.contains(needed) {
        Ok(())
    } else {
        Err(Fault::OpcodeInvalid)
    }
}

/// Stage: payload, padding and DMA length (IBA C9-92, C9-94).
fn check_length(message: Message, packet: &Packet<'_>, info: &OpcodeInfo, mtu: u32) -> Result<(), Fault> {
    let len = packet.payload.len();
    let pad_is_right = packet.headers.bth.pad == roce_wire::pad_len(len);
    if !info.payload.allows(len, mtu as usize) || !pad_is_right {
        return Err(Fault::Length);
    }
    if packet
        .headers
        .reth
        .is_some_and(|reth| u64::from(reth.dma_length) > MAX_MESSAGE_BYTES)
    {
        return Err(Fault::Length);
    }
    if info.operation != Operation::Write {
        return Ok(());
    }
    let left = match (message, packet.headers.reth) {
        (_, Some(reth)) => reth.dma_length,
        (Message::Write { total, received, .. }, None) => total - received,
        (Message::None | Message::Send { .. }, None) => return Err(Fault::OpcodeSequence),
    };
    let fits = if info.position.ends_message() {
        len as u64 == u64::from(left)
    } else {
        (len as u64) < u64::from(left)
    };
    if fits { Ok(()) } else { Err(Fault::Length) }
}
