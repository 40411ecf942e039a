//! The communication manager of a device, behind its gate: datagrams go in and out, events become those of ids.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use roce_wire::cm::{RejectReason, Rep, Req, ServiceId, SidrRep, SidrStatus};
use roce_wire::mad::class;
use roce_wire::{Psn, Qpn};
use softroce_cm::{Agent, Event, Happened, Peer, Reach, Refuse, Request, ack_timeout};
use softroce_engine::{SentMad, Time};
use verbs_api::{AddressVector, CmEventKind, DatagramPeer, Gid, Mtu, PeerParameters, QpState, Result};

use super::channel::Queued;
use super::explain;
use super::id::{IdInner, IdState, Phase};
use super::link::HOP_LIMIT;
use super::ports::{Hold, Ports};
use crate::card::Card;
use crate::context::{ContextInner, PORT};

/// Where the class stands in a management datagram.
const CLASS_AT: usize = 1;
/// ETIMEDOUT and EINVAL, as events have them.
const TIMED_OUT: i32 = -110;
const INVALID: i32 = -22;
/// READs and atomics that one queue pair may have outstanding.
pub(super) const RD_ATOMIC_MAX: u8 = 128;

/// See the module's documentation.
pub(crate) struct CmCard {
    pub(crate) agent: Agent,
    /// Ids that have a part in something, by their numbers.
    ids: HashMap<u64, Arc<IdInner>>,
    pub(super) ports: Ports,
}

impl CmCard {
    pub(crate) fn new(seed: u64, prefix: u8, ca_guid: u64) -> Self {
        CmCard {
            agent: Agent::new(seed, prefix, ca_guid),
            ids: HashMap::new(),
            ports: Ports::default(),
        }
    }

    /// The id wants to hear of its connection, and of the device.
    pub(super) fn know(&mut self, id: &Arc<IdInner>) {
        self.ids.insert(id.number, id.clone());
    }

    /// The ids, in the order in which they were made.
    pub(super) fn known(&self) -> Vec<&Arc<IdInner>> {
        let mut ids: Vec<_> = self.ids.values().collect();
        ids.sort_unstable_by_key(|id| id.number);
        ids
    }

    /// It does not any more. What comes back must be dropped outside the gate.
    #[must_use = "it must be dropped outside the gate"]
    pub(super) fn forget(&mut self, number: u64) -> Option<Arc<IdInner>> {
        self.ids.remove(&number)
    }
}

impl Card {
    /// Take in management datagrams that have arrived, run due timers, and put what follows on its way. True when there
    /// was something.
    pub(crate) fn manage(&mut self, now: Time) -> bool {
        let mut acted = false;
        while let Some(mad) = self.engine.poll_mad() {
            acted = true;
            // Of other classes there is nobody: requests for attributes get no answer.
            if mad.mad[CLASS_AT] == class::COMMUNICATION {
                let peer = Peer {
                    own: mad.dst,
                    address: mad.src,
                    qpn: mad.source_qpn.value(),
                    traffic_class: mad.traffic_class,
                    hop_limit: 0,
                    reach: Reach::Network,
                };
                self.cm.agent.handle_mad(now, &peer, &mad.mad);
            }
        }
        if self
            .cm
            .agent
            .poll_timeout()
            .is_some_and(|deadline| deadline <= now)
        {
            acted = true;
            self.cm.agent.handle_timeout(now);
        }
        while let Some(event) = self.cm.agent.poll_event() {
            acted = true;
            self.happened(now, event);
        }
        while let Some(out) = self.cm.agent.poll_transmit() {
            self.engine.send_mad(SentMad {
                src: out.src,
                dst: out.dst,
                traffic_class: out.traffic_class,
                hop_limit: out.hop_limit,
                dest_qpn: Qpn::new(out.dest_qpn).unwrap_or(Qpn::GSI),
                mad: out.mad,
            });
        }
        acted
    }

    /// The process ends: all connections do. What is lost of that is not sent again. True when there were any.
    pub(crate) fn part_with_peers(&mut self, now: Time) -> bool {
        let was_connected = self.cm.agent.connection_count() > 0;
        self.cm.agent.leave(now);
        self.manage(now);
        was_connected
    }

