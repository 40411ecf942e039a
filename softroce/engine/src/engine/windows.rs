//! Verbs on memory windows.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, MwType, RKey, Result, SendFlags};

use super::Engine;
use crate::memory::{Bind, check_window_access};
use crate::qp::Operation;
use crate::{MrId, MwId, PdId, SendOperation, SendRequest, Time};

/// What a window of type 1 is bound to, see [`Engine::bind_mw`].
#[derive(Clone, Copy, Debug)]
pub struct BindRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// How.
    pub flags: SendFlags,
    /// The region beneath; it may be left out where the window is unbound.
    pub mr: Option<MrId>,
    /// Start, a virtual address within the region.
    pub addr: u64,
    /// Bytes; 0 unbinds.
    pub length: u64,
    /// What the window permits.
    pub access: Access,
}

impl Engine {
    /// A new memory window, not bound; its key comes along.
    ///
    /// # Errors
    /// EINVAL: no such protection domain. ENOMEM: the device's limit.
    pub fn alloc_mw(&mut self, pd: PdId, mw_type: MwType) -> Result<(MwId, RKey)> {
        self.shared.memory.alloc_mw(&mut self.pds, pd, mw_type)
    }

    /// Free a memory window, bound or not. Its keys are dead when this returns.
    pub fn dealloc_mw(&mut self, mw: MwId) -> Result<()> {
        self.shared.memory.dealloc_mw(&mut self.pds, mw)
    }

    /// The window's key now: of the last bind that was carried out. One that is still queued does not count.
    pub fn mw_rkey(&self, mw: MwId) -> Result<RKey> {
        self.shared.memory.mw_rkey(mw)
    }

    /// Queue the binding of a window of type 1 (`ibv_bind_mw`); the key that it will have comes back. The old key dies
    /// when the bind is carried out: in its turn among the queue's requests. A bind that cannot be carried out
    /// completes with MW_BIND_ERR, and the window stays as it was.
    ///
    /// # Errors
    /// EINVAL: a window of type 2 (those are bound by [`crate::SendOperation::BindMw`]), rights that no window has, no
    /// region for a window of some length; as [`Engine::post_send`] otherwise.
    pub fn bind_mw(&mut self, now: Time, qpn: u32, mw: MwId, request: &BindRequest) -> Result<RKey> {
        let rkey = self.shared.memory.next_key(mw)?;
        check_window_access(request.access)?;
        let mr = match (request.mr, request.length) {
            (Some(mr), _) => mr,
            (None, 0) => MrId(0),
            (None, length) => {
                return Err(Error::invalid(format!(
                    "a window of {length} bytes needs a memory region; 0 bytes unbind it"
                )));
            }
        };
        let BindRequest {
            addr, length, access, ..
        } = *request;
        let bind = Bind {
            mw,
            mw_type: MwType::Type1,
            rkey,
            mr,
            addr,
            length,
            access,
        };
        let request = SendRequest {
            wr_id: request.wr_id,
            op: SendOperation::BindMw {
                mw,
                rkey,
                mr,
                addr,
                length,
                access,
            },
            payload: verbs_api::Payload::Sges(&[]),
            flags: request.flags,
            xrc_srqn: None,
        };
        self.post_operation(now, qpn, &request, Operation::Bind(bind))?;
        self.shared.memory.note_promised(mw, rkey);
        Ok(rkey)
    }
}
