//! The ways between the states, and what each requires and permits.

use verbs_api::{Context as _, ErrorKind, Provider, QpAttr, QpAttrMask, QpState, QpType, QueuePair};

use super::attributes::{every_attribute, merge, optional, without};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Setup, Shared};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The ways that require attributes.
const REQUIRING: [(QpState, QpState); 3] = [
    (QpState::Reset, QpState::Init),
    (QpState::Init, QpState::Rtr),
    (QpState::Rtr, QpState::Rts),
];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "C1",
            "of all 49 transitions exactly the legal ones succeed",
            &["QP-1", "QP-2"],
            |scene| transitions(scene, QpType::Rc),
        ),
        Case::verbs(
            "C2",
            "a missing required attribute is EINVAL",
            &["QP-3"],
            |scene| missing_attributes(scene, QpType::Rc),
        ),
        Case::verbs("C3", "an attribute out of place is EINVAL", &["QP-4"], |scene| {
            extra_attributes(scene, QpType::Rc)
        }),
        Case::verbs(
            "C1-UC",
            "of all 49 transitions exactly the legal ones succeed, over UC",
            &["QP-1", "QP-2"],
            |scene| transitions(scene, QpType::Uc),
        )
        .needing(&[Need::Uc]),
        Case::verbs(
            "C2-UC",
            "a missing required attribute is EINVAL, over UC",
            &["QP-3"],
            |scene| missing_attributes(scene, QpType::Uc),
        )
        .needing(&[Need::Uc]),
        Case::verbs(
            "C3-UC",
            "an attribute out of place is EINVAL, over UC",
            &["QP-4"],
            |scene| extra_attributes(scene, QpType::Uc),
        )
        .needing(&[Need::Uc]),
        Case::verbs(
            "C1-UD",
            "of all 49 transitions exactly the legal ones succeed, over UD",
            &["QP-1", "QP-2"],
            |scene| transitions(scene, QpType::Ud),
        )
        .needing(&[Need::Ud]),
        Case::verbs(
            "C2-UD",
            "a missing required attribute is EINVAL, over UD",
            &["QP-3"],
            |scene| missing_attributes(scene, QpType::Ud),
        )
        .needing(&[Need::Ud]),
        Case::verbs(
            "C3-UD",
            "an attribute out of place is EINVAL, over UD",
            &["QP-4"],
            |scene| extra_attributes(scene, QpType::Ud),
        )
        .needing(&[Need::Ud]),
        Case::verbs(
            "C1-INI",
            "of all 49 transitions exactly the legal ones succeed, over an XRC initiator",
            &["QP-1", "QP-2"],
            |scene| transitions(scene, QpType::XrcInitiator),
        )
        .needing(&[Need::Xrc]),
        Case::verbs(
            "C2-INI",
            "a missing required attribute is EINVAL, over an XRC initiator",
            &["QP-3"],
            |scene| missing_attributes(scene, QpType::XrcInitiator),
        )
        .needing(&[Need::Xrc]),
        Case::verbs(
            "C3-INI",
            "an attribute out of place is EINVAL, over an XRC initiator",
            &["QP-4"],
            |scene| extra_attributes(scene, QpType::XrcInitiator),
        )
        .needing(&[Need::Xrc]),
        Case::verbs(
            "C1-TGT",
            "of all 49 transitions exactly the legal ones succeed, over an XRC target",
            &["QP-1", "QP-2"],
            |scene| transitions(scene, QpType::XrcTarget),
        )
        .needing(&[Need::Xrc]),
        Case::verbs(
            "C2-TGT",
            "a missing required attribute is EINVAL, over an XRC target",
            &["QP-3"],
            |scene| missing_attributes(scene, QpType::XrcTarget),
        )
        .needing(&[Need::Xrc]),
        Case::verbs(
            "C3-TGT",
            "an attribute out of place is EINVAL, over an XRC target",
            &["QP-4"],
            |scene| extra_attributes(scene, QpType::XrcTarget),
        )
        .needing(&[Need::Xrc]),
    ]
}

/// A queue pair of this type at the left end, and something to connect it to.
fn specimen<B: Testbed>(scene: &Scene<B>, qp_type: QpType) -> Result<Pair<B::P>, Failure> {
    let setup = Setup::of(qp_type);
    let left = if qp_type == QpType::XrcTarget {
        let domain = scene.context(Side::Left).open_xrc_domain(None)?;
        let shared = Shared {
            xrc_domain: Some(&domain),
            ..Shared::default()
        };
        scene.node_sharing(Side::Left, &setup, &shared)?
    } else {
        scene.node(Side::Left, &setup)?
    };
    let right = scene.node(Side::Right, &Setup::default())?;
    Ok(Pair { left, right, setup })
}

