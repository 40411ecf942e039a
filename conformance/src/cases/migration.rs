//! Automatic path migration: an alternate path, armed by both ends, taken by one and followed by the other.

use roce_wire::{Aeth, Bth, Headers, Msn, Opcode, Psn, Qpn, Syndrome};
use verbs_api::{
    AltPath, AsyncEvent, EventKind, EventSource, MigState, Mtu, QpAttr, QpState, QpType, QueuePair, WcStatus,
};

use super::played::{SHORT, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Setup, full_access, pattern, same_bytes, write};
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::PathMigration];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs("M1", "both ends that re-arm become armed", &["APM-1"], |scene| {
            armed(scene, QpType::Rc)
        })
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "M1-UC",
            "both ends that re-arm become armed, over UC",
            &["APM-1"],
            |scene| armed(scene, QpType::Uc),
        )
        .needing(&[Need::PathMigration, Need::Uc])
        .of_priority(2),
        Case::verbs(
            "M2",
            "one end migrates and the other follows, with an event",
            &["APM-2"],
            migrates,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "M3",
            "after a migration the paths can be armed again",
            &["APM-1", "APM-2"],
            twice,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "M4",
            "arming without an alternate path, or setting ARMED, is refused",
            &["APM-3"],
            refused,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::faults(
            "M5",
            "a queue pair whose path fails goes on by its alternate one, with all its retries",
            &["APM-4"],
            path_fails,
        )
        .needing(&[Need::PathMigration, Need::Network])
        .of_priority(2),
        Case::raw_peer(
            "M6",
            "a peer that migrates where it must not is told of once",
            &["APM-5"],
            unwanted,
        )
        .needing(&[Need::PathMigration, Need::Network])
        .of_priority(2),
    ]
}

/// The alternate path: the devices have one address each, so that it leads where the first one does.
fn alternate<P: verbs_api::Provider>(own: &Node<P>, peer: &Node<P>) -> AltPath {
    AltPath {
        av: own.endpoint.vector_to(&peer.endpoint),
        pkey_index: 0,
        timeout: 15,
    }
}

/// A connected pair with an alternate path at both ends, not armed.
fn prepared<B: Testbed>(scene: &Scene<B>, qp_type: QpType) -> Result<Pair<B::P>, Failure> {
    let setup = Setup {
        mtu: Mtu::Mtu256,
        ..Setup::of(qp_type)
    };
    prepared_as(scene, &setup, 15)
}

/// The same with this setup, and this time-out of the alternate paths.
fn prepared_as<B: Testbed>(scene: &Scene<B>, setup: &Setup, timeout: u8) -> Result<Pair<B::P>, Failure> {
    let pair = scene.unconnected(setup)?;
    for side in Side::BOTH {
        let (own, peer) = (pair.node(side), pair.node(side.peer()));
        own.init(setup)?;
        own.qp.modify(&QpAttr {
            alt_path: Some(AltPath {
                timeout,
                ..alternate(own, peer)
            }),
            ..setup.to_rtr(&own.endpoint, &peer.endpoint)
        })?;
        own.rts(setup)?;
    }
    Ok(pair)
}

fn set<P: verbs_api::Provider>(node: &Node<P>, state: MigState) -> CaseResult {
    Ok(node.qp.modify(&QpAttr {
        state: Some(QpState::Rts),
        path_mig_state: Some(state),
        ..QpAttr::default()
    })?)
}

fn is<P: verbs_api::Provider>(node: &Node<P>, state: MigState) -> CaseResult {
    same!(
        node.qp.query()?.path_mig_state,
        Some(state),
        "path migration state of the {:?} end",
        node.endpoint.side
    );
    Ok(())
}

/// Re-arm both ends; traffic in both directions arms them.
fn arm<B: Testbed>(scene: &mut Scene<B>, pair: &Pair<B::P>) -> CaseResult {
    for side in Side::BOTH {
        set(pair.node(side), MigState::Rearm)?;
    }
    become_armed(scene, pair)
}

fn become_armed<B: Testbed>(scene: &mut Scene<B>, pair: &Pair<B::P>) -> CaseResult {
    // The first message tells the peer, the way back tells this end.
    scene.still_works(pair)?;
    scene.still_works(pair)?;
    for side in Side::BOTH {
        is(pair.node(side), MigState::Armed)?;
    }
    Ok(())
}

fn armed<B: Testbed>(scene: &mut Scene<B>, qp_type: QpType) -> CaseResult {
    let pair = prepared(scene, qp_type)?;
    for side in Side::BOTH {
        is(pair.node(side), MigState::Migrated)?;
    }
    scene.still_works(&pair)?;
    // One end alone does not become armed.
    set(&pair.left, MigState::Rearm)?;
    scene.still_works(&pair)?;
    is(&pair.left, MigState::Rearm)?;
    is(&pair.right, MigState::Migrated)?;
    set(&pair.right, MigState::Rearm)?;
    become_armed(scene, &pair)
}

fn migrates<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = prepared(scene, QpType::Rc)?;
    arm(scene, &pair)?;
    set(&pair.left, MigState::Migrated)?;
    is(&pair.left, MigState::Migrated)?;
    scene.still_works(&pair)?;
    scene.qp_event(Side::Right, pair.right.endpoint.qpn, EventKind::PathMig)?;
    is(&pair.right, MigState::Migrated)?;
    let seen = pair.left.qp.query()?;
    same!(
        seen.av.and_then(|av| av.dgid),
        Some(pair.right.endpoint.gid.gid),
        "destination after the migration"
    );
    same!(
        seen.timeout,
        Some(15),
        "time-out after the migration, that of the alternate path"
    );
    let more = scene.other_events(Side::Right)?;
    check!(
        !more
            .iter()
            .any(|e| matches!(e.kind, EventKind::PathMig | EventKind::PathMigErr)),
        "more migration events: {more:?}"
    );
    scene.still_works(&pair)
}

