//! Connection management on a network that loses messages, and for many at once.

use std::time::Duration;

use roce_wire::cm::MessageKind;
use verbs_api::{CmEventKind, CmId, CmPortSpace, QpType, SendOp};

use crate::case::Case;
use crate::connection::{CmEnd, address_of, message_of, offer};
use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Passing, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::ConnectionManager, Need::Network];
const LONG_NEEDS: &[Need] = &[Need::ConnectionManager, Need::Network, Need::VirtualTime];
/// From one REQ to the next, and how many there are.
const REQ_INTERVAL: Duration = Duration::from_millis(4608);
const REQS: u32 = 16;
/// ETIMEDOUT as events have it.
const TIMED_OUT: i32 = -110;
/// Longer than the longest handshake under loss.
const LONG: Duration = Duration::from_secs(80);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::faults(
            "J6",
            "a request that nobody answers is repeated every 4608 ms, 16 times in all, and then UNREACHABLE",
            &["CM-8"],
            dead_address,
        )
        .needing(LONG_NEEDS),
        Case::faults(
            "J6-LATE",
            "a request of which 15 are lost still connects",
            &["CM-8"],
            late,
        )
        .needing(LONG_NEEDS),
        Case::faults(
            "J7",
            "a lost reply is repeated; the request that comes again meanwhile means nothing",
            &["CM-9"],
            lost_reply,
        )
        .needing(NEEDS),
        Case::faults(
            "J7-RTU",
            "data before the last message of the handshake establishes the connection",
            &["CM-9"],
            data_first,
        )
        .needing(NEEDS),
        Case::faults(
            "J14",
            "1000 connections one after another, and 10 % of the messages lost: all connect, none stays",
            &["CM-10"],
            in_sequence,
        )
        .needing(LONG_NEEDS),
        Case::faults(
            "J14-AT-ONCE",
            "1000 connections at once, and 10 % of the messages lost: all connect, none stays",
            &["CM-10"],
            at_once,
        )
        .needing(LONG_NEEDS),
    ]
}

/// Lose the first `count` messages of a kind.
fn lose<B: Testbed>(scene: &mut Scene<B>, kind: MessageKind, mut count: u32) {
    scene.network().set_rule(Box::new(move |passing: &Passing| {
        if count > 0 && message_of(passing).is_some_and(|message| message.kind() == kind) {
            count -= 1;
            return Fate::Drop;
        }
        Fate::Deliver
    }));
}

fn dead_address<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    lose(scene, MessageKind::Req, u32::MAX);
    scene.cm_messages();
    left.id.connect(&offer(&[]))?;
    let start = scene.bed.now();
    let end = REQ_INTERVAL * REQS;
    scene.rest(end - Duration::from_millis(1));
    let sent: Vec<Duration> = scene
        .cm_messages()
        .iter()
        .map(|(passing, _)| passing.at - start)
        .collect();
    let expected: Vec<Duration> = (0..REQS).map(|number| REQ_INTERVAL * number).collect();
    same!(sent.len(), expected.len(), "requests before the end");
    for (sent, expected) in sent.iter().zip(&expected) {
        check!(
            sent.abs_diff(*expected) < Duration::from_millis(1),
            "a request went at {sent:?}, must be {expected:?}"
        );
    }
    let event = scene.cm_event(&parties[0], CmEventKind::Unreachable)?;
    same!(event.status, TIMED_OUT, "status");
    let waited = scene.bed.now() - start;
    check!(
        waited.abs_diff(end) < Duration::from_millis(2),
        "unreachable after {waited:?}, must be {end:?}"
    );
    Ok(())
}

fn late<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    lose(scene, MessageKind::Req, REQS - 1);
    left.id.connect(&offer(&[]))?;
    scene.rest(REQ_INTERVAL * (REQS - 1));
    let right = scene.accepted(&parties[1])?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    scene.carries(&left, &right, b"at last")
}

fn lost_reply<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    lose(scene, MessageKind::Rep, 2);
    left.id.connect(&offer(&[]))?;
    let right = scene.accepted(&parties[1])?;
    let event = scene.cm_event(&parties[0], CmEventKind::Established)?;
    drop(event);
    // A second request would stand here.
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    let replies = scene
        .cm_messages()
        .iter()
        .filter(|(_, message)| message.kind() == MessageKind::Rep)
        .count();
    check!(replies >= 3, "{replies} replies were sent, of which two are lost");
    scene.carries(&left, &right, b"in the end")
}

fn data_first<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (parties, _listener, left) = scene.meeting(QpType::Rc)?;
    lose(scene, MessageKind::Rtu, u32::MAX);
    left.id.connect(&offer(&[]))?;
    let right = scene.requested(&parties[1])?;
    right.receive()?;
    right.id.accept(None)?;
    scene.cm_event(&parties[0], CmEventKind::Established)?;
    left.send(SendOp::Send { imm: None }, b"early")?;
    scene.success(&right.cq)?;
    scene.success(&left.cq)?;
    // The program heard of the data, and says so.
    right.id.established()?;
    scene.cm_event(&parties[1], CmEventKind::Established)?;
    Ok(())
}

/// How many.
const CONNECTIONS: usize = 1000;
/// Per mille of the packets.
const LOSS: u32 = 100;

fn in_sequence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    scene.network().set_weather(LOSS, 0, 0);
    for number in 0..CONNECTIONS {
        let ends = scene
            .joined(&parties, &listener)
            .map_err(|failure| failure.during(format!("connection {number}")))?;
        ends[0].id.disconnect()?;
        scene.cm_event(&parties[1], CmEventKind::Disconnected)?;
        drop(ends);
    }
    drop(listener);
    nothing_stays(scene)
}

fn at_once<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let parties = scene.parties()?;
    let listener = scene.listener(&parties[1], CmPortSpace::Tcp, 0)?;
    let to = address_of(&listener)?;
    let mut left = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        left.push(CmEnd::<B>::new(
            scene.resolved(&parties[0], CmPortSpace::Tcp, to)?,
            QpType::Rc,
        )?);
    }
    scene.network().set_weather(LOSS, 0, 0);
    for end in &left {
        end.id.connect(&offer(&[]))?;
    }
    let mut right = Vec::with_capacity(CONNECTIONS);
    let mut established = [0; 2];
    while established != [CONNECTIONS; 2] {
        let (side, event) = scene.until_within(LONG, "an event of either side", |_| {
            use verbs_api::ConnectionManager;
            for side in Side::BOTH {
                if let Some(event) = parties[side.index()].cm.wait(Some(Duration::ZERO))? {
                    return Ok(Some((side, event)));
                }
            }
            Ok(None)
        })?;
        match event.kind {
            CmEventKind::ConnectRequest => {
                let end = CmEnd::<B>::requested(event, QpType::Rc)?;
                end.id.accept(None)?;
                right.push(end);
            }
            CmEventKind::Established => established[side.index()] += 1,
            other => return Err(Failure::new(format!("{other:?} with status {}", event.status))),
        }
    }
    same!(right.len(), CONNECTIONS, "requests");
    drop((left, right, listener));
    nothing_stays(scene)
}

/// After everything was let go of, messages still pass for a while, and then no more.
fn nothing_stays<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    scene.rest(LONG);
    scene.cm_messages();
    scene.rest(LONG);
    let late = scene.cm_messages();
    same!(late.len(), 0, "messages long after everything has gone");
    Ok(())
}
