//! What goes out.

use verbs_api::{
    Error, MemoryRegion, Payload, Provider, QueuePair, RemoteAddr, Result, SendFlags, SendOp, SendWr, Sge,
};

use super::{Fate, Link, MESSAGE_BYTES_MAX, SEND_ID};
use crate::errors::{Errno, error};
use crate::mapping::{ENTRY_BYTES, Entry};
use crate::message::Control;
use crate::outgoing::Class;

impl<P: Provider> Link<P> {
    /// No data follows. False: not now.
    pub(crate) fn end(&mut self) -> Result<bool> {
        if !self.can_post(Class::Control) {
            return Ok(false);
        }
        let message = Control::End(self.conversation.credit()).to_bytes();
        self.post(SendOp::Send { imm: None }, Via::Inline(&message))?;
        self.conversation.told();
        Ok(true)
    }

    /// Make the peer's card answer, if nothing else does at the moment.
    pub(crate) fn probe(&mut self) -> Result<()> {
        match self.conversation.peer_ring() {
            Some(remote) if self.outgoing.is_empty() && self.fate == Fate::Alive => {
                self.post(SendOp::Write { remote, imm: None }, Via::Inline(&[]))
            }
            _ => Ok(()),
        }
    }

    /// Whether some data can be sent.
    pub(crate) fn is_writable(&self) -> bool {
        self.conversation.room() > 0 && self.can_post(Class::Data) && self.outgoing.room() > 0
    }

    /// Send as much as there is room for; how much that was.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() && self.can_post(Class::Data) {
            let most = (bytes.len() - sent)
                .min(self.conversation.room())
                .min(MESSAGE_BYTES_MAX);
            let Some(via) = self.way(&bytes[sent..sent + most]) else {
                break;
            };
            let length = via.bytes().len();
            let Some(remote) = self.conversation.send(length) else {
                break;
            };
            let imm = Some(length as u32);
            self.post(SendOp::Write { remote, imm }, via)?;
            sent += length;
        }
        Ok(sent)
    }

    /// Write directly to what the peer has mapped at `offset`, as much as there is room for; how much that was. EFAULT: it
    /// has not mapped all of it.
    pub(crate) fn write_direct(&mut self, bytes: &[u8], offset: u64) -> Result<usize> {
        let target = self.table.find(offset, bytes.len() as u64).ok_or_else(|| {
            error(
                Errno::EFAULT,
                format!(
                    "the peer has mapped no buffer for {} bytes at offset {offset}",
                    bytes.len()
                ),
            )
        })?;
        let mut sent = 0;
        while sent < bytes.len() && self.can_post(Class::Data) {
            let most = (bytes.len() - sent).min(MESSAGE_BYTES_MAX);
            let Some(via) = self.way(&bytes[sent..sent + most]) else {
                break;
            };
            let length = via.bytes().len();
            let remote = RemoteAddr {
                addr: target.addr + sent as u64,
                rkey: target.rkey,
            };
            self.post(SendOp::Write { remote, imm: None }, via)?;
            sent += length;
        }
        Ok(sent)
    }

    /// Write an entry of the peer's table, or clear it. False: not now.
    pub(crate) fn tell_mapping(&mut self, position: u16, entry: Option<Entry>) -> Result<bool> {
        let Some(remote) = self.conversation.peer_entry(position) else {
            return Ok(false);
        };
        if !self.can_post(Class::Data) {
            return Ok(false);
        }
        let bytes = entry.map_or([0; ENTRY_BYTES], Entry::to_bytes);
        self.post(SendOp::Write { remote, imm: None }, Via::Inline(&bytes))?;
        Ok(true)
    }

    /// How the next of `bytes` go; `None`: not now. A rest at the end of the ring goes through the ring however short it
    /// is, or the ring would never begin anew.
    fn way<'a>(&self, bytes: &'a [u8]) -> Option<Via<'a>> {
        if bytes.len() <= self.inline_bytes {
            return (!bytes.is_empty()).then_some(Via::Inline(bytes));
        }
        let room = self.outgoing.room();
        (room > 0).then(|| Via::Ring(&bytes[..bytes.len().min(room)]))
    }

    /// Post one send, for which there is a slot and, if it goes through the ring, room.
    pub(super) fn post(&mut self, op: SendOp<'_, P>, via: Via<'_>) -> Result<()> {
        let sges;
        let (payload, in_ring) = match via {
            Via::Inline([]) => (Payload::Sges(&[]), 0),
            Via::Inline(bytes) => (Payload::Inline(bytes), 0),
            Via::Ring(bytes) => {
                let place = self.outgoing.place(bytes.len());
                self.send_ring.write(place, bytes);
                sges = [Sge {
                    addr: self.send_region.addr() + place as u64,
                    length: bytes.len() as u32,
                    lkey: self.send_region.lkey(),
                }];
                (Payload::Sges(&sges), bytes.len())
            }
        };
        let request = SendWr {
            wr_id: SEND_ID,
            op,
            payload,
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        match self.qp.post_send(&[request]) {
            Ok(()) => {
                self.outgoing.post(in_ring);
                Ok(())
            }
            Err(refused) => Err(self.refused(refused.error)),
        }
    }

    /// The accounts of both sides no longer agree.
    fn refused(&mut self, refused: Error) -> Error {
        self.break_off(Errno::ECONNABORTED);
        refused
    }
}

/// How the bytes of a send go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Via<'a> {
    /// With the request.
    Inline(&'a [u8]),
    /// Through the ring.
    Ring(&'a [u8]),
}

impl<'a> Via<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Via::Inline(bytes) | Via::Ring(bytes) => bytes,
        }
    }
}
