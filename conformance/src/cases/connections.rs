//! Connection management as programs see it.

use std::net::SocketAddr;

use verbs_api::{
    CmEventKind, CmId, CmPortSpace, ConnectionManager, ConnectionParameters, Gid, ProtectionDomain, QpState,
    QpType, QueuePair, SendOp,
};

use crate::case::Case;
use crate::connection::{CmEnd, address_of, offer};
use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Family, Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::ConnectionManager];
/// The Q_Key of RDMA CM's datagrams.
const QKEY: u32 = 0x0123_4567;
/// In front of what a datagram brings.
const GRH_BYTES: usize = 40;

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "J1",
            "two programs connect by address and port, talk, and part; private data passes whole",
            &["CM-1", "CM-2"],
            |scene| connects(scene, Family::Usual),
        )
        .needing(NEEDS),
        Case::verbs(
            "J1-OTHER",
            "two programs connect in the other address family",
            &["CM-1", "CM-2"],
            |scene| connects(scene, Family::Other),
        )
        .needing(&[Need::ConnectionManager, Need::BothFamilies]),
        Case::verbs(
            "J1-LONG",
            "private data that does not fit its message is refused",
            &["CM-2"],
            too_long,
        )
        .needing(NEEDS),
        Case::verbs(
            "J3",
            "a port on which nobody listens rejects with reason 8",
            &["CM-3"],
            closed_port,
        )
        .needing(NEEDS),
        Case::verbs(
            "J4",
            "a program's refusal is reason 28 and brings its data",
            &["CM-4"],
            refusal,
        )
        .needing(NEEDS),
        Case::verbs(
            "J12",
            "a service of datagrams is found: queue pair, Q_Key, private data",
            &["CM-5"],
            datagrams,
        )
        .needing(&[Need::ConnectionManager, Need::Ud]),
        Case::verbs(
            "J12-NONE",
            "a service of datagrams that nobody offers is unreachable with status 1",
            &["CM-5"],
            no_datagrams,
        )
        .needing(&[Need::ConnectionManager, Need::Ud]),
        Case::verbs(
            "J13",
            "responder resources and initiator depth arrive crossed, and bound the queue pairs",
            &["CM-6"],
            crossed,
        )
        .needing(NEEDS),
        Case::verbs(
            "J1-PORT",
            "a port has one listener, and is free at once when that goes",
            &["CM-7"],
            one_listener,
        )
        .needing(NEEDS),
        Case::verbs(
            "J1-UC",
            "unreliable connections are made likewise",
            &["CM-1"],
            unreliable,
        )
        .needing(&[Need::ConnectionManager, Need::Uc])
        .of_priority(2),
    ]
}

fn connects<B: Testbed>(scene: &mut Scene<B>, family: Family) -> CaseResult {
    let parties = [
        scene.party(Side::Left, family)?,
        scene.party(Side::Right, family)?,
    ];
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = address_of(&listener)?;
    for length in [0, 1, 56] {
        let asked: Vec<u8> = (1..=length).collect();
        let left = CmEnd::<B>::new(scene.resolved(&parties[0], CmPortSpace::Tcp, to)?, QpType::Rc)?;
        left.id.connect(&offer(&asked))?;
        let event = scene.cm_event(&parties[1], CmEventKind::ConnectRequest)?;
        same!(
            &event.private_data[..asked.len()],
            asked.as_slice(),
            "private data of the request"
        );
        check!(
            event.private_data[asked.len()..].iter().all(|byte| *byte == 0),
            "zeros behind it"
        );
        let right = CmEnd::<B>::requested(event, QpType::Rc)?;
        let place = |address: Option<SocketAddr>| address.map(|address| (address.ip(), address.port()));
        same!(
            place(right.id.peer_addr()),
            place(left.id.local_addr()),
            "the client's address"
        );
        same!(
            place(right.id.local_addr()),
            place(Some(to)),
            "the server's address"
        );
        let answered: Vec<u8> = (0..196).rev().collect();
        right.id.accept(Some(&offer(&answered)))?;
        let event = scene.cm_event(&parties[0], CmEventKind::Established)?;
        same!(event.private_data, answered, "private data of the reply");
        drop(event);
        scene.cm_event(&parties[1], CmEventKind::Established)?;
        scene.carries(&left, &right, b"there")?;
        scene.carries(&right, &left, b"and back")?;
        left.id.disconnect()?;
        same!(left.qp.state()?, QpState::Err, "state after disconnecting");
        scene.cm_event(&parties[1], CmEventKind::Disconnected)?;
        right.id.disconnect()?;
        scene.cm_event(&parties[0], CmEventKind::Disconnected)?;
        scene.cm_event(&parties[0], CmEventKind::TimewaitExit)?;
        scene.cm_event(&parties[1], CmEventKind::TimewaitExit)?;
    }
    Ok(())
}

/// EINVAL, and it may be tried again with less.
fn too_long<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    refused("57 bytes in a request", left.id.connect(&offer(&[1; 57])))?;
    left.id.connect(&offer(&[1; 56]))?;
    let right = scene.requested(&parties[1])?;
    refused("197 bytes in a reply", right.id.accept(Some(&offer(&[1; 197]))))?;
    refused("149 bytes in a refusal", right.id.reject(&[1; 149]))?;
    right.id.accept(Some(&offer(&[1; 196])))?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    Ok(())
}

fn refused(what: &str, result: verbs_api::Result<()>) -> CaseResult {
    match result {
        Err(error) if error.errno() == 22 => Ok(()),
        Err(error) => Err(Failure::new(format!(
            "{what}: refused, but not with EINVAL: {error}"
        ))),
        Ok(()) => Err(Failure::new(format!("{what}: taken"))),
    }
}

