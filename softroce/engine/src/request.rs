//! Work requests as the engine takes them: those of `verbs-api` with handles replaced by ids.

use verbs_api::{Access, Payload, RKey, RemoteAddr, SendFlags};

use crate::{AddressHandle, MrId, MwId};

/// A send request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOperation,
    /// What with.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
    /// XRC only.
    pub xrc_srqn: Option<u32>,
}

/// The operation, see `verbs_api::SendOp`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum SendOperation {
    Send {
        imm: Option<u32>,
    },
    SendWithInvalidate {
        rkey: RKey,
    },
    SendTo {
        ah: AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
        imm: Option<u32>,
    },
    Write {
        remote: RemoteAddr,
        imm: Option<u32>,
    },
    Read {
        remote: RemoteAddr,
    },
    CompareSwap {
        remote: RemoteAddr,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        remote: RemoteAddr,
        add: u64,
    },
    AtomicWrite {
        remote: RemoteAddr,
    },
    Flush {
        remote: RemoteAddr,
        length: u32,
        placement: u32,
        whole_mr: bool,
    },
    LocalInvalidate {
        rkey: RKey,
    },
    BindMw {
        mw: MwId,
        rkey: RKey,
        mr: MrId,
        addr: u64,
        length: u64,
        access: Access,
    },
}
