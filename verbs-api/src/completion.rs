//! Work completions.

use crate::RKey;
use crate::codes::codes;

/// How a work request ended; the numbers are those of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the field's own.
pub enum WcStatus {
    #[default]
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocEecOpErr = 3,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    LocRddViolErr = 14,
    RemInvRdReqErr = 15,
    RemAbortErr = 16,
    InvEecnErr = 17,
    InvEecStateErr = 18,
    FatalErr = 19,
    RespTimeoutErr = 20,
    GeneralErr = 21,
    TmErr = 22,
    TmRndvIncomplete = 23,
}

codes!(WcStatus: Success, LocLenErr, LocQpOpErr, LocEecOpErr, LocProtErr, WrFlushErr, MwBindErr, BadRespErr, LocAccessErr,
    RemInvReqErr, RemAccessErr, RemOpErr, RetryExcErr, RnrRetryExcErr, LocRddViolErr, RemInvRdReqErr, RemAbortErr,
    InvEecnErr, InvEecStateErr, FatalErr, RespTimeoutErr, GeneralErr, TmErr, TmRndvIncomplete);

impl WcStatus {
    /// What it means, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            WcStatus::Success => "success",
            WcStatus::LocLenErr => "local length error",
            WcStatus::LocQpOpErr => "local QP operation error",
            WcStatus::LocEecOpErr => "local EE context operation error",
            WcStatus::LocProtErr => "local protection error",
            WcStatus::WrFlushErr => "work request flushed",
            WcStatus::MwBindErr => "memory window bind error",
            WcStatus::BadRespErr => "bad response",
            WcStatus::LocAccessErr => "local access error",
            WcStatus::RemInvReqErr => "remote invalid request",
            WcStatus::RemAccessErr => "remote access error",
            WcStatus::RemOpErr => "remote operation error",
            WcStatus::RetryExcErr => "transport retries exhausted",
            WcStatus::RnrRetryExcErr => "RNR retries exhausted",
            WcStatus::LocRddViolErr => "local RDD violation",
            WcStatus::RemInvRdReqErr => "remote invalid RD request",
            WcStatus::RemAbortErr => "operation aborted by the peer",
            WcStatus::InvEecnErr => "invalid EE context number",
            WcStatus::InvEecStateErr => "invalid EE context state",
            WcStatus::FatalErr => "fatal error",
            WcStatus::RespTimeoutErr => "response timeout",
            WcStatus::GeneralErr => "general error",
            WcStatus::TmErr => "tag matching error",
            WcStatus::TmRndvIncomplete => "tag matching rendezvous incomplete",
        }
    }
}

impl std::fmt::Display for WcStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.describe())
    }
}

/// What completed; the numbers are those of `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum WcOpcode {
    #[default]
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Flush = 8,
    AtomicWrite = 9,
    Recv = 1 << 7,
    RecvRdmaWithImm = (1 << 7) + 1,
}

codes!(WcOpcode: Send, RdmaWrite, RdmaRead, CompSwap, FetchAdd, BindMw, LocalInv, Flush, AtomicWrite, Recv,
    RecvRdmaWithImm);

bitflags::bitflags! {
    /// Which optional fields of a [`Wc`] hold something; the numbers are `IBV_WC_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WcFlags: u32 {
        /// The first 40 bytes of the buffer hold the GRH area.
        const GRH = 1;
        /// `imm` is the sender's immediate.
        const WITH_IMM = 1 << 1;
        /// `imm` is the key that the sender invalidated.
        const WITH_INV = 1 << 3;
    }
}

/// A work completion. When `status` is not [`WcStatus::Success`] only `wr_id`, `status`, `qp_num` and `vendor_err`
/// mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    /// The work request's own number.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Provider-specific detail of an error.
    pub vendor_err: u32,
    /// Bytes received, READ, or returned by an atomic.
    pub byte_len: u32,
    /// The immediate, as the sender's program gave it in network order, or the invalidated rkey (see [`Wc::flags`]).
    pub imm: u32,
    /// The local queue pair.
    pub qp_num: u32,
    /// The sender's queue pair (UD, and XRC receives).
    pub src_qp: u32,
    /// Which optional fields hold something.
    pub flags: WcFlags,
    /// P_Key index (UD, GSI).
    pub pkey_index: u16,
    /// Service level of the received packet.
    pub sl: u8,
    /// Time of completion in the device's clock, ns; 0 where the CQ has no timestamps.
    pub timestamp_ns: u64,
}

impl Wc {
    /// The key that a SEND with invalidate has invalidated here.
    pub fn invalidated_rkey(&self) -> Option<RKey> {
        self.flags.contains(WcFlags::WITH_INV).then_some(RKey(self.imm))
    }

    /// The immediate (the four bytes of the wire, read as big endian).
    pub fn immediate(&self) -> Option<u32> {
        self.flags.contains(WcFlags::WITH_IMM).then_some(self.imm)
    }
}

/// Which completions raise an event on an armed completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next receive whose sender asked for it (solicited), or the next unsuccessful completion.
    SolicitedOnly,
}
