//! Requests and replies.

use roce_wire::cm::ip::{IP_CM_LEN, IpCm};
use roce_wire::cm::{PathInfo, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, TransportService};
use roce_wire::{Psn, Qpn};
use softroce_cm::{Connect, PACKET_LIFETIME, Peer, Reach, ack_timeout};
use verbs_api::{ConnectionParameters, Error, Gid, QpType, Result};

use super::super::CmId;
use super::super::card::RD_ATOMIC_MAX;
use super::super::id::Phase;
use super::super::link::{HOP_LIMIT, Link, QKEY, flow_label};
use super::field;
use crate::card::Card;

/// The default partition.
const PKEY: u16 = 0xffff;
/// What a LID field holds beyond one hop.
const NO_LID: u16 = 0xffff;
/// The ACK delay of softroce devices.
const ACK_DELAY: u8 = 15;

/// The same with its reach.
fn at_its_reach(card: &Card, peer: Peer) -> Peer {
    let is_here = card.fabric.is_on_this_machine(peer.address);
    let reach = if is_here { Reach::Machine } else { Reach::Network };
    Peer { reach, ..peer }
}

impl CmId {
    /// Where the peer is, and what stands in front of private data.
    pub(super) fn way(&self) -> Result<(Peer, IpCm, ServiceId)> {
        let state = self.inner.lock();
        let (Some(local), Some(remote)) = (state.local, state.peer) else {
            return Err(Error::invalid("the address is not resolved"));
        };
        let peer = Peer {
            own: local.ip(),
            address: remote.ip(),
            qpn: Qpn::GSI.value(),
            traffic_class: state.options.type_of_service,
            hop_limit: HOP_LIMIT,
            reach: Reach::Network,
        };
        let ip = IpCm {
            source: local,
            destination: remote.ip(),
        };
        Ok((peer, ip, ServiceId::of_port(self.inner.protocol(), remote.port())))
    }

    pub(super) fn ask_for_connection(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
        let (peer, ip, service) = self.way()?;
        let (qpn, qp_type, srq) = self.queue_pair(parameters)?;
        let mut private_data = field::<92>(parameters.private_data, IP_CM_LEN)?;
        private_data[..IP_CM_LEN].copy_from_slice(&ip.to_bytes());
        let device = self.inner.device()?;
        let options = self.inner.lock().options;
        device.device.verb(|card, now| {
            let packet_lifetime = options
                .ack_timeout
                .map_or(PACKET_LIFETIME, |code| code.saturating_sub(1));
            let link = Link {
                peer: Some(Gid::from(peer.address)),
                own_psn: Psn::new(card.cm.agent.random() as u32),
                mtu: card.engine.port_attr().active_mtu,
                flow_label: flow_label(qpn),
                type_of_service: options.type_of_service,
                responder_resources: parameters.responder_resources.min(RD_ATOMIC_MAX),
                initiator_depth: parameters.initiator_depth.min(RD_ATOMIC_MAX),
                retry_count: parameters.retry_count.min(7),
                rnr_retry_count: parameters.rnr_retry_count.min(7),
                packet_lifetime,
                ..Link::default()
            };
            let req = Req {
                private_data,
                primary: path_of(&peer, &link),
                ..req_of(&link, service, qpn, qp_type)
            };
            let req = Req {
                flow_control: parameters.flow_control,
                srq,
                ..req
            };
            let owner = self.inner.number;
            let peer = at_its_reach(card, peer);
            let comm_id = card.cm.agent.connect(now, Connect { peer, owner, req })?;
            card.cm.know(&self.inner);
            {
                let mut state = self.inner.lock();
                state.link = link;
                state.comm_id = Some(comm_id);
                state.phase = Phase::Connecting;
            }
            card.manage(now);
            Ok(())
        })
    }

    pub(super) fn ask_for_datagrams(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
        let (peer, ip, service_id) = self.way()?;
        let mut private_data = field::<216>(parameters.private_data, IP_CM_LEN)?;
        private_data[..IP_CM_LEN].copy_from_slice(&ip.to_bytes());
        let req = SidrReq {
            pkey: PKEY,
            service_id,
            private_data,
            ..SidrReq::default()
        };
        self.inner.device()?.device.verb(|card, now| {
            let peer = at_its_reach(card, peer);
            let comm_id = card.cm.agent.resolve(now, peer, self.inner.number, req)?;
            card.cm.know(&self.inner);
            {
                let mut state = self.inner.lock();
                state.comm_id = Some(comm_id);
                state.phase = Phase::Connecting;
            }
            card.manage(now);
            Ok(())
        })
    }

