//! Connection management message by message: what stands on the wire, and what a peer may throw at it.

use std::net::SocketAddr;
use std::time::Duration;

use roce_wire::cm::ip::IpCm;
use roce_wire::cm::{
    Drep, Dreq, Message, MessageKind, PathInfo, RejectReason, Req, Rtu, ServiceId, TransportService,
};
use roce_wire::{Operation, Psn, Qpn};
use verbs_api::{CmEventKind, CmId, CmPortSpace, ConnectionManager, Gid, QpType, QueuePair, SendOp};

use crate::case::Case;
use crate::connection::{CmEnd, Party, offer};
use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Passing, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::ConnectionManager, Need::Network];
/// A number of the case's own for a connection.
const COMM_ID: u32 = 0x0000_5eed;
/// A queue pair and adapter that the case claims to have.
const QPN: u32 = 0x00_0777;
const GUID: u64 = 0x0200_00ff_fe00_0777;
/// How long to wait for what must not come.
const WHILE: Duration = Duration::from_millis(20);

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
        Case::raw_peer(
            "J8-STRANGER",
            "a disconnection of an unknown connection is answered all the same",
            &["CM-13"],
            stranger,
        )
        .needing(NEEDS),
        Case::raw_peer(
            "J9",
            "a queue pair that is connected already is stale: reason 10, and its old connection ends",
            &["CM-14"],
            stale,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer("J10", "who is asked for patience waits so long before it repeats", &["CM-15"], patience)
            .needing(NEEDS)
            .of_priority(2),
        Case::raw_peer(
            "J11",
            "a request with another version in front of its private data is rejected",
            &["CM-16"],
            versions,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "J15",
            "a type of service and an ACK timeout show on the wire",
            &["CM-17"],
            options,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "J25",
            "datagrams that are no message of connection management mean nothing",
            &["CM-18"],
            malformed,
        )
        .needing(NEEDS),
        Case::raw_peer(
            "J25-GUESS",
            "messages with guessed numbers mean nothing to a connection",
            &["CM-18"],
            guessed,
        )
        .needing(NEEDS),
    ]
}

fn no_address() -> Failure {
    Failure::new("a listener without an address")
}

/// The messages of one kind among those that have passed.
fn of_kind(messages: &[(Passing, Message)], kind: MessageKind) -> Vec<&Message> {
    messages
        .iter()
        .map(|(_, message)| message)
        .filter(|message| message.kind() == kind)
        .collect()
}

/// The first message of a kind that passes.
fn first<B: Testbed>(scene: &mut Scene<B>, kind: MessageKind) -> Result<Message, Failure> {
    scene.until(&format!("a {kind:?}"), |scene| {
        let messages = scene.cm_messages();
        Ok(of_kind(&messages, kind).first().map(|message| **message))
    })
}

fn fields<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = listener.local_addr().ok_or_else(no_address)?;
    let left = CmEnd::<B>::new(scene.resolved(&parties[0], CmPortSpace::Tcp, to)?, QpType::Rc)?;
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

fn stranger<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    scene.network().take_trace();
    scene.forge(
        Side::Right,
        &Message::Dreq(Dreq {
            local_comm_id: COMM_ID,
            remote_comm_id: 0x7777,
            remote_qpn: Qpn::new(QPN).unwrap_or_default(),
            ..Dreq::default()
        }),
    );
    let Message::Drep(drep) = first(scene, MessageKind::Drep)? else {
        return Err(Failure::new("no DREP"));
    };
    same!(
        (drep.local_comm_id, drep.remote_comm_id),
        (0x7777, COMM_ID),
        "numbers of the answer"
    );
    drop(parties);
    Ok(())
}

/// A request of a program that the case plays, on the left end.
fn forged_req<B: Testbed>(parties: &[Party<B>; 2], to: SocketAddr) -> Req {
    let ip = IpCm {
        source: SocketAddr::new(parties[0].address, 40_000),
        destination: parties[1].address,
    };
    let mut req = Req {
        local_comm_id: COMM_ID,
        service_id: ServiceId::of_port(6, to.port()),
        local_ca_guid: GUID,
        local_qpn: Qpn::new(QPN).unwrap_or_default(),
        starting_psn: Psn::new(5),
        remote_response_timeout: 20,
        local_response_timeout: 20,
        max_cm_retries: 15,
        retry_count: 7,
        rnr_retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        primary: PathInfo {
            local_gid: Gid::from(parties[0].address).0,
            remote_gid: Gid::from(parties[1].address).0,
            local_lid: 0xffff,
            remote_lid: 0xffff,
            hop_limit: 64,
            ack_timeout: 17,
            ..PathInfo::default()
        },
        ..Req::default()
    };
    req.private_data[..36].copy_from_slice(&ip.to_bytes());
    req
}

fn rejection<B: Testbed>(scene: &mut Scene<B>) -> Result<RejectReason, Failure> {
    match first(scene, MessageKind::Rej)? {
        Message::Rej(rej) => Ok(rej.reason),
        other => Err(Failure::new(format!("{:?} and no REJ", other.kind()))),
    }
}

