//! The verbs of an id.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use roce_wire::cm::ip::{IP_CM_LEN, IpCm};
use roce_wire::cm::{
    PathInfo, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, TransportService,
};
use roce_wire::{Psn, Qpn};
use softroce_cm::{Connect, PACKET_LIFETIME, Peer, Refuse, ack_timeout};
use softroce_engine::Time;
use verbs_api::{
    CmEventKind, CmPortSpace, ConnectionParameters, DatagramPeer, Error, ErrorKind, Gid, QpAttr, QpState,
    QpType, QueuePair, Result,
};

use super::card::RD_ATOMIC_MAX;
use super::channel::Queued;
use super::id::{BoundQp, HeldPort, IdInner, Phase};
use super::link::{HOP_LIMIT, Link, QKEY, flow_label};
use super::ports::Hold;
use super::{Cm, CmId, route};
use crate::card::Card;
use crate::context::{Context, ContextInner};
use crate::qp::Qp;

/// Requests that may wait when the program leaves it open.
const BACKLOG_DEFAULT: u32 = 1024;
/// Tries to find a port that is free on several devices.
const PORT_TRIES: u32 = 64;
/// The default partition.
const PKEY: u16 = 0xffff;
/// What a LID field holds beyond one hop.
const NO_LID: u16 = 0xffff;
/// The ACK delay of softroce devices.
const ACK_DELAY: u8 = 15;
/// Queue pair number of groups.
const GROUP_QPN: u32 = 0xff_ffff;
/// EADDRNOTAVAIL.
const NOT_HERE: ErrorKind = ErrorKind::System(99);

impl verbs_api::CmId for CmId {
    type M = Cm;

    fn set_cookie(&self, cookie: u64) {
        self.inner.set_cookie(cookie);
    }

    fn port_space(&self) -> CmPortSpace {
        self.inner.space
    }

    /// EADDRINUSE; EADDRNOTAVAIL: no device has the address; EINVAL: bound already.
    fn bind_addr(&self, local: SocketAddr) -> Result<()> {
        self.expect_phase(&[Phase::Idle], "bind")?;
        let contexts = self.contexts_for(local.ip())?;
        let options = self.inner.lock().options;
        let hold = if options.reuse_address {
            Hold::Shared
        } else {
            Hold::Alone
        };
        let port = self.hold_on_all(&contexts, local.port(), hold)?;
        let service = ServiceId::of_port(self.inner.protocol(), port);
        let mut state = self.inner.lock();
        state.ports = contexts
            .iter()
            .map(|context| HeldPort {
                context: context.clone(),
                service,
                is_listening: false,
            })
            .collect();
        state.local = Some(SocketAddr::new(local.ip(), port));
        if !local.ip().is_unspecified() {
            state.device = contexts.into_iter().next();
        }
        state.phase = Phase::Bound;
        Ok(())
    }