    /// Reply to a request.
    pub(super) fn reply(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
        let (offer, mut link) = {
            let state = self.inner.lock();
            (state.offer, state.link)
        };
        let as_offered = ConnectionParameters::as_offered(&offer);
        let parameters = parameters.unwrap_or(&as_offered);
        // Set since the request came, perhaps.
        if let Some(timeout) = self.inner.lock().options.ack_timeout {
            link.ack_timeout = timeout;
        }
        let (qpn, qp_type, srq) = self.queue_pair(parameters)?;
        let private_data = field::<196>(parameters.private_data, 0)?;
        link.responder_resources = parameters.responder_resources.min(RD_ATOMIC_MAX);
        // The peer answers no more than it said.
        link.initiator_depth = parameters
            .initiator_depth
            .min(offer.initiator_depth)
            .min(RD_ATOMIC_MAX);
        let is_bound = self.inner.lock().qp.is_some();
        self.command_to(Phase::Connecting, |card, now, comm_id| {
            if is_bound {
                link.bring_up(card, now, qpn.value(), qp_type)?;
            }
            self.inner.lock().link = link;
            let rep = Rep {
                local_qpn: qpn,
                starting_psn: link.own_psn,
                responder_resources: link.responder_resources,
                initiator_depth: link.initiator_depth,
                target_ack_delay: ACK_DELAY,
                flow_control: parameters.flow_control,
                rnr_retry_count: parameters.rnr_retry_count.min(7),
                srq,
                private_data,
                ..Rep::default()
            };
            card.cm.agent.reply(now, comm_id, rep)
        })
    }

    /// Answer about datagrams.
    pub(super) fn answer_datagrams(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
        let nothing = ConnectionParameters::default();
        let parameters = parameters.unwrap_or(&nothing);
        let (qpn, _, _) = self.queue_pair(parameters)?;
        let rep = SidrRep {
            status: SidrStatus::VALID,
            qpn,
            qkey: parameters.qkey.unwrap_or(QKEY),
            private_data: field(parameters.private_data, 0)?,
            ..SidrRep::default()
        };
        self.command_to(Phase::Connected, |card, now, comm_id| {
            card.cm.agent.answer(now, comm_id, rep)
        })
    }

    /// The queue pair to be connected: the bound one, or the one that the program names.
    pub(super) fn queue_pair(&self, parameters: &ConnectionParameters<'_>) -> Result<(Qpn, QpType, bool)> {
        let bound = self.inner.lock().qp.clone();
        let (number, qp_type, srq) = match (bound, parameters.qp) {
            (Some(qp), _) => (qp.qpn, qp.qp_type, qp.has_srq),
            (None, Some((number, qp_type))) => (number, qp_type, parameters.srq),
            (None, None) => {
                return Err(Error::invalid(
                    "there is no queue pair to connect: bind one, or name one in the parameters",
                ));
            }
        };
        let qpn = Qpn::new(number)
            .ok_or_else(|| Error::invalid(format!("{number:#x} is no queue pair number (24 bits)")))?;
        Ok((qpn, qp_type, srq))
    }
}

fn path_of(peer: &Peer, link: &Link) -> PathInfo {
    PathInfo {
        local_lid: NO_LID,
        remote_lid: NO_LID,
        flow_label: link.flow_label,
        traffic_class: link.type_of_service,
        hop_limit: HOP_LIMIT,
        ack_timeout: ack_timeout(link.packet_lifetime, ACK_DELAY),
        local_gid: Gid::from(peer.own).0,
        remote_gid: Gid::from(peer.address).0,
        ..PathInfo::default()
    }
}

fn req_of(link: &Link, service_id: ServiceId, local_qpn: Qpn, qp_type: QpType) -> Req {
    let (transport, extended_transport) = match qp_type {
        QpType::Uc => (TransportService::UC, 0),
        QpType::XrcInitiator | QpType::XrcTarget => (TransportService::EXTENDED, 1),
        QpType::Rc | QpType::Ud | QpType::Gsi | QpType::RawPacket => (TransportService::RC, 0),
    };
    Req {
        service_id,
        local_qpn,
        responder_resources: link.responder_resources,
        initiator_depth: link.initiator_depth,
        transport,
        extended_transport,
        starting_psn: link.own_psn,
        retry_count: link.retry_count,
        pkey: PKEY,
        path_mtu: link.mtu as u8,
        rnr_retry_count: link.rnr_retry_count,
        ..Req::default()
    }
}
