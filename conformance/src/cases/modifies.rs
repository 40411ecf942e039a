//! Modifies that change nothing, and those that may do either.

use verbs_api::{Access, QpAttr, QpState, QueuePair};

use super::transitions::{bring, refuse, settled};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::Setup;
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "C4",
            "a refused modify changes nothing",
            &["QP-2"],
            refused_modify_changes_nothing,
        ),
        Case::verbs(
            "C0-RANGE",
            "an attribute out of its range is EINVAL and changes nothing",
            &["QP-2", "QP-18"],
            out_of_range,
        )
        .of_priority(2),
        Case::verbs(
            "C5",
            "a wrong current state is EINVAL",
            &["QP-5"],
            wrong_current_state,
        )
        .of_priority(2),
        Case::verbs(
            "C27",
            "RESET to ERR is refused, or done",
            &["QP-1"],
            reset_to_error,
        )
        .of_priority(3),
    ]
}

fn refused_modify_changes_nothing<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.pair(&setup)?;
    let before = settled(&pair.left)?;
    let refused = [
        QpAttr {
            state: Some(QpState::Rts),
            access: Some(Access::empty()),
            qkey: Some(7),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::Rtr),
            path_mtu: Some(verbs_api::Mtu::Mtu256),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::Init),
            access: Some(Access::empty()),
            ..QpAttr::default()
        },
    ];
    for attr in refused {
        refuse(&pair.left, &attr, &format!("modify with {:?}", attr.mask()))?;
        same!(
            settled(&pair.left)?,
            before,
            "attributes after a refused modify with {:?}",
            attr.mask()
        );
    }
    scene.still_works(&pair)
}

fn out_of_range<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.pair(&setup)?;
    let before = settled(&pair.left)?;
    let attr = QpAttr {
        state: Some(QpState::Rts),
        min_rnr_timer: Some(32),
        ..QpAttr::default()
    };
    refuse(&pair.left, &attr, "an RNR timer of 32")?;
    same!(
        settled(&pair.left)?,
        before,
        "attributes after a refused RNR timer"
    );
    let fresh = scene.unconnected(&setup)?;
    bring(&fresh, QpState::Rtr)?;
    let rts = setup.to_rts(&fresh.left.endpoint);
    for attr in [
        QpAttr {
            timeout: Some(32),
            ..rts
        },
        QpAttr {
            retry_cnt: Some(8),
            ..rts
        },
        QpAttr {
            rnr_retry: Some(8),
            ..rts
        },
    ] {
        refuse(&fresh.left, &attr, "RTR to RTS with a value out of range")?;
        fresh.left.is_in(QpState::Rtr)?;
    }
    scene.still_works(&pair)
}

fn wrong_current_state<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let wrong = QpAttr {
        state: Some(QpState::Rts),
        cur_state: Some(QpState::Sqd),
        ..QpAttr::default()
    };
    if pair.left.qp.modify(&wrong).is_ok() {
        scene.deviation("a modify that believes RTS to be SQD must be refused, but succeeded".into())?;
    }
    let right = QpAttr {
        state: Some(QpState::Rts),
        cur_state: Some(QpState::Rts),
        ..QpAttr::default()
    };
    pair.left.qp.modify(&right)?;
    scene.still_works(&pair)
}

/// The specification lets software go from everywhere to ERR; Linux refuses it from RESET. Either will do.
fn reset_to_error<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Left, &Setup::default())?;
    match node.go(QpState::Err) {
        Ok(()) => node.is_in(QpState::Err),
        Err(_) => node.is_in(QpState::Reset),
    }
}