/// A legal way to put a queue pair in each state.
pub(super) fn bring<P: Provider>(pair: &Pair<P>, state: QpState) -> Result<bool, Failure> {
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
        QpState::Sqe => return Ok(false), // no modify leads there
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

fn transitions<B: Testbed>(scene: &mut Scene<B>, qp_type: QpType) -> CaseResult {
    for from in QpState::ALL {
        for to in QpState::ALL {
            let pair = specimen(scene, qp_type)?;
            if !bring(&pair, from)? || (from, to) == (QpState::Reset, QpState::Err) {
                continue;
            }
            pair.left.is_in(from)?;
            let before = settled(&pair.left)?;
            let answer = pair.left.qp.modify(&attributes(&pair, from, to));
            let what = format!("{from:?} to {to:?}");
            match (answer, legal(from, to)) {
                (Ok(()), true) => pair.left.is_in(to).map_err(|e| e.during(what))?,
                (Err(error), false) => {
                    same!(error.kind(), ErrorKind::Invalid, "error of {what} ({error})");
                    same!(
                        settled(&pair.left)?,
                        before,
                        "attributes after {what} was refused"
                    );
                }
                (Ok(()), false) => scene.deviation(format!("{what} must be refused, but succeeded"))?,
                (Err(error), true) => return Err(Failure::new(format!("{what} must succeed: {error}"))),
            }
        }
    }
    Ok(())
}

fn missing_attributes<B: Testbed>(scene: &mut Scene<B>, qp_type: QpType) -> CaseResult {
    for (from, to) in REQUIRING {
        let pair = specimen(scene, qp_type)?;
        bring(&pair, from)?;
        let whole = attributes(&pair, from, to);
        let before = settled(&pair.left)?;
        for mask in (whole.mask() - QpAttrMask::STATE).iter() {
            let what = format!("{from:?} to {to:?} without {mask:?}");
            refuse(&pair.left, &without(whole, mask), &what)?;
            same!(
                settled(&pair.left)?,
                before,
                "attributes after {what} was refused"
            );
        }
        pair.left.qp.modify(&whole)?;
        pair.left.is_in(to)?;
    }
    Ok(())
}

/// The attributes, but for whether a send queue is draining, which changes by itself.
pub(super) fn settled<P: Provider>(node: &Node<P>) -> Result<QpAttr, Failure> {
    Ok(QpAttr {
        sq_draining: false,
        ..node.qp.query()?
    })
}

/// The modify must be refused with EINVAL.
pub(super) fn refuse<P: Provider>(node: &Node<P>, attr: &QpAttr, what: &str) -> CaseResult {
    match node.qp.modify(attr) {
        Ok(()) => Err(Failure::new(format!("{what} must be refused, but succeeded"))),
        Err(error) => {
            same!(error.kind(), ErrorKind::Invalid, "error of {what} ({error})");
            Ok(())
        }
    }
}

/// EINVAL; of a limit of the rate also EOPNOTSUPP, where there is none.
fn is_refused(answer: Result<(), verbs_api::Error>, mask: QpAttrMask, what: &str) -> CaseResult {
    match answer {
        Ok(()) => Err(Failure::new(format!("{what} must be refused, but succeeded"))),
        Err(error) if mask == QpAttrMask::RATE_LIMIT && error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => {
            same!(error.kind(), ErrorKind::Invalid, "error of {what} ({error})");
            Ok(())
        }
    }
}

/// Attributes of the half that an XRC queue pair has not got. On the way through the kernel's interface they are taken
/// away, so that they are refused or without effect.
fn unlooked_at(qp_type: QpType) -> QpAttrMask {
    match qp_type {
        QpType::XrcInitiator => QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
        QpType::XrcTarget => QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY,
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi | QpType::RawPacket => QpAttrMask::empty(),
    }
}

fn extra_attributes<B: Testbed>(scene: &mut Scene<B>, qp_type: QpType) -> CaseResult {
    use QpState as S;
    let transitions = [
        (S::Reset, S::Init),
        (S::Init, S::Init),
        (S::Init, S::Rtr),
        (S::Rtr, S::Rts),
        (S::Rts, S::Rts),
        (S::Rts, S::Sqd),
        (S::Sqd, S::Sqd),
        (S::Sqd, S::Rts),
        (S::Rts, S::Err),
        (S::Rts, S::Reset),
    ];
    for (from, to) in transitions {
        let mut pair = specimen(scene, qp_type)?;
        bring(&pair, from)?;
        let whole = attributes(&pair, from, to);
        let mut before = settled(&pair.left)?;
        for (mask, extra) in every_attribute(&pair) {
            if whole.mask().contains(mask) || optional(qp_type, from, to).contains(mask) {
                continue;
            }
            let what = format!("{from:?} to {to:?} with {mask:?}");
            let answer = pair.left.qp.modify(&merge(whole, &extra));
            if answer.is_ok() && unlooked_at(qp_type).contains(mask) {
                pair.left.is_in(to).map_err(|e| e.during(what))?;
                // As at first, for the next one.
                let another = specimen(scene, qp_type)?;
                bring(&another, from)?;
                pair = another;
                before = settled(&pair.left)?;
                continue;
            }
            is_refused(answer, mask, &what)?;
            same!(
                settled(&pair.left)?,
                before,
                "attributes after {what} was refused"
            );
        }
    }
    Ok(())
}
