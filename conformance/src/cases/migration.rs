//! Automatic path migration: an alternate path, armed by both ends, taken by one and followed by the other.

use verbs_api::{AltPath, EventKind, MigState, Mtu, QpAttr, QpState, QpType, QueuePair};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Setup};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
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
    let pair = scene.unconnected(&setup)?;
    for side in Side::BOTH {
        let (own, peer) = (pair.node(side), pair.node(side.peer()));
        own.init(&setup)?;
        own.qp.modify(&QpAttr {
            alt_path: Some(alternate(own, peer)),
            ..setup.to_rtr(&own.endpoint, &peer.endpoint)
        })?;
        own.rts(&setup)?;
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
    scene.still_works(&with)
}
