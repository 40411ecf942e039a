//! Connection management message by message: what stands on the wire, and what comes again.

use std::time::Duration;

use roce_wire::cm::ip::IpCm;
use roce_wire::cm::{Message, MessageKind, PathInfo, ServiceId, TransportService};
use roce_wire::{Operation, Qpn};
use verbs_api::{CmEventKind, CmId, CmPortSpace, ConnectionManager, Gid, QpType, QueuePair};

use crate::case::Case;
use crate::connection::{CmEnd, address_of, offer};
use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Need, Passing, Side, Testbed};
use crate::{check, same};

pub(super) const NEEDS: &[Need] = &[Need::ConnectionManager, Need::Network];
/// How long to wait for what must not come.
pub(super) const WHILE: Duration = Duration::from_millis(20);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer("J2", "every field of a request is as RDMA CM wants it", &["CM-11"], fields).needing(NEEDS),
        Case::raw_peer(
            "J5",
            "each side begins to send at the PSN that the other has announced",
            &["CM-12"],
            starting_psns,
        )
        .needing(NEEDS),
        Case::raw_peer(
            "J8",
            "repeated messages: a request is one, a reply brings the last message again, a disconnection its answer",
            &["CM-9", "CM-13"],
            repeated,
        )
        .needing(NEEDS),
        Case::raw_peer("J10", "who is asked for patience waits so long before it repeats", &["CM-15"], patience)
            .needing(&[Need::ConnectionManager, Need::Network, Need::VirtualTime])
            .of_priority(2),
        Case::raw_peer(
            "J15",
            "a type of service and an ACK timeout show on the wire",
            &["CM-17"],
            options,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

/// The messages of one kind among those that have passed.
pub(super) fn of_kind(messages: &[(Passing, Message)], kind: MessageKind) -> Vec<&Message> {
    messages
        .iter()
        .map(|(_, message)| message)
        .filter(|message| message.kind() == kind)
        .collect()
}

/// The first message of a kind that passes.
pub(super) fn first<B: Testbed>(scene: &mut Scene<B>, kind: MessageKind) -> Result<Message, Failure> {
    scene.until(&format!("a {kind:?}"), |scene| {
        let messages = scene.cm_messages();
        Ok(of_kind(&messages, kind).first().map(|message| **message))
    })
}

fn fields<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, listener, left) = scene.meeting(QpType::Rc)?;
    let to = address_of(&listener)?;
    scene.cm_messages();
    left.id.connect(&offer(b"for the program"))?;
    let Message::Req(req) = first(scene, MessageKind::Req)? else {
        return Err(Failure::new("no REQ"));
    };
    same!(req.service_id, ServiceId::of_port(6, to.port()), "service ID");
    check!(
        req.local_comm_id != 0 && req.local_ca_guid != 0,
        "numbers of the requester"
    );
    same!(req.local_qpn.value(), left.qp.qpn(), "local QPN");
    same!(
        (req.responder_resources, req.initiator_depth),
        (1, 1),
        "resources"
    );
    same!(
        (req.remote_response_timeout, req.local_response_timeout),
        (20, 20),
        "response time-outs"
    );
    same!(
        (req.retry_count, req.rnr_retry_count, req.max_cm_retries),
        (7, 7, 15),
        "retries"
    );
    same!(req.transport, TransportService::RC, "transport");
    same!(
        (req.extended_transport, req.srq),
        (0, false),
        "extended transport and SRQ"
    );
    same!((req.pkey, req.local_qkey), (0xffff, 0), "P_Key and Q_Key");
    check!((1..=5).contains(&req.path_mtu), "path MTU code {}", req.path_mtu);
    let path = req.primary;
    same!(Gid(path.local_gid), Gid::from(parties[0].address), "local GID");
    same!(Gid(path.remote_gid), Gid::from(parties[1].address), "remote GID");
    check!(path.hop_limit > 1, "hop limit {}", path.hop_limit);
    same!(
        (path.local_lid, path.remote_lid, path.subnet_local),
        (0xffff, 0xffff, false),
        "LIDs of RoCE"
    );
    check!(
        path.ack_timeout >= 17,
        "local ACK timeout code {}",
        path.ack_timeout
    );
    same!(req.alternate, PathInfo::default(), "alternate path");
    let ip = IpCm::parse(&req.private_data).map_err(|error| Failure::new(error.to_string()))?;
    same!(
        Some(ip.source),
        left.id.local_addr(),
        "source in front of the private data"
    );
    same!(
        ip.destination,
        parties[1].address,
        "destination in front of the private data"
    );
    same!(&req.private_data[36..51], b"for the program", "private data");
    scene.cm_event(&parties[1], CmEventKind::ConnectRequest).map(drop)
}

