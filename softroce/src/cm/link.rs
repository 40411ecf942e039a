//! From what two sides told each other to the attributes of their queue pairs.

use roce_wire::source_port;
use roce_wire::{Psn, Qpn};
use softroce_cm::PACKET_LIFETIME;
use softroce_engine::Time;
use verbs_api::{Access, AddressVector, Error, Gid, Mtu, QpAttr, QpState, QpType, Result};

use crate::card::Card;
use crate::context::PORT;

/// The Q_Key of RDMA CM's datagrams.
pub(super) const QKEY: u32 = 0x0123_4567;
/// RNR NAK timer code of queue pairs that the manager brings up: 655 ms, as rdma_connect(3) says. A shorter one would end
/// the patience of programs that count on few retries (pyverbs: five) to outlast a peer that is late with its receives.
const MIN_RNR_TIMER: u8 = 0;
/// Hop limit of connections.
pub(super) const HOP_LIMIT: u8 = 64;

/// A connection as its two queue pairs see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) peer: Option<Gid>,
    /// Where the peer begins to send: announced by us.
    pub(super) own_psn: Psn,
    /// Where we begin to send: announced by the peer.
    pub(super) peer_psn: Psn,
    pub(super) peer_qpn: Qpn,
    pub(super) mtu: Mtu,
    pub(super) flow_label: u32,
    pub(super) type_of_service: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) ack_timeout: u8,
    pub(super) packet_lifetime: u8,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            peer: None,
            own_psn: Psn::default(),
            peer_psn: Psn::default(),
            peer_qpn: Qpn::default(),
            mtu: Mtu::Mtu1024,
            flow_label: 0,
            type_of_service: 0,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            ack_timeout: 0,
            packet_lifetime: PACKET_LIFETIME,
        }
    }
}

impl Link {
    /// What the queue pair needs for a state. EINVAL for states that the manager has no part in.
    pub(super) fn attr(&self, qp_type: QpType, state: QpState) -> Result<QpAttr> {
        let attr = QpAttr {
            state: Some(state),
            ..QpAttr::default()
        };
        let is_datagram = matches!(qp_type, QpType::Ud | QpType::Gsi);
        match state {
            QpState::Init if is_datagram => Ok(QpAttr {
                pkey_index: Some(0),
                port: Some(PORT),
                qkey: Some(QKEY),
                ..attr
            }),
            QpState::Init => Ok(QpAttr {
                pkey_index: Some(0),
                port: Some(PORT),
                access: Some(self.access()),
                ..attr
            }),
            QpState::Rtr if is_datagram => Ok(attr),
            QpState::Rtr => Ok(self.rtr(qp_type, attr)),
            QpState::Rts if is_datagram => Ok(QpAttr {
                sq_psn: Some(self.own_psn.value()),
                ..attr
            }),
            QpState::Rts => Ok(self.rts(qp_type, attr)),
            QpState::Err => Ok(attr),
            QpState::Reset | QpState::Sqd | QpState::Sqe => Err(Error::invalid(format!(
                "connection management does not bring queue pairs to {state:?}"
            ))),
        }
    }

    /// The peer may read only if it said that it would.
    fn access(&self) -> Access {
        match self.responder_resources {
            0 => Access::REMOTE_WRITE,
            _ => Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        }
    }

    fn rtr(&self, qp_type: QpType, attr: QpAttr) -> QpAttr {
        let answers = matches!(qp_type, QpType::Rc | QpType::XrcTarget);
        QpAttr {
            av: Some(AddressVector {
                dgid: self.peer,
                flow_label: self.flow_label,
                hop_limit: HOP_LIMIT,
                traffic_class: self.type_of_service,
                port: PORT,
                ..AddressVector::default()
            }),
            path_mtu: Some(self.mtu),
            dest_qpn: Some(self.peer_qpn.value()),
            rq_psn: Some(self.own_psn.value()),
            max_dest_rd_atomic: answers.then_some(self.responder_resources),
            min_rnr_timer: answers.then_some(MIN_RNR_TIMER),
            ..attr
        }
    }

    fn rts(&self, qp_type: QpType, attr: QpAttr) -> QpAttr {
        let asks = matches!(qp_type, QpType::Rc | QpType::XrcInitiator);
        QpAttr {
            sq_psn: Some(self.peer_psn.value()),
            timeout: (asks || qp_type == QpType::XrcTarget).then_some(self.ack_timeout),
            retry_cnt: asks.then_some(self.retry_count),
            rnr_retry: asks.then_some(self.rnr_retry_count),
            max_rd_atomic: asks.then_some(self.initiator_depth),
            ..attr
        }
    }

    /// Bring a queue pair from RESET or INIT to RTS.
    pub(super) fn bring_up(&self, card: &mut Card, now: Time, qpn: u32, qp_type: QpType) -> Result<()> {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            card.engine.modify_qp(now, qpn, &self.attr(qp_type, state)?)?;
        }
        Ok(())
    }
}

/// A flow label for a queue pair, from which the way through the network follows.
pub(super) fn flow_label(own: Qpn) -> u32 {
    source_port::flow_label(own, Qpn::GSI)
}
