//! Work requests. They borrow everything: a C caller's arrays and a Rust caller's slices are posted without a copy.

use crate::{Access, LKey, Provider, RKey};

/// A scatter/gather entry. Addresses act only through the key, so that naming a wrong one is safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Virtual address within the region of `lkey` (or offset, when the region is zero-based).
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local key.
    pub lkey: LKey,
}

/// An address in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Virtual address within the region of `rkey`.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: RKey,
}

bitflags::bitflags! {
    /// Flags of a send request; the numbers are `IBV_SEND_*`. Inline data is a [`Payload`], not a flag.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SendFlags: u32 {
        /// Wait until all earlier READs and atomics of this queue have completed.
        const FENCE = 1;
        /// Complete visibly.
        const SIGNALED = 1 << 1;
        /// Ask for a solicited event at the peer.
        const SOLICITED = 1 << 2;
    }
}

/// What a send request carries, or where its answer goes.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory.
    Sges(&'a [Sge]),
    /// Bytes copied at the time of the call; the buffer may be reused at once.
    Inline(&'a [u8]),
}

/// What a memory window is bound to.
#[derive(Debug)]
pub struct BindInfo<'a, P: Provider> {
    /// The region beneath.
    pub mr: &'a P::Mr,
    /// Start, a virtual address within the region.
    pub addr: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// What the window permits.
    pub access: Access,
}

impl<P: Provider> Clone for BindInfo<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Provider> Copy for BindInfo<'_, P> {}

/// The operation of a send request, with only the fields that apply to it.
#[derive(Debug)]
#[allow(missing_docs)] // The fields' names are those of ibv_post_send(3).
pub enum SendOp<'a, P: Provider> {
    /// SEND, with an optional immediate (a number whose big-endian bytes go on the wire).
    Send { imm: Option<u32> },
    /// SEND that invalidates a key of the peer's.
    SendWithInvalidate { rkey: RKey },
    /// SEND on a UD or GSI queue pair.
    SendTo {
        ah: &'a P::Ah,
        remote_qpn: u32,
        remote_qkey: u32,
        imm: Option<u32>,
    },
    /// RDMA WRITE, with an optional immediate.
    Write { remote: RemoteAddr, imm: Option<u32> },
    /// RDMA READ.
    Read { remote: RemoteAddr },
    /// If the word equals `compare`, it becomes `swap`; its old value comes back.
    CompareSwap {
        remote: RemoteAddr,
        compare: u64,
        swap: u64,
    },
    /// `add` is added to the word; its old value comes back.
    FetchAdd { remote: RemoteAddr, add: u64 },
    /// WRITE of one aligned 8-byte word in one piece.
    AtomicWrite { remote: RemoteAddr },
    /// Make earlier writes visible or persistent (`placement`: `IBV_FLUSH_*`; `whole_mr`: selectivity).
    Flush {
        remote: RemoteAddr,
        length: u32,
        placement: u32,
        whole_mr: bool,
    },
    /// Invalidate an own key.
    LocalInvalidate { rkey: RKey },
    /// Bind a memory window of type 2 under the key `rkey`.
    BindMw {
        mw: &'a P::Mw,
        rkey: RKey,
        bind: BindInfo<'a, P>,
    },
}

impl<P: Provider> Clone for SendOp<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Provider> Copy for SendOp<'_, P> {}

/// A send request.
///
/// ```
/// use verbs_api::*;
///
/// fn write_inline<P: Provider>(remote: RemoteAddr) -> SendWr<'static, P> {
///     SendWr::inline(7, SendOp::Write { remote, imm: None }, b"short").with_flags(SendFlags::FENCE)
/// }
/// ```
#[derive(Debug)]
pub struct SendWr<'a, P: Provider> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp<'a, P>,
    /// What with. A READ's or an atomic's answer lands in the entries.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
    /// XRC only: the peer's shared receive queue.
    pub xrc_srqn: Option<u32>,
}

impl<P: Provider> Clone for SendWr<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Provider> Copy for SendWr<'_, P> {}

impl<'a, P: Provider> SendWr<'a, P> {
    /// A signalled request.
    pub fn new(wr_id: u64, op: SendOp<'a, P>, sges: &'a [Sge]) -> Self {
        SendWr {
            wr_id,
            op,
            payload: Payload::Sges(sges),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        }
    }

    /// The same with inline data.
    pub fn inline(wr_id: u64, op: SendOp<'a, P>, bytes: &'a [u8]) -> Self {
        SendWr {
            wr_id,
            op,
            payload: Payload::Inline(bytes),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        }
    }

    /// The same with other flags.
    pub fn with_flags(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self
    }
}

/// A receive request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}
