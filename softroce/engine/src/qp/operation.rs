//! What send requests do.
#![forbid(unsafe_code)]

use roce_wire::{Feth, FlushPlacement, FlushSelectivity};
use verbs_api::{Error, MwType, RKey, RemoteAddr, Result, WcOpcode};

use crate::SendOperation;
use crate::memory::{Bind, check_window_access};

/// What a queued request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send {
        tail: SendTail,
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
    /// `word` when it was given inline.
    AtomicWrite {
        remote: RemoteAddr,
        word: Option<[u8; 8]>,
    },
    Flush {
        remote: RemoteAddr,
        length: u32,
        feth: Feth,
    },
    LocalInvalidate {
        rkey: RKey,
    },
    Bind(Bind),
}

/// What the last packet of a SEND carries besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendTail {
    Plain,
    Immediate(u32),
    Invalidate(RKey),
}

impl Operation {
    /// What a request asks for. EOPNOTSUPP for operations that are not offered; EINVAL for a FLUSH to an unknown place
    /// and for a window with rights that none has.
    pub(crate) fn of(op: &SendOperation) -> Result<Operation> {
        Ok(match *op {
            SendOperation::Send { imm: None } => Operation::Send {
                tail: SendTail::Plain,
            },
            SendOperation::Send { imm: Some(imm) } => Operation::Send {
                tail: SendTail::Immediate(imm),
            },
            SendOperation::SendTo { imm: None, .. } => Operation::Send {
                tail: SendTail::Plain,
            },
            SendOperation::SendTo { imm: Some(imm), .. } => Operation::Send {
                tail: SendTail::Immediate(imm),
            },
            SendOperation::SendWithInvalidate { rkey } => Operation::Send {
                tail: SendTail::Invalidate(rkey),
            },
            SendOperation::Write { remote, imm } => Operation::Write { remote, imm },
            SendOperation::Read { remote } => Operation::Read { remote },
            SendOperation::CompareSwap {
                remote,
                compare,
                swap,
            } => Operation::CompareSwap {
                remote,
                compare,
                swap,
            },
            SendOperation::FetchAdd { remote, add } => Operation::FetchAdd { remote, add },
            SendOperation::AtomicWrite { remote } => Operation::AtomicWrite { remote, word: None },
            SendOperation::Flush {
                remote,
                length,
                placement,
                whole_mr,
            } => Operation::Flush {
                remote,
                length,
                feth: feth(placement, whole_mr)?,
            },
            SendOperation::LocalInvalidate { rkey } => Operation::LocalInvalidate { rkey },
            SendOperation::BindMw {
                mw,
                rkey,
                mr,
                addr,
                length,
                access,
            } => {
                check_window_access(access)?;
                Operation::Bind(Bind {
                    mw,
                    mw_type: MwType::Type2,
                    rkey,
                    mr,
                    addr,
                    length,
                    access,
                })
            }
        })
    }

    /// The responder gives an answer of its own, and holds a resource for it: READs, atomics, ATOMIC WRITE, FLUSH.
    pub(crate) fn has_response(&self) -> bool {
        match self {
            Operation::Read { .. }
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::AtomicWrite { .. }
            | Operation::Flush { .. } => true,
            Operation::Send { .. }
            | Operation::Write { .. }
            | Operation::LocalInvalidate { .. }
            | Operation::Bind(_) => false,
        }
    }

    /// That answer has data: READs and atomics.
    pub(crate) fn returns_data(&self) -> bool {
        self.is_atomic() || matches!(self, Operation::Read { .. })
    }

    /// Compare-and-swap and fetch-and-add.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self, Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
    }

    /// Nothing goes on the wire: binds and invalidations.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Operation::LocalInvalidate { .. } | Operation::Bind(_))
    }

    /// SENDs and WRITEs.
    pub(crate) fn sends_message(&self) -> bool {
        matches!(self, Operation::Send { .. } | Operation::Write { .. })
    }

    /// Whether the payload means something: data to send, or where data shall go.
    pub(crate) fn has_payload(&self) -> bool {
        !self.is_local() && !matches!(self, Operation::Flush { .. })
    }

    pub(crate) fn wc_opcode(&self) -> WcOpcode {
        match self {
            Operation::Send { .. } => WcOpcode::Send,
            Operation::Write { .. } => WcOpcode::RdmaWrite,
            Operation::Read { .. } => WcOpcode::RdmaRead,
            Operation::CompareSwap { .. } => WcOpcode::CompSwap,
            Operation::FetchAdd { .. } => WcOpcode::FetchAdd,
            Operation::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Operation::Flush { .. } => WcOpcode::Flush,
            Operation::LocalInvalidate { .. } => WcOpcode::LocalInv,
            Operation::Bind(_) => WcOpcode::BindMw,
        }
    }
}

fn feth(placement: u32, whole_mr: bool) -> Result<Feth> {
    let known = u8::try_from(placement).ok().map(FlushPlacement::new);
    match known.filter(|known| known.is_valid() && u32::from(known.value()) == placement) {
        Some(placement) => Ok(Feth {
            placement,
            selectivity: if whole_mr {
                FlushSelectivity::REGION
            } else {
                FlushSelectivity::RANGE
            },
        }),
        None => Err(Error::invalid(format!(
            "FLUSH to placement {placement:#x}; it is 1 (global visibility), 2 (persistence) or both"
        ))),
    }
}
