//! The stages that a request passes before it is executed. They change nothing.
#![forbid(unsafe_code)]

use roce_wire::{Feth, FlushPlacement, FlushSelectivity, OpcodeInfo, Operation, Packet, Reth};
use verbs_api::Access;

use super::Message;
use super::fault::Fault;
use crate::mutants::{Mutant, is_on};
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
        check_placement(self.attr.access.unwrap_or_default(), packet)?;
        if !self.receives.is_named_well() {
            return Err(Fault::WrongSrq);
        }
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
            Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush => true,
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
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
        if let (Some(feth), Some(reth)) = (packet.headers.feth, packet.headers.reth) {
            return self.check_flush(shared, feth, reth);
        }
        let Some(reth) = packet.headers.reth.filter(|reth| reth.dma_length > 0) else {
            return Ok(());
        };
        if info.operation == Operation::AtomicWrite && reth.va % 8 != 0 {
            return Err(Fault::Misaligned);
        }
        let need = if info.operation == Operation::ReadRequest {
            Access::REMOTE_READ
        } else {
            Access::REMOTE_WRITE
        };
        self.check_range(shared, reth.va, reth.rkey, reth.dma_length, need)
    }

    /// FLUSH has a key even where it has no length (annex A19).
    fn check_flush(&self, shared: &Shared, feth: Feth, reth: Reth) -> Result<(), Fault> {
        let need = access_for(feth);
        if feth.selectivity == FlushSelectivity::REGION {
            let rkey = verbs_api::RKey(reth.rkey.0);
            return Ok(shared.memory.remote_key(self.accessor(), rkey, need)?);
        }
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
        let rkey = verbs_api::RKey(rkey.0);
        Ok(shared
            .memory
            .remote(self.accessor(), rkey, va, u64::from(len), need)?)
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
        Operation::Write | Operation::AtomicWrite => Access::REMOTE_WRITE,
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        // What it needs, its own header says.
        Operation::Flush => Access::empty(),
        Operation::ReadResponse
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

/// Stage: what a FLUSH asks for means something, and the queue pair permits it.
fn check_placement(access: Access, packet: &Packet<'_>) -> Result<(), Fault> {
    let Some(feth) = packet.headers.feth else {
        return Ok(());
    };
    let is_known = feth.placement.is_valid()
        && matches!(
            feth.selectivity,
            FlushSelectivity::RANGE | FlushSelectivity::REGION
        );
    if is_known && access.contains(access_for(feth)) {
        Ok(())
    } else {
        Err(Fault::OpcodeInvalid)
    }
}

/// The rights that a FLUSH needs.
fn access_for(feth: Feth) -> Access {
    let mut access = Access::empty();
    access.set(
        Access::FLUSH_GLOBAL,
        feth.placement.contains(FlushPlacement::GLOBAL),
    );
    access.set(
        Access::FLUSH_PERSISTENT,
        feth.placement.contains(FlushPlacement::PERSISTENT),
    );
    access
}

/// Stage: payload, padding and DMA length (IBA C9-92, C9-94).
fn check_length(message: Message, packet: &Packet<'_>, info: &OpcodeInfo, mtu: u32) -> Result<(), Fault> {
    let len = packet.payload.len();
    let pad_is_right = packet.headers.bth.pad == roce_wire::pad_len(len);
    let allows = info.payload.allows(len, mtu as usize) || is_on(Mutant::PacketOfAnyLength);
    if !allows || !pad_is_right {
        return Err(Fault::Length);
    }
    // FLUSH moves no bytes, and where it is for a whole region its length means nothing.
    let is_message = info.operation != Operation::Flush;
    if is_message
        && packet
            .headers
            .reth
            .is_some_and(|reth| u64::from(reth.dma_length) > MAX_MESSAGE_BYTES)
    {
        return Err(Fault::Length);
    }
    if info.operation == Operation::AtomicWrite
        && packet
            .headers
            .reth
            .is_none_or(|reth| reth.dma_length as usize != len)
    {
        return Err(Fault::Length);
    }
    if info.operation != Operation::Write {
        return Ok(());
    }
    let left = match (message, packet.headers.reth) {
        (_, Some(reth)) => reth.dma_length,
        (Message::Write { total, received, .. }, None) => total.saturating_sub(received),
        (Message::None | Message::Send { .. }, None) => return Err(Fault::OpcodeSequence),
    };
    let fits = if info.position.ends_message() {
        len as u64 == u64::from(left)
    } else {
        (len as u64) < u64::from(left)
    };
    if fits || is_on(Mutant::WriteOfAnyLength) {
        Ok(())
    } else {
        Err(Fault::Length)
    }
}
