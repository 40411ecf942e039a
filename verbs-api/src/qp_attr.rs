//! Queue pairs: kinds, states, capacities and attributes.

use crate::codes::codes;
use crate::{Access, AddressVector, Mtu};

/// The service of a queue pair; the numbers are those of `ibv_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum QpType {
    Gsi = 1,
    Rc = 2,
    Uc = 3,
    Ud = 4,
    RawPacket = 8,
    XrcInitiator = 9,
    XrcTarget = 10,
}

codes!(QpType: Gsi, Rc, Uc, Ud, RawPacket, XrcInitiator, XrcTarget);

/// The state of a queue pair; the numbers are those of `ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum QpState {
    #[default]
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

codes!(QpState: Reset, Init, Rtr, Rts, Sqd, Sqe, Err);

/// Path migration state; the numbers are those of `ibv_mig_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum MigState {
    #[default]
    Migrated = 0,
    Rearm = 1,
    Armed = 2,
}

codes!(MigState: Migrated, Rearm, Armed);

/// Which send requests complete visibly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqSigType {
    /// Only those that carry `SendFlags::SIGNALED`.
    #[default]
    OnRequest,
    /// All.
    All,
}

/// Capacities of a queue pair. A provider may grant more than asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// Scatter/gather entries a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries a receive request.
    pub max_recv_sge: u32,
    /// Bytes a send request may carry inline.
    pub max_inline_data: u32,
}

bitflags::bitflags! {
    /// Which attributes a [`QpAttr`] carries; the numbers are `IBV_QP_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// `state`.
        const STATE = 1;
        /// `cur_state`.
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `access`.
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `port`.
        const PORT = 1 << 5;
        /// `qkey`.
        const QKEY = 1 << 6;
        /// `av`.
        const AV = 1 << 7;
        /// `path_mtu`.
        const PATH_MTU = 1 << 8;
        /// `timeout`.
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`.
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`.
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_path`.
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`.
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`.
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`.
        const CAP = 1 << 19;
        /// `dest_qpn`.
        const DEST_QPN = 1 << 20;
        /// `rate_limit`.
        const RATE_LIMIT = 1 << 25;
    }
}

/// The alternate path of automatic path migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AltPath {
    /// Where to.
    pub av: AddressVector,
    /// P_Key index.
    pub pkey_index: u16,
    /// Local ACK timeout code.
    pub timeout: u8,
}

/// Attributes of a queue pair, for `modify` (present ones are set) and from `query` (all that the type has).
///
/// Mask and values cannot disagree: an attribute is in the mask exactly when it is `Some`.
///
/// ```
/// use verbs_api::{Access, QpAttr, QpAttrMask, QpState};
///
/// let to_init = QpAttr {
///     state: Some(QpState::Init),
///     pkey_index: Some(0),
///     port: Some(1),
///     access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
///     ..QpAttr::default()
/// };
/// let expected = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
/// assert_eq!(to_init.mask(), expected);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// The state to go to.
    pub state: Option<QpState>,
    /// The state that the caller believes the queue pair to be in.
    pub cur_state: Option<QpState>,
    /// Raise SQ_DRAINED once drained.
    pub en_sqd_async_notify: Option<bool>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// P_Key index.
    pub pkey_index: Option<u16>,
    /// Port, from 1.
    pub port: Option<u8>,
    /// Q_Key (UD).
    pub qkey: Option<u32>,
    /// Where to send.
    pub av: Option<AddressVector>,
    /// Path MTU.
    pub path_mtu: Option<Mtu>,
    /// Local ACK timeout code, 0–31: 4.096 µs · 2^code, 0 waits for ever.
    pub timeout: Option<u8>,
    /// Retransmissions before RETRY_EXC_ERR, 0–7.
    pub retry_cnt: Option<u8>,
    /// RNR retries before RNR_RETRY_EXC_ERR, 0–7, 7 is without end.
    pub rnr_retry: Option<u8>,
    /// First PSN expected, 24 bits.
    pub rq_psn: Option<u32>,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: Option<u8>,
    /// Alternate path.
    pub alt_path: Option<AltPath>,
    /// RNR NAK timer code, 0–31.
    pub min_rnr_timer: Option<u8>,
    /// First PSN sent, 24 bits.
    pub sq_psn: Option<u32>,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: Option<u8>,
    /// Path migration state.
    pub path_mig_state: Option<MigState>,
    /// Capacities (resize; seldom offered).
    pub cap: Option<QpCap>,
    /// The peer's queue pair number, 24 bits.
    pub dest_qpn: Option<u32>,
    /// Rate limit, kbit/s.
    pub rate_limit: Option<u32>,
    /// Only from `query`: the send queue is being drained.
    pub sq_draining: bool,
}

impl QpAttr {
    /// The mask that C would pass along with these values.
    pub fn mask(&self) -> QpAttrMask {
        use QpAttrMask as M;
        let present = [
            (self.state.is_some(), M::STATE),
            (self.cur_state.is_some(), M::CUR_STATE),
            (self.en_sqd_async_notify.is_some(), M::EN_SQD_ASYNC_NOTIFY),
            (self.access.is_some(), M::ACCESS_FLAGS),
            (self.pkey_index.is_some(), M::PKEY_INDEX),
            (self.port.is_some(), M::PORT),
            (self.qkey.is_some(), M::QKEY),
            (self.av.is_some(), M::AV),
            (self.path_mtu.is_some(), M::PATH_MTU),
            (self.timeout.is_some(), M::TIMEOUT),
            (self.retry_cnt.is_some(), M::RETRY_CNT),
            (self.rnr_retry.is_some(), M::RNR_RETRY),
            (self.rq_psn.is_some(), M::RQ_PSN),
            (self.max_rd_atomic.is_some(), M::MAX_QP_RD_ATOMIC),
            (self.alt_path.is_some(), M::ALT_PATH),
            (self.min_rnr_timer.is_some(), M::MIN_RNR_TIMER),
            (self.sq_psn.is_some(), M::SQ_PSN),
            (self.max_dest_rd_atomic.is_some(), M::MAX_DEST_RD_ATOMIC),
            (self.path_mig_state.is_some(), M::PATH_MIG_STATE),
            (self.cap.is_some(), M::CAP),
            (self.dest_qpn.is_some(), M::DEST_QPN),
            (self.rate_limit.is_some(), M::RATE_LIMIT),
        ];
        present
            .into_iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, bit)| bit)
            .collect()
    }
}
