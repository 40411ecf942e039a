//! Verbs on XRC domains.
//!
//! A domain belongs to this engine. Processes have engines of their own, so they cannot share one; handles of one
//! process can.
#![forbid(unsafe_code)]

use verbs_api::{Error, Result};

use super::Engine;
use crate::XrcDomainId;

impl Engine {
    /// A new XRC domain. ENOMEM at the engine's limit.
    pub fn alloc_xrc_domain(&mut self) -> Result<XrcDomainId> {
        self.xrc_domains.alloc()
    }

    /// Free an XRC domain. EBUSY while a target queue pair or a shared receive queue stands in it.
    pub fn dealloc_xrc_domain(&mut self, domain: XrcDomainId) -> Result<()> {
        self.xrc_domains.dealloc(domain)
    }

    /// Check that `qpn` is an XRC target of this domain, and count one more handle on it: it is gone when
    /// [`Engine::destroy_qp`] has been called once for each.
    ///
    /// # Errors
    /// EINVAL: no such target in this domain.
    pub fn open_xrc_target(&mut self, domain: XrcDomainId, qpn: u32) -> Result<()> {
        self.xrc_domains.check(domain)?;
        let target = self.qps.get_mut(qpn).and_then(|qp| qp.xrc_target_mut());
        match target.filter(|target| target.domain() == domain) {
            Some(target) => target.add_handle(),
            None => Err(Error::invalid(format!(
                "queue pair {qpn:#x} is no XRC target of this domain"
            ))),
        }
    }
}
