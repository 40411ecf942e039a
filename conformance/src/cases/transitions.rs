//! The ways between the states, and what each requires and permits.

use verbs_api::{Access, ErrorKind, Provider, QpAttr, QpState, QueuePair};

use super::attributes::{every_attribute, merge, optional};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Setup};
use crate::same;
use crate::scene::Scene;
use crate::testbed::Testbed;

const REQUIRED: [(QpState, QpState, &[Strip]); 3] = [
    (
        QpState::Reset,
        QpState::Init,
        &[
            ("pkey_index", |a| a.pkey_index = None),
            ("port", |a| a.port = None),
            ("access", |a| a.access = None),
        ],
    ),
    (
        QpState::Init,
        QpState::Rtr,
        &[
            ("av", |a| a.av = None),
            ("path_mtu", |a| a.path_mtu = None),
            ("dest_qpn", |a| a.dest_qpn = None),
            ("rq_psn", |a| a.rq_psn = None),
            ("max_dest_rd_atomic", |a| a.max_dest_rd_atomic = None),
            ("min_rnr_timer", |a| a.min_rnr_timer = None),
        ],
    ),
    (
        QpState::Rtr,
        QpState::Rts,
        &[
            ("timeout", |a| a.timeout = None),
            ("retry_cnt", |a| a.retry_cnt = None),
            ("rnr_retry", |a| a.rnr_retry = None),
            ("sq_psn", |a| a.sq_psn = None),
            ("max_rd_atomic", |a| a.max_rd_atomic = None),
        ],
    ),
];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "C1",
            "of all 49 transitions exactly the legal ones succeed",
            &["QP-1", "QP-2"],
            transitions,
        ),
        Case::verbs(
            "C2",
            "a missing required attribute is EINVAL",
            &["QP-3"],
            missing_attributes,
        ),
        Case::verbs(
            "C3",
            "an attribute out of place is EINVAL",
            &["QP-4"],
            extra_attributes,
        ),
        Case::verbs(
            "C4",
            "a refused modify changes nothing",
            &["QP-2"],
            refused_modify_changes_nothing,
        ),
        Case::verbs(
            "C5",
            "a wrong current state is EINVAL",
            &["QP-5"],
            wrong_current_state,
        )
        .of_priority(2),
    ]
}

/// A legal way to put a queue pair in each state.
fn bring<P: Provider>(pair: &Pair<P>, state: QpState) -> Result<bool, Failure> {
    let (node, peer, setup) = (&pair.left, &pair.right.endpoint, &pair.setup);
    match state {
        QpState::Reset => {}
        QpState::Init => node.init(setup)?,
        QpState::Rtr => {
            node.init(setup)?;
            node.rtr(setup, peer)?;
        }
        QpState::Rts => node.connect(setup, peer)?,
        QpState::Sqd => {
            node.connect(setup, peer)?;
            node.go(QpState::Sqd)?;
        }
        QpState::Err => {
            node.init(setup)?;
            node.go(QpState::Err)?;
        }
        QpState::Sqe => return Ok(false), // RC never is
    }
    Ok(true)
}

/// The attributes that the transition to `state` needs, as far as it has one.
fn attributes<P: Provider>(pair: &Pair<P>, from: QpState, to: QpState) -> QpAttr {
    let (node, peer, setup) = (&pair.left, &pair.right.endpoint, &pair.setup);
    match (from, to) {
        (QpState::Reset, QpState::Init) => setup.to_init(node.endpoint.gid.port),
        (QpState::Init, QpState::Rtr) => setup.to_rtr(&node.endpoint, peer),
        (QpState::Rtr, QpState::Rts) => setup.to_rts(&node.endpoint),
        _ => QpAttr {
            state: Some(to),
            ..QpAttr::default()
        },
    }
}

fn legal(from: QpState, to: QpState) -> bool {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    matches!(
        (from, to),
        (_, Reset)
            | (Init | Rtr | Rts | Sqd | Err, Err)
            | (Reset | Init, Init)
            | (Init, Rtr)
            | (Rtr | Rts | Sqd, Rts)
            | (Rts | Sqd, Sqd)
    )
}

fn transitions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    for from in QpState::ALL {
        for to in QpState::ALL {
            let pair = scene.unconnected(&setup)?;
            if !bring(&pair, from)? {
                continue;
            }
            pair.left.is_in(from)?;
            let answer = pair.left.qp.modify(&attributes(&pair, from, to));
            let what = format!("{from:?} to {to:?}");
            match (answer, legal(from, to)) {
                (Ok(()), true) => pair.left.is_in(to).map_err(|e| e.during(what))?,
                (Err(error), false) => {
                    same!(error.kind(), ErrorKind::Invalid, "error of {what} ({error})");
                    pair.left.is_in(from).map_err(|e| e.during(what))?;
                }
                (Ok(()), false) => scene.deviation(format!("{what} must be refused, but succeeded"))?,
                (Err(error), true) => return Err(Failure::new(format!("{what} must succeed: {error}"))),
            }
        }
    }
    Ok(())
}

/// The required attributes, by a name and a way to take each away.
type Strip = (&'static str, fn(&mut QpAttr));

fn missing_attributes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    for (from, to, strips) in REQUIRED {
        let pair = scene.unconnected(&setup)?;
        bring(&pair, from)?;
        let whole = attributes(&pair, from, to);
        for (name, strip) in strips {
            let mut attr = whole;
            strip(&mut attr);
            refuse(&pair.left, &attr, &format!("{from:?} to {to:?} without {name}"))?;
            pair.left.is_in(from)?;
        }
        pair.left.qp.modify(&whole)?;
        pair.left.is_in(to)?;
    }
    Ok(())
}

fn refuse<P: Provider>(node: &Node<P>, attr: &QpAttr, what: &str) -> CaseResult {
    match node.qp.modify(attr) {
        Ok(()) => Err(Failure::new(format!("{what} must be refused, but succeeded"))),
        Err(error) => {
            same!(error.kind(), ErrorKind::Invalid, "error of {what} ({error})");
            Ok(())
        }
    }
}

fn extra_attributes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    let setup = Setup::default();
    let transitions = [
        (Reset, Init),
        (Init, Init),
        (Init, Rtr),
        (Rtr, Rts),
        (Rts, Rts),
        (Rts, Sqd),
        (Sqd, Rts),
        (Rts, Err),
        (Rts, Reset),
    ];
    for (from, to) in transitions {
        let pair = scene.unconnected(&setup)?;
        bring(&pair, from)?;
        let whole = attributes(&pair, from, to);
        for (mask, extra) in every_attribute(&pair) {
            if whole.mask().contains(mask) || optional(from, to).contains(mask) {
                continue;
            }
            let what = format!("{from:?} to {to:?} with {mask:?}");
            refuse(&pair.left, &merge(whole, &extra), &what)?;
            pair.left.is_in(from).map_err(|e| e.during(what))?;
        }
    }
    Ok(())
}

fn refused_modify_changes_nothing<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.pair(&setup)?;
    let before = pair.left.qp.query()?;
    let refused = [
        QpAttr {
            state: Some(QpState::Rts),
            access: Some(Access::empty()),
            qkey: Some(7),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::Rts),
            min_rnr_timer: Some(32),
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
            pair.left.qp.query()?,
            before,
            "attributes after a refused modify with {:?}",
            attr.mask()
        );
    }
    // A value out of range is refused as well.
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