    /// The process ends. What it has just sent to another on its own address may lie in its own socket, and would end
    /// with it.
    pub(crate) fn pass_on_the_rest(&mut self) {
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            self.fabric.recv(&mut |_, _| {});
        }
    }

    /// When the card next wants attention even if nothing arrives.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let (engine, agent) = (self.engine.poll_timeout(), self.cm.agent.poll_timeout());
        match (engine, agent) {
            (Some(engine), Some(agent)) => Some(engine.min(agent)),
            (either, None) | (None, either) => either,
        }
    }

    pub(super) fn hold_port(&mut self, service: ServiceId, hold: Hold) -> Result<()> {
        self.cm.ports.hold(&mut *self.fabric, service, hold)
    }

    pub(super) fn hold_any_port(&mut self, protocol: u8, hold: Hold) -> Result<u16> {
        let start = self.cm.agent.random();
        self.cm.ports.hold_any(&mut *self.fabric, protocol, start, hold)
    }

    pub(super) fn listen(&mut self, service: ServiceId, id: &Arc<IdInner>, backlog: u32) -> Result<()> {
        self.cm.ports.listen(&mut *self.fabric, service)?;
        self.cm.agent.listen(service, id.number, backlog)?;
        self.cm.know(id);
        Ok(())
    }

    pub(super) fn release_port(&mut self, service: ServiceId, was_listening: bool) {
        self.cm.ports.release(&mut *self.fabric, service, was_listening);
    }

    /// Something happened to a connection.
    fn happened(&mut self, now: Time, event: Event) {
        let Some(id) = self.cm.ids.get(&event.owner).cloned() else {
            return self.cm.agent.destroy(now, event.id);
        };
        let (kind, status, private_data) = match event.happened {
            Happened::Requested(request) => return self.requested(now, &id, event.id, *request),
            Happened::Replied(rep) => return self.replied(now, &id, event.id, &rep),
            Happened::Resolved(rep) => return resolved(&id, &rep),
            Happened::Established(private_data) => {
                id.lock().phase = Phase::Connected;
                explain::note_connected(&id);
                (CmEventKind::Established, 0, private_data)
            }
            Happened::Rejected {
                of_message,
                reason,
                private_data,
            } => {
                explain::note_rejection(&id, of_message, reason);
                self.let_queue_pair_fail(now, &id);
                end_connection(&mut id.lock());
                (CmEventKind::Rejected, reason.0.into(), private_data)
            }
            Happened::Unreachable(handshake) => {
                explain::note_unreachable(&id, &handshake, self);
                end_connection(&mut id.lock());
                (CmEventKind::Unreachable, TIMED_OUT, Vec::new())
            }
            Happened::Disconnected(private_data) => (CmEventKind::Disconnected, 0, private_data),
            Happened::TimewaitExit => {
                end_connection(&mut id.lock());
                (CmEventKind::TimewaitExit, 0, Vec::new())
            }
        };
        let event = Queued {
            private_data,
            ..Queued::new(&id, kind, status)
        };
        let _ = id.push(event);
    }

    /// A peer asks a listener: a new id for it.
    fn requested(&mut self, now: Time, listener: &Arc<IdInner>, comm_id: u32, request: Request) {
        let context = self.context_of(listener, request.service);
        let (Some(context), Some(ip)) = (context, request.ip) else {
            return self.cm.agent.destroy(now, comm_id);
        };
        if let Some(req) = &request.req
            && let Err(info) = self.check_mtu(req)
        {
            let refuse = Refuse {
                reason: RejectReason::INVALID_MTU,
                info: &info,
                private_data: &[],
            };
            let _ = self.cm.agent.reject(now, comm_id, &refuse);
            return;
        }
        listener.requests.fetch_add(1, Ordering::Relaxed);
        let id = listener.child();
        {
            let mut state = id.lock();
            state.phase = Phase::Requested;
            state.device = Some(context);
            let port = request.service.port().map_or(0, |(_, port)| port);
            state.local = Some(SocketAddr::new(request.own, port));
            state.peer = Some(ip.source);
            state.comm_id = Some(comm_id);
            state.link.own_psn = Psn::new(self.cm.agent.random() as u32);
            if let Some(req) = &request.req {
                state.offer = offer_of_req(req);
                learn_from_req(&mut state, req);
            }
        }
        self.cm.know(&id);
        self.cm.agent.adopt(comm_id, id.number);
        let event = Queued {
            peer: id.lock().offer,
            private_data: request.private_data,
            request: Some(id.clone()),
            ..Queued::new(listener, CmEventKind::ConnectRequest, 0)
        };
        if listener.push(event).is_err() {
            self.cm.agent.destroy(now, comm_id);
            // The listener owns the context too, so this is not the last of it.
            drop(self.cm.forget(id.number));
        }
    }

    /// Something has happened to the device itself: tell the ids that are bound to it, by address or resolution. One on all
    /// addresses is bound to none.
    pub(crate) fn tell_ids(&self, kind: CmEventKind) {
        for id in self.cm.known() {
            let is_bound = id.lock().device.is_some();
            if is_bound {
                id.tell(kind, 0);
            }
        }
    }

    /// The context through which a listener listens on this device.
    fn context_of(&self, listener: &IdInner, service: ServiceId) -> Option<Arc<ContextInner>> {
        let own = self.engine.gid_table().first().map(|entry| entry.gid);
        let state = listener.lock();
        let is_here = |context: &Arc<ContextInner>| own.is_some() && context.gid() == own;
        let mut ports = state.ports.iter().filter(|port| port.service == service);
        ports
            .find(|port| is_here(&port.context))
            .map(|port| port.context.clone())
    }

    /// The additional information of a refusal when the path MTU is too large for the port.
    fn check_mtu(&self, req: &Req) -> Result<(), [u8; 1]> {
        let most = self.engine.port_attr().active_mtu as u8;
        match Mtu::from_code(req.path_mtu.into()) {
            Some(mtu) if mtu as u8 <= most => Ok(()),
            _ => Err([most << 4]),
        }
    }

    /// The peer has replied to our request.
    fn replied(&mut self, now: Time, id: &Arc<IdInner>, comm_id: u32, rep: &Rep) {
        let (link, qp, offer) = {
            let mut state = id.lock();
            state.offer = PeerParameters {
                responder_resources: rep.initiator_depth,
                initiator_depth: rep.responder_resources,
                flow_control: rep.flow_control,
                retry_count: 0,
                rnr_retry_count: rep.rnr_retry_count,
                srq: rep.srq,
                qp_num: rep.local_qpn.value(),
            };
            let offer = state.offer;
            let timeout = state.options.ack_timeout;
            let link = &mut state.link;
            link.peer_qpn = rep.local_qpn;
            link.peer_psn = rep.starting_psn;
            link.responder_resources = rep.initiator_depth.min(RD_ATOMIC_MAX);
            link.initiator_depth = rep.responder_resources.min(RD_ATOMIC_MAX);
            link.rnr_retry_count = rep.rnr_retry_count;
            link.ack_timeout =
                timeout.unwrap_or_else(|| ack_timeout(link.packet_lifetime, rep.target_ack_delay));
            let link = *link;
            state.phase = Phase::Replied;
            (link, state.qp.clone(), offer)
        };
        let mut kind = CmEventKind::ConnectResponse;
        if let Some(qp) = qp {
            let up = link
                .bring_up(self, now, qp.qpn, qp.qp_type)
                .and_then(|()| self.cm.agent.ready(now, comm_id, &[]));
            if let Err(error) = up {
                tracing::warn!(%error, qpn = qp.qpn, "a queue pair cannot be connected");
                explain::note_no_queue_pair(id, qp.qpn, &error);
                self.cm.agent.destroy(now, comm_id);
                end_connection(&mut id.lock());
                return id.tell(CmEventKind::ConnectError, INVALID);
            }
            id.lock().phase = Phase::Connected;
            explain::note_connected(id);
            kind = CmEventKind::Established;
        }
        let event = Queued {
            peer: offer,
            private_data: rep.private_data.to_vec(),
            ..Queued::new(id, kind, 0)
        };
        let _ = id.push(event);
    }

    /// The connection will not come: what was posted comes back.
    fn let_queue_pair_fail(&mut self, now: Time, id: &Arc<IdInner>) {
        let (qp, link) = {
            let state = id.lock();
            (state.qp.clone(), state.link)
        };
        if let Some(qp) = qp
            && let Ok(attr) = link.attr(qp.qp_type, QpState::Err)
        {
            let _ = self.engine.modify_qp(now, qp.qpn, &attr);
        }
    }
}