fn starting_psns<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    scene.network().take_trace();
    let [left, right] = scene.joined(&parties, &listener)?;
    scene.carries(&left, &right, b"from the left")?;
    scene.carries(&right, &left, b"from the right")?;
    let trace = scene.network().take_trace();
    let messages: Vec<_> = trace.iter().filter_map(crate::connection::message_of).collect();
    let announced = |from: Side| {
        messages.iter().find_map(|message| match (from, message) {
            (Side::Left, Message::Req(req)) => Some(req.starting_psn),
            (Side::Right, Message::Rep(rep)) => Some(rep.starting_psn),
            _ => None,
        })
    };
    for side in Side::BOTH {
        let is_first = |passing: &&Passing| {
            let operation = passing.headers.bth.opcode.info().map(|info| info.operation);
            passing.from == side
                && passing.headers.bth.dest_qp != Qpn::GSI
                && operation == Some(Operation::Send)
        };
        let sent = trace.iter().find(is_first).map(|passing| passing.headers.bth.psn);
        check!(sent.is_some(), "nothing was sent from the {side:?}");
        same!(
            sent,
            announced(side.peer()),
            "first PSN from the {side:?}, as its peer has announced it"
        );
    }
    Ok(())
}

fn repeated<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    scene.network().take_trace();
    let [left, right] = scene.joined(&parties, &listener)?;
    let passed = scene.cm_messages();
    let (req, rep) = (
        of_kind(&passed, MessageKind::Req)
            .first()
            .map(|message| **message),
        of_kind(&passed, MessageKind::Rep)
            .first()
            .map(|message| **message),
    );
    let (Some(req), Some(rep)) = (req, rep) else {
        return Err(Failure::new("no handshake has passed"));
    };
    scene.forge(Side::Right, &req);
    scene.rest(WHILE);
    same!(
        scene.cm_messages().len(),
        0,
        "answers to a request that comes again"
    );
    scene.forge(Side::Left, &rep);
    scene.rest(WHILE);
    let answers = scene.cm_messages();
    same!(
        of_kind(&answers, MessageKind::Rtu).len(),
        1,
        "RTUs for a reply that comes again"
    );
    scene.carries(&left, &right, b"undisturbed")?;
    left.id.disconnect()?;
    scene.cm_event(&parties[1], CmEventKind::Disconnected)?;
    right.id.disconnect()?;
    scene.cm_event(&parties[0], CmEventKind::Disconnected)?;
    let dreq = of_kind(&scene.cm_messages(), MessageKind::Dreq)
        .first()
        .map(|message| **message);
    let dreq = dreq.ok_or_else(|| Failure::new("no DREQ has passed"))?;
    scene.forge(Side::Right, &dreq);
    scene.rest(WHILE);
    let answers = scene.cm_messages();
    same!(
        of_kind(&answers, MessageKind::Drep).len(),
        1,
        "DREPs for a disconnection that comes again"
    );
    Ok(())
}

/// An MRA of service timeout 21, 8.2 s, holds the next request back.
fn patience<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    left.id.connect(&offer(&[]))?;
    // The program is slow. Its side asks for patience when the request comes again.
    let waiting = scene.cm_event(&parties[1], CmEventKind::ConnectRequest)?;
    scene.cm_messages();
    scene.rest(Duration::from_secs(60));
    let passed = scene.cm_messages();
    same!(
        of_kind(&passed, MessageKind::Req).len(),
        1,
        "repeated requests in a minute"
    );
    same!(
        of_kind(&passed, MessageKind::Mra).len(),
        1,
        "requests for patience"
    );
    let right = CmEnd::<B>::requested(waiting, QpType::Rc)?;
    right.id.accept(None)?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    Ok(())
}

fn options<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = address_of(&listener)?;
    let id = parties[0].cm.create_id(CmPortSpace::Tcp, 0)?;
    id.set_type_of_service(0x68)?;
    id.set_ack_timeout(20)?;
    let left = CmEnd::<B>::new(scene.resolve(&parties[0], id, to)?, QpType::Rc)?;
    scene.cm_messages();
    left.id.connect(&offer(&[]))?;
    let Message::Req(req) = first(scene, MessageKind::Req)? else {
        return Err(Failure::new("no REQ"));
    };
    same!(req.primary.traffic_class, 0x68, "traffic class of the request");
    check!(
        req.primary.ack_timeout >= 20,
        "local ACK timeout code {}",
        req.primary.ack_timeout
    );
    let right = scene.accepted(&parties[1])?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    let attr = left.qp.query()?;
    same!(attr.timeout, Some(20), "ACK timeout of the queue pair");
    for end in [&left, &right] {
        let class = end.qp.query()?.av.map(|av| av.traffic_class);
        same!(class, Some(0x68), "traffic class of a queue pair");
    }
    Ok(())
}