fn stale<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = listener.local_addr().ok_or_else(no_address)?;
    let req = forged_req(&parties, to);
    // The left end itself knows nothing of what the case plays there.
    scene
        .network()
        .set_rule(Box::new(|passing: &Passing| match passing.from {
            Side::Right => Fate::Drop,
            Side::Left => Fate::Deliver,
        }));
    scene.forge(Side::Right, &Message::Req(req));
    let right = scene.accepted(&parties[1])?;
    let Message::Rep(rep) = first(scene, MessageKind::Rep)? else {
        return Err(Failure::new("no REP"));
    };
    scene.forge(
        Side::Right,
        &Message::Rtu(Rtu {
            local_comm_id: COMM_ID,
            remote_comm_id: rep.local_comm_id,
            ..Rtu::default()
        }),
    );
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    scene.network().take_trace();
    // The same queue pair, from somebody who knows nothing of the connection.
    let again = Req {
        local_comm_id: COMM_ID + 1,
        ..req
    };
    scene.forge(Side::Right, &Message::Req(again));
    let (mut reasons, mut dreqs) = (Vec::new(), 0);
    scene.until("a rejection, and the end of the old connection", |scene| {
        for (passing, message) in scene.cm_messages() {
            match message {
                Message::Rej(rej) if passing.from == Side::Right => reasons.push(rej.reason),
                Message::Dreq(dreq) if dreq.remote_comm_id == COMM_ID => dreqs += 1,
                _ => {}
            }
        }
        Ok((!reasons.is_empty() && dreqs > 0).then_some(()))
    })?;
    same!(reasons, [RejectReason::STALE_CONNECTION], "reasons of rejections");
    scene.forge(
        Side::Right,
        &Message::Drep(Drep {
            local_comm_id: COMM_ID,
            remote_comm_id: rep.local_comm_id,
            ..Drep::default()
        }),
    );
    scene.cm_event(&parties[1], CmEventKind::Disconnected)?;
    drop(right);
    Ok(())
}

/// An MRA of service timeout 21, 8.2 s, holds the next request back.
fn patience<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = listener.local_addr().ok_or_else(no_address)?;
    let left = CmEnd::<B>::new(scene.resolved(&parties[0], CmPortSpace::Tcp, to)?, QpType::Rc)?;
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
    let mut waiting = waiting;
    let id = waiting
        .request
        .take()
        .ok_or_else(|| Failure::new("a request without an id"))?;
    let right = CmEnd::<B>::new(id, QpType::Rc)?;
    right.id.accept(None)?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    Ok(())
}

fn versions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = listener.local_addr().ok_or_else(no_address)?;
    for (number, (at, value)) in [(0, 0x10), (0, 0x01), (1, 0x50)].into_iter().enumerate() {
        let mut req = forged_req(&parties, to);
        req.local_comm_id += number as u32;
        req.private_data[at] = value;
        scene.cm_messages();
        scene.forge(Side::Right, &Message::Req(req));
        rejection(scene).map_err(|failure| failure.during(format!("byte {at} is {value:#x}")))?;
    }
    let event = parties[1].cm.wait(Some(Duration::ZERO))?;
    check!(event.is_none(), "the program hears of it: {event:?}");
    Ok(())
}

fn options<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = listener.local_addr().ok_or_else(no_address)?;
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

fn malformed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = listener.local_addr().ok_or_else(no_address)?;
    let good = Message::Req(forged_req(&parties, to)).to_mad(1);
    scene.cm_messages();
    // Base version, class version, method, attribute.
    for (at, value) in [
        (0, 2),
        (2, 1),
        (2, 3),
        (3, 1),
        (3, 2),
        (3, 0x81),
        (17, 0x0f),
        (17, 0x1b),
    ] {
        let mut mad = good;
        mad[at] = value;
        scene.forge_mad(Side::Right, &mad);
    }
    scene.rest(WHILE);
    same!(scene.cm_messages().len(), 0, "answers");
    let event = parties[1].cm.wait(Some(Duration::ZERO))?;
    check!(event.is_none(), "the program hears of it: {event:?}");
    scene.joined(&parties, &listener).map(drop)
}

fn guessed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    scene.cm_messages();
    let [left, right] = scene.joined(&parties, &listener)?;
    let rtu = of_kind(&scene.cm_messages(), MessageKind::Rtu)
        .first()
        .map(|message| **message);
    let Some(Message::Rtu(rtu)) = rtu else {
        return Err(Failure::new("no RTU has passed"));
    };
    let remote_qpn = Qpn::new(right.qp.qpn()).unwrap_or_default();
    let dreq = |local_comm_id, remote_comm_id, remote_qpn| {
        Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn,
            ..Dreq::default()
        })
    };
    let (own, peers) = (rtu.local_comm_id, rtu.remote_comm_id);
    let other_qp = Qpn::new(right.qp.qpn() ^ 1).unwrap_or_default();
    for forged in [
        dreq(own ^ 1, peers, remote_qpn),
        dreq(own, peers ^ 1, remote_qpn),
        dreq(own, peers, other_qp),
    ] {
        scene.forge(Side::Right, &forged);
    }
    scene.rest(WHILE);
    let event = parties[1].cm.wait(Some(Duration::ZERO))?;
    check!(event.is_none(), "a guess ends the connection: {event:?}");
    right.receive()?;
    left.send(SendOp::Send { imm: None }, b"still here")?;
    scene.success(&left.cq)?;
    scene.success(&right.cq)?;
    Ok(())
}