/// The agent knows the connection no more.
fn end_connection(state: &mut IdState) {
    state.comm_id = None;
    state.phase = Phase::Ended;
}

fn offer_of_req(req: &Req) -> PeerParameters {
    PeerParameters {
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
        qp_num: req.local_qpn.value(),
    }
}

fn learn_from_req(state: &mut IdState, req: &Req) {
    let timeout = state.options.ack_timeout;
    let link = &mut state.link;
    link.peer = Some(Gid(req.primary.local_gid));
    link.peer_psn = req.starting_psn;
    link.peer_qpn = req.local_qpn;
    link.mtu = Mtu::from_code(req.path_mtu.into()).unwrap_or(Mtu::Mtu1024);
    link.flow_label = req.primary.flow_label;
    link.type_of_service = req.primary.traffic_class;
    link.responder_resources = req.initiator_depth.min(RD_ATOMIC_MAX);
    link.initiator_depth = req.responder_resources.min(RD_ATOMIC_MAX);
    link.retry_count = req.retry_count;
    link.rnr_retry_count = req.rnr_retry_count;
    link.ack_timeout = timeout.unwrap_or(req.primary.ack_timeout);
}

/// The peer's answer about a service of datagrams.
fn resolved(id: &Arc<IdInner>, rep: &SidrRep) {
    let peer = {
        let mut state = id.lock();
        state.comm_id = None;
        let is_valid = rep.status == SidrStatus::VALID;
        state.phase = if is_valid { Phase::Connected } else { Phase::Ended };
        let av = AddressVector {
            dgid: state.peer.map(|peer| Gid::from(peer.ip())),
            hop_limit: HOP_LIMIT,
            traffic_class: state.options.type_of_service,
            port: PORT,
            ..AddressVector::default()
        };
        is_valid.then_some(DatagramPeer {
            av,
            qp_num: rep.qpn.value(),
            qkey: rep.qkey,
        })
    };
    match peer {
        Some(_) => explain::note_connected(id),
        None => explain::note_no_service(id, rep.status),
    }
    let (kind, status) = match peer {
        Some(_) => (CmEventKind::Established, 0),
        None => (CmEventKind::Unreachable, i32::from(rep.status.0)),
    };
    let event = Queued {
        datagram_peer: peer,
        private_data: rep.private_data.to_vec(),
        ..Queued::new(id, kind, status)
    };
    let _ = id.push(event);
}
