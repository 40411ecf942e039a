//! Address handles: where datagrams go.
#![forbid(unsafe_code)]

use verbs_api::{AddressVector, Error, Result, Wc};

use super::Engine;
use crate::{Path, PdId};

/// An address handle: a resolved way to a peer address, and the domain whose queue pairs may use it.
///
/// It is a value: copies of it work until [`Engine::destroy_ah`] has been called for it, and the caller keeps to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHandle {
    pub(crate) pd: PdId,
    pub(crate) path: Path,
}

impl AddressHandle {
    /// Where it leads.
    pub fn path(&self) -> Path {
        self.path
    }
}

impl Engine {
    /// A new address handle in a domain.
    ///
    /// # Errors
    /// EINVAL: no such domain, port, GID index, or no way from the own address to the peer's.
    pub fn create_ah(&mut self, pd: PdId, av: &AddressVector) -> Result<AddressHandle> {
        let _ = (pd, av);
        Err(Error::unsupported("address handles"))
    }

    /// Give an address handle back; its domain can then go.
    pub fn destroy_ah(&mut self, ah: AddressHandle) -> Result<()> {
        let _ = ah;
        Err(Error::unsupported("address handles"))
    }

    /// The way back to the sender of a datagram: from its completion and the 40 bytes in front of its payload.
    ///
    /// # Errors
    /// EINVAL: the completion has no GRH area, the area is no IPv4 or IPv6 header, or it was not sent to an address of
    /// ours (the sender's GID cannot be told).
    pub fn av_from_wc(&self, wc: &Wc, grh: &[u8; 40]) -> Result<AddressVector> {
        let _ = (wc, grh);
        Err(Error::unsupported("address handles"))
    }
}
