//! Verbs on XRC domains.
#![forbid(unsafe_code)]

use verbs_api::{Error, Result};

use super::Engine;
use crate::XrcDomainId;

impl Engine {
    /// A new XRC domain.
    pub fn alloc_xrc_domain(&mut self) -> Result<XrcDomainId> {
        Err(Error::unsupported("XRC"))
    }

    /// Free an XRC domain. EBUSY while a target queue pair or a shared receive queue stands in it.
    pub fn dealloc_xrc_domain(&mut self, domain: XrcDomainId) -> Result<()> {
        let _ = domain;
        Err(Error::unsupported("XRC"))
    }

    /// Check that `qpn` is an XRC target of this domain, and count one more handle on it: it is gone when
    /// [`Engine::destroy_qp`] has been called once for each.
    ///
    /// # Errors
    /// EINVAL: no such target in this domain.
    pub fn open_xrc_target(&mut self, domain: XrcDomainId, qpn: u32) -> Result<()> {
        let _ = (domain, qpn);
        Err(Error::unsupported("XRC"))
    }
}
