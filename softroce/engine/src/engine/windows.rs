//! Verbs on memory windows.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, MwType, RKey, Result, SendFlags};

use super::Engine;
use crate::{MrId, MwId, PdId, Time};

/// What a window of type 1 is bound to, see [`Engine::bind_mw`].
#[derive(Clone, Copy, Debug)]
pub struct BindRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// How.
    pub flags: SendFlags,
    /// The region beneath.
    pub mr: MrId,
    /// Start, a virtual address within the region.
    pub addr: u64,
    /// Bytes; 0 unbinds.
    pub length: u64,
    /// What the window permits.
    pub access: Access,
}

impl Engine {
    /// A new memory window, not bound; its key comes along.
    pub fn alloc_mw(&mut self, pd: PdId, mw_type: MwType) -> Result<(MwId, RKey)> {
        let _ = (pd, mw_type);
        Err(Error::unsupported("memory windows"))
    }

    /// Free a memory window. Its keys are dead when this returns.
    pub fn dealloc_mw(&mut self, mw: MwId) -> Result<()> {
        let _ = mw;
        Err(Error::unsupported("memory windows"))
    }

    /// The window's key now.
    pub fn mw_rkey(&self, mw: MwId) -> Result<RKey> {
        let _ = mw;
        Err(Error::unsupported("memory windows"))
    }

    /// Queue the binding of a window of type 1 (`ibv_bind_mw`); the key that it will have comes back.
    ///
    /// # Errors
    /// EINVAL: a window of type 2 (those are bound by [`crate::SendOperation::BindMw`]), as
    /// [`Engine::post_send`] otherwise.
    pub fn bind_mw(&mut self, now: Time, qpn: u32, mw: MwId, request: &BindRequest) -> Result<RKey> {
        let _ = (now, qpn, mw, request);
        Err(Error::unsupported("memory windows"))
    }
}
