//! Buffers that the peer writes to directly, and writing to the peer's.

use verbs_api::{ConnectionManager, Provider, Result};

use super::StreamSocket;
use crate::front::Patience;
use crate::mappings::MapFor;

impl<M: ConnectionManager> StreamSocket<M> {
    /// Map a buffer: `register` registers it in the domain of the connection, for the peer with the right of remote writes.
    /// At `offset`, or where there is room; the answer is where. The peer can write to it once it has received data that
    /// was sent after this.
    ///
    /// # Errors
    /// ENOTCONN; EEXIST: another mapping is in the way; ENOMEM: the peer takes no more (its `RDMA_IOMAPSIZE`, by default
    /// none).
    pub fn map(
        &self,
        offset: Option<u64>,
        purpose: MapFor,
        register: impl FnOnce(&<M::P as Provider>::Pd) -> Result<<M::P as Provider>::Mr>,
    ) -> Result<u64> {
        let mut inner = self.lock();
        self.front.pump(&mut inner)?;
        let connected = inner.connected()?;
        let region = register(connected.link.domain())?;
        let entries = connected.link.peer_mappings();
        let offset = connected.mappings.map(region, offset, purpose, entries)?;
        connected.mappings.tell(&mut connected.link)?;
        Ok(offset)
    }

    /// Undo a mapping, named by address and length of its memory. EINVAL: there is none.
    pub fn unmap(&self, addr: u64, bytes: u64) -> Result<()> {
        let mut inner = self.lock();
        let connected = inner.connected()?;
        connected.mappings.unmap(addr, bytes)?;
        connected.mappings.tell(&mut connected.link)
    }

    /// Write to what the peer has mapped at `offset`. How much: all, or what there is room for when the call may not wait.
    /// EFAULT: the peer has not mapped all of it.
    pub fn write_direct(&self, bytes: &[u8], offset: u64, patience: Patience) -> Result<usize> {
        let mut done = 0;
        loop {
            let (rest, at) = (&bytes[done..], offset.saturating_add(done as u64));
            match self.front.until(patience, |inner| {
                inner.connected_or_wait(|c| c.write_direct(rest, at))
            }) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if done == bytes.len() {
                return Ok(done);
            }
        }
    }
}
