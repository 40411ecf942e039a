//! What strangers and liars may throw at connection management.

use std::net::SocketAddr;
use std::time::Duration;

use roce_wire::cm::ip::IpCm;
use roce_wire::cm::{Drep, Dreq, Message, MessageKind, PathInfo, Rej, RejectReason, Req, Rtu, ServiceId};
use roce_wire::{Psn, Qpn};
use verbs_api::{CmEventKind, CmPortSpace, ConnectionManager, Gid, QueuePair, SendOp};

use super::connection_messages::{NEEDS, WHILE, first, of_kind};
use crate::case::Case;
use crate::connection::{Party, address_of};
use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Fate, Passing, Side, Testbed};
use crate::{check, same};

/// A number of the case's own for a connection.
const COMM_ID: u32 = 0x0000_5eed;
/// A queue pair and adapter that the case claims to have.
const QPN: u32 = 0x00_0777;
const GUID: u64 = 0x0200_00ff_fe00_0777;

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
        Case::raw_peer(
            "J11",
            "a request with another version in front of its private data is rejected",
            &["CM-16"],
            versions,
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
    let to = address_of(&listener)?;
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

fn versions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = address_of(&listener)?;
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

fn malformed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = address_of(&listener)?;
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
        // A refusal from somebody who has no number for the connection.
        Message::Rej(Rej {
            local_comm_id: 0,
            remote_comm_id: peers,
            ..Rej::default()
        }),
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