fn twice<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = prepared(scene, QpType::Rc)?;
    for round in 0..3 {
        let mover = if round % 2 == 0 { Side::Left } else { Side::Right };
        arm(scene, &pair).map_err(|e| e.during(format!("round {round}")))?;
        set(pair.node(mover), MigState::Migrated)?;
        scene.still_works(&pair)?;
        scene.still_works(&pair)?;
        let follower = pair.node(mover.peer());
        scene.qp_event(mover.peer(), follower.endpoint.qpn, EventKind::PathMig)?;
        is(follower, MigState::Migrated)?;
        // Both load another alternate path.
        for side in Side::BOTH {
            let (own, peer) = (pair.node(side), pair.node(side.peer()));
            own.qp.modify(&QpAttr {
                state: Some(QpState::Rts),
                alt_path: Some(alternate(own, peer)),
                ..QpAttr::default()
            })?;
        }
    }
    Ok(())
}

fn path_fails<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const RETRIES: u8 = 2;
    let setup = Setup {
        timeout: scene.timeout(10),
        retry_cnt: RETRIES,
        ..Setup::default()
    };
    let pair = prepared_as(scene, &setup, setup.timeout)?;
    arm(scene, &pair)?;
    // The path in use carries nothing from the left, and the other one is bad at first.
    scene.network().set_rule(Box::new(|packet| {
        let bth = &packet.headers.bth;
        let is_lost = !bth.migrated || packet.transmission <= 2 * u32::from(RETRIES) + 1;
        if packet.from == Side::Left && is_lost {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    }));
    scene.network().take_trace();
    let (own, far) = (
        pair.left.region(64, full_access())?,
        pair.right.region(64, full_access())?,
    );
    own.scribble(3);
    pair.left.send(1, write(far.remote(0)), &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes("what was written", &far.buffer.to_vec(0..64), &pattern(3, 64))?;
    let sent = scene.network().take_trace();
    let by = |migrated: bool| {
        let own = sent.iter().filter(|packet| packet.from == Side::Left);
        own.filter(|packet| packet.headers.bth.migrated == migrated)
            .count()
    };
    same!(
        (by(false), by(true)),
        (usize::from(RETRIES) + 1, usize::from(RETRIES) + 1),
        "transmissions by the first path and by the other one with a retry count of {RETRIES}"
    );
    scene.qp_event(Side::Left, pair.left.endpoint.qpn, EventKind::PathMig)?;
    scene.qp_event(Side::Right, pair.right.endpoint.qpn, EventKind::PathMig)?;
    for side in Side::BOTH {
        is(pair.node(side), MigState::Migrated)?;
    }
    scene.network().clear_rule();
    scene.still_works(&pair)
}

/// How often the queue pair of the left end has complained since the last call.
fn complaints<B: Testbed>(scene: &mut Scene<B>, qpn: u32) -> Result<usize, Failure> {
    scene.rest(SHORT);
    let events = scene.other_events(Side::Left)?;
    let own = AsyncEvent {
        kind: EventKind::PathMigErr,
        source: EventSource::Qp(qpn),
    };
    Ok(events.into_iter().filter(|event| *event == own).count())
}

fn unwanted<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = setup();
    let pair = scene.unconnected(&setup)?;
    for side in Side::BOTH {
        let (own, peer) = (pair.node(side), pair.node(side.peer()));
        // The left end's alternate path leads to itself: not there, where the right end migrates to.
        let alternate_peer = if side == Side::Left { own } else { peer };
        own.init(&setup)?;
        own.qp.modify(&QpAttr {
            alt_path: Some(alternate(own, alternate_peer)),
            ..setup.to_rtr(&own.endpoint, &peer.endpoint)
        })?;
        own.rts(&setup)?;
    }
    let qpn = pair.left.endpoint.qpn;
    scene.still_works(&pair)?;
    for round in 0..2 {
        arm(scene, &pair).map_err(|e| e.during(format!("round {round}")))?;
        same!(complaints(scene, qpn)?, 0, "complaints before anybody migrated");
        let dest = Qpn::new(qpn).ok_or_else(|| Failure::new("queue pair numbers have 24 bits"))?;
        // An old acknowledgement, of no other consequence.
        let psn = Psn::new(pair.setup.psn[0]);
        let mut headers = Headers::new(Bth::new(Opcode::RC_ACKNOWLEDGE, dest, psn));
        headers.bth.migrated = true;
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(0),
        });
        for _ in 0..3 {
            scene.network().inject(Side::Left, &headers, &[]);
        }
        same!(
            complaints(scene, qpn)?,
            1,
            "complaints about three packets by a path that is not the alternate one"
        );
        is(&pair.left, MigState::Armed)?;
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn refused<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let without = scene.pair(&Setup::default())?;
    check!(
        set(&without.left, MigState::Rearm).is_err(),
        "a queue pair without alternate path was re-armed"
    );
    is(&without.left, MigState::Migrated)?;
    let with = prepared(scene, QpType::Rc)?;
    check!(
        set(&with.left, MigState::Armed).is_err(),
        "software set a path to ARMED, which only the peer's packets may"
    );
    is(&with.left, MigState::Migrated)?;
    let nowhere = AltPath {
        pkey_index: 1,
        ..alternate(&with.left, &with.right)
    };
    check!(
        with.left
            .qp
            .modify(&QpAttr {
                state: Some(QpState::Rts),
                alt_path: Some(nowhere),
                ..QpAttr::default()
            })
            .is_err(),
        "an alternate path in a partition that is not there was loaded"
    );
    scene.still_works(&with)
}