fn closed_port<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, listener, left) = scene.meeting(QpType::Rc)?;
    // The port was free a moment ago.
    drop(listener);
    left.receive()?;
    left.id.connect(&offer(&[]))?;
    let event = scene.cm_event(&parties[0], CmEventKind::Rejected)?;
    same!(event.status, 8, "reason of the rejection");
    drop(event);
    scene.flushed(&left.cq, [1])
}

fn refusal<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    left.id.connect(&offer(&[]))?;
    let right = scene.requested(&parties[1])?;
    let data: Vec<u8> = (0..148).collect();
    right.id.reject(&data)?;
    let event = scene.cm_event(&parties[0], CmEventKind::Rejected)?;
    same!(event.status, 28, "reason of the rejection");
    same!(event.private_data, data, "private data of the rejection");
    Ok(())
}

fn datagrams<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Ud)?;
    let asked: Vec<u8> = (0..180).collect();
    refused("181 bytes in a request", left.id.connect(&offer(&[0; 181])))?;
    left.id.connect(&offer(&asked))?;
    let event = scene.cm_event(&parties[1], CmEventKind::ConnectRequest)?;
    same!(event.private_data, asked, "private data of the request");
    let right = CmEnd::<B>::requested(event, QpType::Ud)?;
    refused("137 bytes in an answer", right.id.accept(Some(&offer(&[0; 137]))))?;
    let answered: Vec<u8> = (0..136).rev().collect();
    right.id.accept(Some(&offer(&answered)))?;
    let event = scene.cm_event(&parties[0], CmEventKind::Established)?;
    same!(event.private_data, answered, "private data of the answer");
    let peer = event
        .datagram_peer
        .ok_or_else(|| Failure::new("no way to the peer"))?;
    drop(event);
    same!(
        (peer.qp_num, peer.qkey),
        (right.qp.qpn(), QKEY),
        "queue pair and Q_Key"
    );
    same!(peer.av.dgid, Some(Gid::from(parties[1].address)), "GID");
    right.receive()?;
    let ah = left.pd.create_ah(&peer.av)?;
    let op = SendOp::SendTo {
        ah: &ah,
        remote_qpn: peer.qp_num,
        remote_qkey: peer.qkey,
        imm: None,
    };
    left.send(op, b"a datagram")?;
    scene.success(&left.cq)?;
    let wc = scene.success(&right.cq)?;
    same!(
        right.bytes(GRH_BYTES..wc.byte_len as usize),
        b"a datagram",
        "the datagram"
    );
    Ok(())
}

fn no_datagrams<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, listener, left) = scene.meeting(QpType::Ud)?;
    // The port was free a moment ago.
    drop(listener);
    left.id.connect(&offer(&[]))?;
    let event = scene.cm_event(&parties[0], CmEventKind::Unreachable)?;
    same!(event.status, 1, "status of the answer");
    Ok(())
}

fn crossed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    left.id.connect(&ConnectionParameters {
        responder_resources: 3,
        initiator_depth: 7,
        rnr_retry_count: 5,
        ..offer(&[])
    })?;
    let event = scene.cm_event(&parties[1], CmEventKind::ConnectRequest)?;
    let seen = (event.peer.responder_resources, event.peer.initiator_depth);
    same!(
        seen,
        (7, 3),
        "(responder resources, initiator depth) at the server"
    );
    same!(event.peer.rnr_retry_count, 5, "RNR retries at the server");
    same!(event.peer.qp_num, left.qp.qpn(), "the client's queue pair");
    let right = CmEnd::<B>::requested(event, QpType::Rc)?;
    right.id.accept(Some(&ConnectionParameters {
        responder_resources: 2,
        initiator_depth: 1,
        ..offer(&[])
    }))?;
    let event = scene.cm_event(&parties[0], CmEventKind::Established)?;
    let seen = (event.peer.responder_resources, event.peer.initiator_depth);
    same!(
        seen,
        (1, 2),
        "(responder resources, initiator depth) at the client"
    );
    drop(event);
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    let (asks, answers) = (left.qp.query()?, right.qp.query()?);
    same!(
        (asks.max_rd_atomic, asks.max_dest_rd_atomic),
        (Some(2), Some(1)),
        "bounds of the client"
    );
    same!(
        (answers.max_rd_atomic, answers.max_dest_rd_atomic),
        (Some(1), Some(2)),
        "bounds of the server"
    );
    Ok(())
}

/// EADDRINUSE for a second one; another port space has ports of its own.
fn one_listener<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let at = address_of(&listener)?;
    let second = parties[1].cm.create_id(CmPortSpace::Tcp, 0)?;
    let result = second.bind_addr(at);
    check!(
        result.as_ref().is_err_and(|error| error.errno() == 98),
        "binding a port that is taken gives {result:?}"
    );
    let other_space = scene.listener(&parties[1], CmPortSpace::Udp, at.port())?;
    drop((listener, other_space));
    second.bind_addr(at)?;
    second.listen(1)?;
    scene.joined(&parties, &second).map(drop)
}

fn unreliable<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Uc)?;
    left.id.connect(&offer(&[]))?;
    let event = scene.cm_event(&parties[1], CmEventKind::ConnectRequest)?;
    let right = CmEnd::<B>::requested(event, QpType::Uc)?;
    right.id.accept(None)?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    scene.carries(&left, &right, b"unreliable")
}
