//! How queue pairs are set up, and the attributes that follow from it.

use verbs_api::{Access, AddressVector, Connection, GidEntry, Mtu, QpAttr, QpCap, QpType, SqSigType};

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

    /// Whether its queue pairs send datagrams.
    pub fn is_datagram(&self) -> bool {
        self.qp_type == QpType::Ud
    }

    /// The attributes for RESET to INIT.
    pub fn to_init(&self, port: u8) -> QpAttr {
        let own = AddressVector {
            port,
            ..AddressVector::default()
        };
        self.connection(own, 0).to_init()
    }

    /// The attributes for INIT to RTR.
    pub fn to_rtr(&self, own: &Endpoint, peer: &Endpoint) -> QpAttr {
        let connection = self.connection(own.vector_to(peer), peer.qpn);
        Connection {
            rq_psn: self.psn[peer.side.index()],
            ..connection
        }
        .to_rtr()
    }

    /// The attributes for RTR to RTS.
    pub fn to_rts(&self, own: &Endpoint) -> QpAttr {
        let connection = self.connection(AddressVector::default(), 0);
        Connection {
            sq_psn: self.psn[own.side.index()],
            ..connection
        }
        .to_rts()
    }

    fn connection(&self, av: AddressVector, dest_qpn: u32) -> Connection {
        Connection {
            access: self.access,
            qkey: self.qkey,
            path_mtu: self.mtu,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
            max_rd_atomic: self.rd_atomic,
            max_dest_rd_atomic: self.rd_atomic,
            ..Connection::new(self.qp_type, av, dest_qpn)
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
