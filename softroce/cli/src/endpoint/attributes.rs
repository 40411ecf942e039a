//! The attributes that lead a queue pair of each kind to RTS.

use verbs_api::{Access, AddressVector, Gid, Mtu, QpAttr, QpState, QpType};

/// Attempts after the first, and the time between them: a vanished peer is noticed within about two seconds.
const TIMEOUT_CODE: u8 = 14;
const RETRY_COUNT: u8 = 7;
/// RNR retries without end: a peer that is slow to post receives is waited for.
const RNR_RETRY_FOREVER: u8 = 7;
const MIN_RNR_TIMER_CODE: u8 = 12;
/// READs and atomics under way, each direction.
const RD_ATOMIC: u8 = 16;
/// Of all datagram queue pairs of this command.
pub const QKEY: u32 = 0x1111_1111;

/// Where a connection leads.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub gid: Gid,
    pub qpn: u32,
    pub path_mtu: Mtu,
    /// First PSN of the peer's requests.
    pub psn: u32,
}

/// To INIT.
pub fn to_init(qp_type: QpType, access: Access) -> QpAttr {
    let attr = QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        ..QpAttr::default()
    };
    match qp_type {
        QpType::Ud => QpAttr {
            qkey: Some(QKEY),
            ..attr
        },
        // It has nothing but WRITE to permit.
        QpType::Uc => QpAttr {
            access: Some(access & (Access::LOCAL_WRITE | Access::REMOTE_WRITE)),
            ..attr
        },
        _ => QpAttr {
            access: Some(access),
            ..attr
        },
    }
}

/// To RTR.
pub fn to_rtr(qp_type: QpType, target: &Target) -> QpAttr {
    let ready = QpAttr {
        state: Some(QpState::Rtr),
        ..QpAttr::default()
    };
    let connected = QpAttr {
        av: Some(address_vector(target.gid)),
        path_mtu: Some(target.path_mtu),
        dest_qpn: Some(target.qpn),
        rq_psn: Some(target.psn),
        ..ready
    };
    match qp_type {
        QpType::Ud => ready,
        QpType::Uc | QpType::XrcInitiator => connected,
        _ => QpAttr {
            max_dest_rd_atomic: Some(RD_ATOMIC),
            min_rnr_timer: Some(MIN_RNR_TIMER_CODE),
            ..connected
        },
    }
}

/// To RTS.
pub fn to_rts(qp_type: QpType, psn: u32) -> QpAttr {
    let sending = QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(psn),
        ..QpAttr::default()
    };
    match qp_type {
        QpType::Uc | QpType::Ud => sending,
        QpType::XrcTarget => QpAttr {
            timeout: Some(TIMEOUT_CODE),
            ..sending
        },
        _ => QpAttr {
            timeout: Some(TIMEOUT_CODE),
            retry_cnt: Some(RETRY_COUNT),
            rnr_retry: Some(RNR_RETRY_FOREVER),
            max_rd_atomic: Some(RD_ATOMIC),
            ..sending
        },
    }
}

/// The way to a peer.
pub fn address_vector(gid: Gid) -> AddressVector {
    AddressVector {
        dgid: Some(gid),
        port: 1,
        ..AddressVector::default()
    }
}
