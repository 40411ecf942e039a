//! How queue pairs are set up, and the attributes that follow from it.

use verbs_api::{Access, AddressVector, GidEntry, Mtu, QpAttr, QpCap, QpState, QpType, SqSigType};

use super::all_remote;
use crate::testbed::{Family, Side};

/// How two queue pairs are set up. By default a try lasts at least 268 ms, which a busy machine can keep to; cases that
/// lose packets have shorter ones.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Their service.
    pub qp_type: QpType,
    /// Which of the bed's addresses they use.
    pub family: Family,
    /// Path MTU.
    pub mtu: Mtu,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retry count.
    pub retry_cnt: u8,
    /// RNR retry count.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding, both ways.
    pub rd_atomic: u8,
    /// First PSN that left and right send.
    pub psn: [u32; 2],
    /// What the peer may do.
    pub access: Access,
    /// Q_Key of datagram queue pairs.
    pub qkey: u32,
    /// Sizes of the queues.
    pub cap: QpCap,
    /// Which sends complete visibly.
    pub sq_sig: SqSigType,
    /// Completions that each queue holds.
    pub cqe: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            qp_type: QpType::Rc,
            family: Family::Usual,
            mtu: Mtu::Mtu1024,
            timeout: 16,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            rd_atomic: 4,
            psn: [0, 0xAB_CDEF],
            access: all_remote(),
            qkey: 0x1111_2222,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            sq_sig: SqSigType::OnRequest,
            cqe: 256,
        }
    }
}

impl Setup {
    /// The usual setup with another service.
    pub fn of(qp_type: QpType) -> Self {
        Setup {
            qp_type,
            ..Setup::default()
        }
    }

    /// This setup with another service.
    pub fn with_type(&self, qp_type: QpType) -> Self {
        Setup {
            qp_type,
            ..self.clone()
        }
    }

    /// A setup in which an unanswered request fails soon: timeout code 10 (4.2 ms), one retry.
    pub fn impatient() -> Self {
        Setup {
            timeout: 10,
            retry_cnt: 1,
            ..Setup::default()
        }
    }

    /// Whether its queue pairs answer READs and atomics.
    fn answers(&self) -> bool {
        matches!(self.qp_type, QpType::Rc | QpType::XrcTarget)
    }

    /// Whether its queue pairs send requests that are acknowledged.
    fn requests(&self) -> bool {
        matches!(self.qp_type, QpType::Rc | QpType::XrcInitiator)
    }

    /// Whether its queue pairs send datagrams.
    pub fn is_datagram(&self) -> bool {
        self.qp_type == QpType::Ud
    }

    /// The attributes for RESET to INIT.
    pub fn to_init(&self, port: u8) -> QpAttr {
        QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(port),
            access: (!self.is_datagram()).then_some(self.access),
            qkey: self.is_datagram().then_some(self.qkey),
            ..QpAttr::default()
        }
    }

    /// The attributes for INIT to RTR.
    pub fn to_rtr(&self, own: &Endpoint, peer: &Endpoint) -> QpAttr {
        let state = QpAttr {
            state: Some(QpState::Rtr),
            ..QpAttr::default()
        };
        if self.is_datagram() {
            return state;
        }
        QpAttr {
            av: Some(own.vector_to(peer)),
            path_mtu: Some(self.mtu),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(self.psn[peer.side.index()]),
            max_dest_rd_atomic: self.answers().then_some(self.rd_atomic),
            min_rnr_timer: self.answers().then_some(self.min_rnr_timer),
            ..state
        }
    }

    /// The attributes for RTR to RTS.
    pub fn to_rts(&self, own: &Endpoint) -> QpAttr {
        let reliable = self.answers() || self.requests();
        QpAttr {
            state: Some(QpState::Rts),
            timeout: reliable.then_some(self.timeout),
            retry_cnt: self.requests().then_some(self.retry_cnt),
            rnr_retry: self.requests().then_some(self.rnr_retry),
            sq_psn: Some(self.psn[own.side.index()]),
            max_rd_atomic: self.requests().then_some(self.rd_atomic),
            ..QpAttr::default()
        }
    }
}

/// What a peer must know of a queue pair.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Which end.
    pub side: Side,
    /// Its number.
    pub qpn: u32,
    /// Its address.
    pub gid: GidEntry,
}

impl Endpoint {
    /// The way from here to `peer`.
    pub fn vector_to(&self, peer: &Endpoint) -> AddressVector {
        AddressVector {
            dgid: Some(peer.gid.gid),
            sgid_index: self.gid.index as u8,
            hop_limit: 64,
            port: self.gid.port,
            ..AddressVector::default()
        }
    }
}
