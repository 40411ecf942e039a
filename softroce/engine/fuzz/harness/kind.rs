//! The queue pairs of the world: of what type they are, where they start, and what they need on the way.

use verbs_api::{AddressVector, AltPath, Gid, Mtu, QpAttr, QpState, QpType};

use super::world::{ALT_PEER_IP, PEER_IP, all_access};

/// The Q_Key of the datagram queue pairs.
pub const QKEY: u32 = 0x1234;

/// Where receives come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    Own,
    /// The shared receive queue.
    Shared,
    /// The shared receive queue of the XRC domain.
    Xrc,
    None,
}

#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub qp_type: QpType,
    pub start: QpState,
    pub receives: Receives,
}

const fn kind(qp_type: QpType, start: QpState, receives: Receives) -> Kind {
    Kind {
        qp_type,
        start,
        receives,
    }
}

/// All queue pairs, by their index.
pub const KINDS: [Kind; 16] = [
    kind(QpType::Rc, QpState::Reset, Receives::Own),
    kind(QpType::Rc, QpState::Init, Receives::Own),
    kind(QpType::Rc, QpState::Rtr, Receives::Own),
    kind(QpType::Rc, QpState::Rts, Receives::Own),
    kind(QpType::Rc, QpState::Rts, Receives::Own),
    kind(QpType::Rc, QpState::Sqd, Receives::Own),
    kind(QpType::Rc, QpState::Err, Receives::Own),
    kind(QpType::Rc, QpState::Rts, Receives::Shared),
    kind(QpType::Uc, QpState::Rts, Receives::Own),
    kind(QpType::Uc, QpState::Rtr, Receives::Shared),
    kind(QpType::Ud, QpState::Rts, Receives::Own),
    kind(QpType::Ud, QpState::Rts, Receives::Shared),
    kind(QpType::XrcInitiator, QpState::Rts, Receives::None),
    kind(QpType::XrcTarget, QpState::Rtr, Receives::Xrc),
    kind(QpType::XrcTarget, QpState::Rts, Receives::Xrc),
    kind(QpType::Gsi, QpState::Rts, Receives::Own),
];
/// Index of the one with the small completion queue.
pub const ON_SMALL_CQ: usize = 4;
/// Of the first ones, which are of reliable connections: more often than not one that is up.
pub const RC_VICTIMS: [usize; 16] = [3, 3, 3, 3, 3, 3, 2, 2, 4, 4, 5, 5, 0, 1, 6, 3];
/// All others.
pub const OTHER_VICTIMS: [usize; 9] = [7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Number of the queue pair that `index` talks to.
pub fn peer_qpn(index: usize) -> u32 {
    0x100 + index as u32
}

pub fn vector(peer: std::net::IpAddr, sgid_index: u8) -> AddressVector {
    AddressVector {
        dgid: Some(Gid::from(peer)),
        sgid_index,
        port: 1,
        ..AddressVector::default()
    }
}

pub fn alternate() -> AltPath {
    AltPath {
        av: vector(ALT_PEER_IP, 1),
        pkey_index: 0,
        timeout: 9,
    }
}

/// All that is needed on the way to a state from the one before it.
pub fn attributes(index: usize, state: QpState) -> QpAttr {
    let attr = QpAttr {
        state: Some(state),
        ..QpAttr::default()
    };
    let qp_type = KINDS[index].qp_type;
    let is_datagram = matches!(qp_type, QpType::Ud | QpType::Gsi);
    let sends_reliably = matches!(qp_type, QpType::Rc | QpType::XrcInitiator);
    let responds = matches!(qp_type, QpType::Rc | QpType::XrcTarget);
    match state {
        QpState::Init => QpAttr {
            pkey_index: Some(0),
            port: (qp_type != QpType::Gsi).then_some(1),
            access: (!is_datagram).then(all_access),
            qkey: is_datagram.then_some(QKEY),
            ..attr
        },
        QpState::Rtr if is_datagram => attr,
        QpState::Rtr => QpAttr {
            av: Some(vector(PEER_IP, 0)),
            path_mtu: Some(Mtu::Mtu256),
            dest_qpn: Some(peer_qpn(index)),
            rq_psn: Some(0xff_fff0),
            max_dest_rd_atomic: responds.then_some(2),
            min_rnr_timer: responds.then_some(1),
            ..attr
        },
        QpState::Rts => QpAttr {
            timeout: (sends_reliably || responds).then_some(10),
            retry_cnt: sends_reliably.then_some(2),
            rnr_retry: sends_reliably.then_some(2),
            sq_psn: Some(0xff_fff8),
            max_rd_atomic: sends_reliably.then_some(2),
            ..attr
        },
        QpState::Reset | QpState::Sqd | QpState::Sqe | QpState::Err => attr,
    }
}