    /// An id that is not bound is bound to any port of all devices first. EADDRINUSE: another id that shares the port
    /// listens.
    fn listen(&self, backlog: u32) -> Result<()> {
        if self.inner.lock().phase == Phase::Idle {
            self.bind_addr(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        self.expect_phase(&[Phase::Bound], "listen")?;
        let backlog = if backlog == 0 { BACKLOG_DEFAULT } else { backlog };
        let ports = self.inner.lock().ports.clone();
        for (position, port) in ports.iter().enumerate() {
            let listens = port
                .context
                .device
                .verb(|card, _| card.listen(port.service, &self.inner, backlog));
            if let Err(error) = listens {
                self.listen_no_more(&ports[..position]);
                return Err(error);
            }
            if let Some(held) = self.inner.lock().ports.get_mut(position) {
                held.is_listening = true;
            }
        }
        self.inner.lock().phase = Phase::Listening;
        Ok(())
    }

    /// The answer is an event, *AddrResolved* or *AddrError*; no time passes.
    fn resolve_addr(&self, local: Option<SocketAddr>, remote: SocketAddr, _timeout: Duration) -> Result<()> {
        self.expect_phase(&[Phase::Idle, Phase::Bound], "resolve an address")?;
        if let Some(local) = local
            && self.inner.lock().phase == Phase::Idle
            && (local.port() != 0 || !local.ip().is_unspecified())
        {
            self.bind_addr(local)?;
        }
        match self.resolve(remote) {
            Ok(()) => self.inner.tell(CmEventKind::AddrResolved, 0),
            Err(error) if matches!(error.kind(), ErrorKind::System(113)) => {
                tracing::info!(%error, %remote, "an address does not resolve");
                self.inner.tell(CmEventKind::AddrError, -error.errno());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn resolve_route(&self, _timeout: Duration) -> Result<()> {
        self.expect_phase(&[Phase::AddrResolved], "resolve a route")?;
        self.inner.lock().phase = Phase::RouteResolved;
        self.inner.tell(CmEventKind::RouteResolved, 0);
        Ok(())
    }

    fn context(&self) -> Option<Context> {
        self.inner
            .lock()
            .device
            .as_ref()
            .map(|inner| Context { inner: inner.clone() })
    }

    fn device_name(&self) -> Option<String> {
        self.inner
            .lock()
            .device
            .as_ref()
            .map(|inner| inner.device.name.clone())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.lock().local
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.lock().peer
    }

    /// EINVAL: the queue pair is of another device, or there is one already, or its type is not the port space's.
    fn bind_qp(&self, qp: &Qp) -> Result<()> {
        let device = self.inner.device()?;
        if !Arc::ptr_eq(&device.device, qp.device()) {
            return Err(Error::invalid("the queue pair is of another device than the id"));
        }
        let is_datagram = matches!(qp.qp_type(), QpType::Ud | QpType::Gsi);
        if is_datagram != (self.inner.space == CmPortSpace::Udp) {
            return Err(Error::invalid(format!(
                "a queue pair of type {:?} is not for the port space {:?}",
                qp.qp_type(),
                self.inner.space
            )));
        }
        if self.inner.lock().qp.is_some() {
            return Err(Error::invalid("the id has a queue pair already"));
        }
        let link = self.inner.lock().link;
        device.device.verb(|card, now| {
            let states: &[QpState] = match is_datagram {
                true => &[QpState::Init, QpState::Rtr, QpState::Rts],
                false => &[QpState::Init],
            };
            for state in states {
                card.engine
                    .modify_qp(now, qp.qpn(), &link.attr(qp.qp_type(), *state)?)?;
            }
            Ok(())
        })?;
        self.inner.lock().qp = Some(BoundQp {
            qpn: qp.qpn(),
            qp_type: qp.qp_type(),
            has_srq: qp.has_srq(),
            shared: qp.shared().clone(),
        });
        Ok(())
    }

    fn unbind_qp(&self) {
        self.inner.lock().qp = None;
    }

    /// EINVAL for RTR and RTS before the peer has said what they need, and for states that the manager has no part in.
    fn qp_attr(&self, state: QpState) -> Result<QpAttr> {
        self.inner.device()?;
        let inner = self.inner.lock();
        let qp_type = match inner.qp.as_ref().map(|qp| qp.qp_type) {
            Some(qp_type) => qp_type,
            None if self.inner.space == CmPortSpace::Udp => QpType::Ud,
            None => QpType::Rc,
        };
        let needs_peer = matches!(state, QpState::Rtr | QpState::Rts) && qp_type != QpType::Ud;
        if needs_peer
            && !matches!(
                inner.phase,
                Phase::Requested | Phase::Replied | Phase::Connecting | Phase::Connected
            )
        {
            return Err(Error::invalid(
                "the peer's part of the attributes is not known yet",
            ));
        }
        inner.link.attr(qp_type, state)
    }

    fn connect(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
        self.expect_phase(&[Phase::RouteResolved], "connect")?;
        match self.inner.space {
            CmPortSpace::Udp => self.ask_for_datagrams(parameters),
            CmPortSpace::Tcp | CmPortSpace::Ib => self.ask_for_connection(parameters),
        }
    }

    fn accept(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
        let phase = self.inner.lock().phase;
        match (phase, self.inner.space) {
            (Phase::Replied, _) => {
                let private_data = parameters.map_or(&[][..], |parameters| parameters.private_data);
                self.command(|card, now, comm_id| card.cm.agent.ready(now, comm_id, private_data))?;
                self.inner.lock().phase = Phase::Connected;
                Ok(())
            }
            (Phase::Requested, CmPortSpace::Udp) => self.answer_datagrams(parameters),
            (Phase::Requested, _) => self.reply(parameters),
            _ => Err(self.not_now("accept")),
        }
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.expect_phase(&[Phase::Requested, Phase::Replied], "reject")?;
        if self.inner.space == CmPortSpace::Udp {
            let rep = SidrRep {
                status: SidrStatus::REJECTED,
                private_data: field(private_data, 0)?,
                ..SidrRep::default()
            };
            self.command(|card, now, comm_id| card.cm.agent.answer(now, comm_id, rep))?;
        } else {
            let refuse = Refuse {
                reason: RejectReason::CONSUMER,
                info: &[],
                private_data,
            };
            self.command(|card, now, comm_id| card.cm.agent.reject(now, comm_id, &refuse))?;
        }
        self.inner.lock().phase = Phase::Ended;
        Ok(())
    }

    fn established(&self) -> Result<()> {
        self.command(|card, now, comm_id| card.cm.agent.establish(now, comm_id))
    }

    /// The queue pair, if bound, goes to ERR. EINVAL: there never was a connection.
    fn disconnect(&self) -> Result<()> {
        let (qp, link) = {
            let state = self.inner.lock();
            (state.qp.clone(), state.link)
        };
        if let Some(qp) = qp {
            let device = self.inner.device()?;
            device.device.verb(|card, now| {
                // The peer still waits for acknowledgements of what was received here; in ERR nobody sends them.
                card.flush(now, &device.device.pace);
                card.engine
                    .modify_qp(now, qp.qpn, &link.attr(qp.qp_type, QpState::Err)?)
            })?;
        }
        if self.inner.lock().phase == Phase::Ended {
            return Ok(());
        }
        self.command(|card, now, comm_id| card.cm.agent.disconnect(now, comm_id, &[]))
    }

    /// The bound queue pair, if there is one, is attached. The answer is an event, *MulticastJoin*, that says where to send
    /// to. RoCE has no subnet administration: the group is the address itself.
    fn join_multicast(&self, group: SocketAddr, cookie: u64) -> Result<()> {
        let device = self.inner.device()?;
        if self.inner.space != CmPortSpace::Udp {
            return Err(Error::invalid("multicast groups are of the UDP port space"));
        }
        if !group.ip().is_multicast() {
            return Err(Error::invalid(format!("{} is no multicast address", group.ip())));
        }
        let gid = Gid::from(group.ip());
        let qp = self.inner.lock().qp.clone();
        if let Some(qp) = qp {
            qp.shared.attach(&device.device, qp.qpn, gid)?;
            self.inner.lock().groups.push(gid);
        }
        let peer = DatagramPeer {
            av: verbs_api::AddressVector {
                dgid: Some(gid),
                hop_limit: HOP_LIMIT,
                traffic_class: self.inner.lock().options.type_of_service,
                port: crate::context::PORT,
                ..verbs_api::AddressVector::default()
            },
            qp_num: GROUP_QPN,
            qkey: QKEY,
        };
        let event = Queued {
            datagram_peer: Some(peer),
            group_cookie: cookie,
            ..Queued::new(&self.inner, CmEventKind::MulticastJoin, 0)
        };
        let _ = self.inner.push(event);
        Ok(())
    }

    /// EADDRNOTAVAIL: not joined.
    fn leave_multicast(&self, group: SocketAddr) -> Result<()> {
        let device = self.inner.device()?;
        let gid = Gid::from(group.ip());
        let qp = {
            let mut state = self.inner.lock();
            let joined = state.groups.iter().position(|known| *known == gid);
            let Some(position) = joined else {
                return Err(Error::new(
                    NOT_HERE,
                    format!("the id has not joined {}", group.ip()),
                ));
            };
            state.groups.swap_remove(position);
            state.qp.clone()
        };
        match qp {
            Some(qp) => qp.shared.detach(&device.device, qp.qpn, gid),
            None => Ok(()),
        }
    }

    fn migrate(&self, to: &Cm) -> Result<()> {
        self.inner.migrate(&to.channel);
        Ok(())
    }

    fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        self.inner.lock().options.type_of_service = type_of_service;
        Ok(())
    }

    fn set_ack_timeout(&self, code: u8) -> Result<()> {
        if code > 31 {
            return Err(Error::invalid(format!(
                "an ACK timeout code is 0 to 31, not {code}"
            )));
        }
        self.inner.lock().options.ack_timeout = Some(code);
        Ok(())
    }

    /// EINVAL: bound already.
    fn set_reuse_address(&self, reuse: bool) -> Result<()> {
        self.expect_phase(&[Phase::Idle], "let an address be shared")?;
        self.inner.lock().options.reuse_address = reuse;
        Ok(())
    }

    /// EINVAL: bound already.
    fn set_only_own_family(&self, only: bool) -> Result<()> {
        self.expect_phase(&[Phase::Idle], "keep address families apart")?;
        self.inner.lock().options.only_own_family = only;
        Ok(())
    }
}

impl CmId {
    fn expect_phase(&self, allowed: &[Phase], what: &str) -> Result<()> {
        if allowed.contains(&self.inner.lock().phase) {
            return Ok(());
        }
        Err(self.not_now(what))
    }

    fn not_now(&self, what: &str) -> Error {
        Error::invalid(format!(
            "an id that is {:?} cannot {what}",
            self.inner.lock().phase
        ))
    }

    /// The devices that a local address stands for, opened.
    fn contexts_for(&self, local: IpAddr) -> Result<Vec<Arc<ContextInner>>> {
        let addresses = self.inner.provider.addresses()?;
        let both_families = local.is_ipv6() && !self.inner.lock().options.only_own_family;
        let is_meant = |address: &IpAddr| match local.is_unspecified() {
            true => both_families || address.is_ipv4() == local.is_ipv4(),
            false => *address == local,
        };
        let positions = (0..addresses.len()).filter(|position| is_meant(&addresses[*position]));
        let contexts: Vec<_> = positions
            .map(|position| self.inner.provider.shared_context(position))
            .collect::<Result<_>>()?;
        if contexts.is_empty() {
            return Err(Error::new(
                NOT_HERE,
                format!("no device has the address {local}; the devices are on {addresses:?}"),
            ));
        }
        Ok(contexts)
    }

    /// Hold the same port on all devices; `port` 0 is any that is free on all of them.
    fn hold_on_all(&self, contexts: &[Arc<ContextInner>], port: u16, hold: Hold) -> Result<u16> {
        let protocol = self.inner.protocol();
        let [first, others @ ..] = contexts else {
            return Err(Error::invalid("there is no device"));
        };
        for _ in 0..PORT_TRIES {
            let held = first.device.verb(|card, _| match port {
                0 => card.hold_any_port(protocol, hold),
                port => card
                    .hold_port(ServiceId::of_port(protocol, port), hold)
                    .map(|()| port),
            })?;
            let service = ServiceId::of_port(protocol, held);
            let on_others = others
                .iter()
                .map(|context| context.device.verb(|card, _| card.hold_port(service, hold)));
            let Some((position, error)) = on_others
                .enumerate()
                .find_map(|(position, result)| result.err().map(|error| (position, error)))
            else {
                return Ok(held);
            };
            for context in &contexts[..=position] {
                let _ = context.device.verb(|card, _| {
                    card.release_port(service, false);
                    Ok(())
                });
            }
            if port != 0 || error.kind() != ErrorKind::AddressInUse {
                return Err(error);
            }
        }
        Err(Error::new(
            ErrorKind::AddressInUse,
            "no port is free on all devices",
        ))
    }

    /// Undo listening on some devices.
    fn listen_no_more(&self, ports: &[HeldPort]) {
        for (position, port) in ports.iter().enumerate() {
            let _ = port.context.device.verb(|card, _| {
                card.cm.agent.unlisten(port.service);
                card.release_port(port.service, true);
                // Still bound.
                card.hold_port(port.service, Hold::Alone)
            });
            if let Some(held) = self.inner.lock().ports.get_mut(position) {
                held.is_listening = false;
            }
        }
    }

    fn resolve(&self, remote: SocketAddr) -> Result<()> {
        let addresses = self.inner.provider.addresses()?;
        let bound = self.inner.lock().device.clone();
        let (context, own) = match bound {
            Some(context) => {
                let own = IdInner::address_of(&context)
                    .ok_or_else(|| Error::invalid("the device has lost its address"))?;
                (context, own)
            }
            None => {
                let position = match remote.ip().is_unspecified() {
                    true => addresses.iter().position(|own| own.is_ipv4() == remote.is_ipv4()),
                    false => Some(route::device_for(&addresses, &remote)?),
                };
                let position = position
                    .ok_or_else(|| Error::invalid(format!("no device is of the family of {remote}")))?;
                (self.inner.provider.shared_context(position)?, addresses[position])
            }
        };
        let mut remote = remote;
        if remote.ip().is_unspecified() {
            remote.set_ip(own);
        }
        if own.is_ipv4() != remote.is_ipv4() {
            return Err(Error::invalid(format!(
                "from {own} there is no way to {remote}: two families"
            )));
        }
        let bound_port = self.inner.lock().local.map(|local| local.port());
        let port = match bound_port {
            Some(port) => port,
            None => {
                let protocol = self.inner.protocol();
                let port = context
                    .device
                    .verb(|card, _| card.hold_any_port(protocol, Hold::Name))?;
                self.inner.lock().ports.push(HeldPort {
                    context: context.clone(),
                    service: ServiceId::of_port(protocol, port),
                    is_listening: false,
                });
                port
            }
        };
        let mut state = self.inner.lock();
        state.device = Some(context);
        state.local = Some(SocketAddr::new(own, port));
        state.peer = Some(remote);
        state.phase = Phase::AddrResolved;
        Ok(())
    }

    /// Where the peer is, and what stands in front of private data.
    fn way(&self) -> Result<(Peer, IpCm, ServiceId)> {
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
        };
        let ip = IpCm {
            source: local,
            destination: remote.ip(),
        };
        Ok((peer, ip, ServiceId::of_port(self.inner.protocol(), remote.port())))
    }

    fn ask_for_connection(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
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

    fn ask_for_datagrams(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
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
    fn reply(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
        let (offer, mut link) = {
            let state = self.inner.lock();
            (state.offer, state.link)
        };
        let as_offered = ConnectionParameters {
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            flow_control: offer.flow_control,
            rnr_retry_count: offer.rnr_retry_count,
            ..ConnectionParameters::default()
        };
        let parameters = parameters.unwrap_or(&as_offered);
        let (qpn, qp_type, srq) = self.queue_pair(parameters)?;
        let private_data = field::<196>(parameters.private_data, 0)?;
        link.responder_resources = parameters.responder_resources.min(RD_ATOMIC_MAX);
        // The peer answers no more than it said.
        link.initiator_depth = parameters
            .initiator_depth
            .min(offer.initiator_depth)
            .min(RD_ATOMIC_MAX);
        let is_bound = self.inner.lock().qp.is_some();
        self.command(|card, now, comm_id| {
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
        })?;
        self.inner.lock().phase = Phase::Connecting;
        Ok(())
    }

    /// Answer about datagrams.
    fn answer_datagrams(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
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
        self.command(|card, now, comm_id| card.cm.agent.answer(now, comm_id, rep))?;
        self.inner.lock().phase = Phase::Connected;
        Ok(())
    }

    /// The queue pair to be connected: the bound one, or the one that the program names.
    fn queue_pair(&self, parameters: &ConnectionParameters<'_>) -> Result<(Qpn, QpType, bool)> {
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

    /// A command about the connection, and what follows from it.
    fn command(&self, f: impl FnOnce(&mut Card, Time, u32) -> Result<()>) -> Result<()> {
        let device = self.inner.device()?;
        device.device.verb(|card, now| {
            let comm_id = self.inner.lock().comm_id;
            let comm_id = comm_id.ok_or_else(|| self.not_now("do this: it has no connection"))?;
            f(card, now, comm_id)?;
            card.manage(now);
            Ok(())
        })
    }
}

/// Private data in its field, behind `start` bytes. EINVAL when it does not fit.
fn field<const N: usize>(private_data: &[u8], start: usize) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let room = N - start;
    if private_data.len() > room {
        return Err(Error::invalid(format!(
            "{} bytes of private data do not fit; there is room for {room}",
            private_data.len()
        )));
    }
    bytes[start..start + private_data.len()].copy_from_slice(private_data);
    Ok(bytes)
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
