//! The states of a reliable connected queue pair and the way between them.

use std::time::Duration;

use verbs_api::{
    Access, ErrorKind, EventKind, MigState, Provider, QpAttr, QpAttrMask, QpState, QueuePair, RecvWr, SendOp,
    SendWr, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Setup, all_remote, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};
use crate::{check, same};

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
        Case::verbs(
            "C6",
            "post_send before RTS is refused and leaves nothing",
            &["QP-6"],
            early_sends,
        ),
        Case::verbs(
            "C7",
            "post_recv is refused in RESET and kept in INIT",
            &["QP-7"],
            early_receives,
        ),
        Case::verbs(
            "C9",
            "the first packet in RTR is served and raises COMM_EST",
            &["QP-8"],
            communication_established,
        )
        .of_priority(2),
        Case::verbs(
            "C11",
            "sends posted in SQD wait for RTS",
            &["QP-9"],
            drained_queue_waits,
        ),
        Case::verbs(
            "C11-notify",
            "SQ_DRAINED comes exactly when asked for",
            &["QP-10"],
            drained_event,
        )
        .of_priority(2),
        Case::verbs("C20", "query returns what was set", &["QP-11"], query).of_priority(2),
        Case::verbs(
            "C26",
            "a peer in RESET, INIT or ERR stays silent",
            &["QP-12", "RETRY-1"],
            silent_states,
        ),
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

/// Every attribute with a harmless value.
fn every_attribute<P: Provider>(pair: &Pair<P>) -> Vec<(QpAttrMask, QpAttr)> {
    let (setup, own, peer) = (&pair.setup, &pair.left.endpoint, &pair.right.endpoint);
    let (init, rtr, rts) = (
        setup.to_init(own.gid.port),
        setup.to_rtr(own, peer),
        setup.to_rts(own),
    );
    let none = QpAttr::default();
    vec![
        (
            QpAttrMask::ACCESS_FLAGS,
            QpAttr {
                access: init.access,
                ..none
            },
        ),
        (
            QpAttrMask::PKEY_INDEX,
            QpAttr {
                pkey_index: init.pkey_index,
                ..none
            },
        ),
        (
            QpAttrMask::PORT,
            QpAttr {
                port: init.port,
                ..none
            },
        ),
        (
            QpAttrMask::QKEY,
            QpAttr {
                qkey: Some(0x1111),
                ..none
            },
        ),
        (QpAttrMask::AV, QpAttr { av: rtr.av, ..none }),
        (
            QpAttrMask::PATH_MTU,
            QpAttr {
                path_mtu: rtr.path_mtu,
                ..none
            },
        ),
        (
            QpAttrMask::TIMEOUT,
            QpAttr {
                timeout: rts.timeout,
                ..none
            },
        ),
        (
            QpAttrMask::RETRY_CNT,
            QpAttr {
                retry_cnt: rts.retry_cnt,
                ..none
            },
        ),
        (
            QpAttrMask::RNR_RETRY,
            QpAttr {
                rnr_retry: rts.rnr_retry,
                ..none
            },
        ),
        (
            QpAttrMask::RQ_PSN,
            QpAttr {
                rq_psn: rtr.rq_psn,
                ..none
            },
        ),
        (
            QpAttrMask::MAX_QP_RD_ATOMIC,
            QpAttr {
                max_rd_atomic: rts.max_rd_atomic,
                ..none
            },
        ),
        (
            QpAttrMask::MIN_RNR_TIMER,
            QpAttr {
                min_rnr_timer: rtr.min_rnr_timer,
                ..none
            },
        ),
        (
            QpAttrMask::SQ_PSN,
            QpAttr {
                sq_psn: rts.sq_psn,
                ..none
            },
        ),
        (
            QpAttrMask::MAX_DEST_RD_ATOMIC,
            QpAttr {
                max_dest_rd_atomic: rtr.max_dest_rd_atomic,
                ..none
            },
        ),
        (
            QpAttrMask::PATH_MIG_STATE,
            QpAttr {
                path_mig_state: Some(MigState::Migrated),
                ..none
            },
        ),
        (
            QpAttrMask::DEST_QPN,
            QpAttr {
                dest_qpn: rtr.dest_qpn,
                ..none
            },
        ),
    ]
}

fn merge(mut base: QpAttr, extra: &QpAttr) -> QpAttr {
    base.access = extra.access.or(base.access);
    base.pkey_index = extra.pkey_index.or(base.pkey_index);
    base.port = extra.port.or(base.port);
    base.qkey = extra.qkey.or(base.qkey);
    base.av = extra.av.or(base.av);
    base.path_mtu = extra.path_mtu.or(base.path_mtu);
    base.timeout = extra.timeout.or(base.timeout);
    base.retry_cnt = extra.retry_cnt.or(base.retry_cnt);
    base.rnr_retry = extra.rnr_retry.or(base.rnr_retry);
    base.rq_psn = extra.rq_psn.or(base.rq_psn);
    base.max_rd_atomic = extra.max_rd_atomic.or(base.max_rd_atomic);
    base.min_rnr_timer = extra.min_rnr_timer.or(base.min_rnr_timer);
    base.sq_psn = extra.sq_psn.or(base.sq_psn);
    base.max_dest_rd_atomic = extra.max_dest_rd_atomic.or(base.max_dest_rd_atomic);
    base.path_mig_state = extra.path_mig_state.or(base.path_mig_state);
    base.dest_qpn = extra.dest_qpn.or(base.dest_qpn);
    base
}

/// What each transition of RC permits beyond what it requires.
fn optional(from: QpState, to: QpState) -> QpAttrMask {
    use QpAttrMask as M;
    match (from, to) {
        (QpState::Init, QpState::Init) => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        (QpState::Init, QpState::Rtr) => M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX,
        (QpState::Rtr | QpState::Rts, QpState::Rts) | (QpState::Sqd, QpState::Rts) => {
            M::CUR_STATE | M::ALT_PATH | M::ACCESS_FLAGS | M::PATH_MIG_STATE | M::MIN_RNR_TIMER
        }
        (QpState::Rts, QpState::Sqd) => M::EN_SQD_ASYNC_NOTIFY,
        _ => M::empty(),
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

fn early_sends<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.unconnected(&setup)?;
    let (left, right) = (&pair.left, &pair.right);
    right.connect(&setup, &left.endpoint)?;
    let sink = right.region(64, Access::LOCAL_WRITE)?;
    right.recv(1, &[sink.whole()])?;

    let try_to_send = |state: QpState| -> CaseResult {
        let send = SendWr::inline(13, SendOp::Send { imm: None }, b"too early");
        match left.qp.post_send(&[send, send]) {
            Ok(()) => Err(Failure::new(format!(
                "post_send in {state:?} must be refused, but succeeded"
            ))),
            Err(refused) => {
                same!(refused.posted, 0, "requests accepted in {state:?}");
                same!(
                    refused.error.kind(),
                    ErrorKind::Invalid,
                    "error of post_send in {state:?} ({})",
                    refused.error
                );
                Ok(())
            }
        }
    };
    try_to_send(QpState::Reset)?;
    left.init(&setup)?;
    try_to_send(QpState::Init)?;
    left.rtr(&setup, &right.endpoint)?;
    try_to_send(QpState::Rtr)?;
    left.rts(&setup)?;
    scene.quiet(&[&left.send_cq, &right.recv_cq], Duration::from_millis(20))?;

    left.qp
        .post_send(&[SendWr::inline(2, SendOp::Send { imm: None }, b"in time")])?;
    scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
    let wc = scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    same!(wc.byte_len, 7, "bytes of the only message that arrives");
    same_bytes("the only message", &sink.buffer.to_vec(0..7), b"in time")
}

fn early_receives<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.unconnected(&setup)?;
    let (left, right) = (&pair.left, &pair.right);
    let sink = right.region(64, Access::LOCAL_WRITE)?;
    let sges = [sink.whole()];
    match right.qp.post_recv(&[RecvWr {
        wr_id: 1,
        sges: &sges,
    }]) {
        Ok(()) => scene.deviation("post_recv in RESET must be refused, but succeeded".into())?,
        Err(refused) => {
            same!(refused.posted, 0, "receives accepted in RESET");
            same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error of post_recv in RESET ({})",
                refused.error
            );
        }
    }
    right.init(&setup)?;
    right.recv(2, &sges)?;
    right.rtr(&setup, &left.endpoint)?;
    left.connect(&setup, &right.endpoint)?;
    left.qp
        .post_send(&[SendWr::inline(3, SendOp::Send { imm: None }, b"hello")])?;
    scene.ends_with(&left.send_cq, 3, WcStatus::Success)?;
    scene.ends_with(&right.recv_cq, 2, WcStatus::Success)?;
    same_bytes("the message", &sink.buffer.to_vec(0..5), b"hello")
}

fn communication_established<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.unconnected(&setup)?;
    let (left, right) = (&pair.left, &pair.right);
    right.init(&setup)?;
    right.rtr(&setup, &left.endpoint)?;
    left.connect(&setup, &right.endpoint)?;
    let sink = right.region(64, Access::LOCAL_WRITE)?;
    right.recv(1, &[sink.whole()])?;
    left.qp
        .post_send(&[SendWr::inline(2, SendOp::Send { imm: None }, b"first")])?;
    scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    scene.qp_event(Side::Right, right.endpoint.qpn, EventKind::CommEst)?;
    right.is_in(QpState::Rtr)?;
    right.rts(&setup)?;
    scene.still_works(&pair)
}

fn drained_queue_waits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (left, right) = (&pair.left, &pair.right);
    let sink = right.region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    left.go(QpState::Sqd)?;
    left.is_in(QpState::Sqd)?;
    for n in 0..4u64 {
        let op = SendOp::Write {
            remote: sink.remote(n as usize),
            imm: None,
        };
        left.qp.post_send(&[SendWr::inline(n, op, &[n as u8 + 1])])?;
    }
    scene.quiet(&[&left.send_cq], Duration::from_millis(20))?;
    same_bytes(
        "memory of the peer during SQD",
        &sink.buffer.to_vec(0..4),
        &[0; 4],
    )?;
    left.go(QpState::Rts)?;
    for n in 0..4 {
        scene.ends_with(&left.send_cq, n, WcStatus::Success)?;
    }
    same_bytes(
        "memory of the peer after SQD",
        &sink.buffer.to_vec(0..4),
        &[1, 2, 3, 4],
    )?;
    scene.still_works(&pair)
}

fn drained_event<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for asked in [false, true] {
        let pair = scene.pair(&Setup::default())?;
        let qpn = pair.left.endpoint.qpn;
        let attr = QpAttr {
            state: Some(QpState::Sqd),
            en_sqd_async_notify: asked.then_some(true),
            ..QpAttr::default()
        };
        pair.left.qp.modify(&attr)?;
        if asked {
            scene.qp_event(Side::Left, qpn, EventKind::SqDrained)?;
        } else {
            scene.rest(Duration::from_millis(20));
            let events = scene.other_events(Side::Left)?;
            if events.iter().any(|e| e.kind == EventKind::SqDrained) {
                scene.deviation("SQ_DRAINED came though nobody asked for it".into())?;
            }
        }
        check!(
            !pair.left.qp.query()?.sq_draining,
            "an empty send queue is still draining"
        );
        pair.left.go(QpState::Rts)?;
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn query<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        min_rnr_timer: 5,
        retry_cnt: 6,
        rnr_retry: 2,
        timeout: 17,
        ..Setup::default()
    };
    let pair = scene.pair(&setup)?;
    let seen = pair.left.qp.query()?;
    same!(seen.state, Some(QpState::Rts), "state");
    same!(seen.path_mtu, Some(setup.mtu), "path MTU");
    same!(seen.dest_qpn, Some(pair.right.endpoint.qpn), "peer");
    same!(seen.access, Some(all_remote()), "access");
    same!(seen.timeout, Some(17), "timeout");
    same!(seen.retry_cnt, Some(6), "retry count");
    same!(seen.rnr_retry, Some(2), "RNR retry count");
    same!(seen.min_rnr_timer, Some(5), "RNR timer");
    same!(seen.pkey_index, Some(0), "P_Key index");
    same!(seen.port, Some(pair.left.endpoint.gid.port), "port");
    same!(
        seen.av.and_then(|av| av.dgid),
        Some(pair.right.endpoint.gid.gid),
        "destination GID"
    );
    check!(
        seen.max_rd_atomic.is_some_and(|n| n >= setup.rd_atomic),
        "max_rd_atomic is {:?}",
        seen.max_rd_atomic
    );
    check!(
        seen.max_dest_rd_atomic.is_some_and(|n| n >= setup.rd_atomic),
        "max_dest_rd_atomic is {:?}",
        seen.max_dest_rd_atomic
    );
    let cap = seen.cap.unwrap_or(pair.left.qp.cap());
    check!(
        cap.max_send_wr >= setup.cap.max_send_wr && cap.max_recv_wr >= setup.cap.max_recv_wr,
        "granted {cap:?}, less than asked"
    );
    Ok(())
}

fn silent_states<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        for operation in 0..3 {
            one_silent_state(scene, state, operation)
                .map_err(|e| e.during(format!("peer in {state:?}, operation {operation}")))?;
        }
    }
    Ok(())
}

fn one_silent_state<B: Testbed>(scene: &mut Scene<B>, state: QpState, operation: u8) -> CaseResult {
    let setup = Setup::impatient();
    let pair = scene.unconnected(&setup)?;
    let (left, right) = (&pair.left, &pair.right);
    let source = left.region(64, crate::pair::full_access())?;
    let sink = right.region(64, crate::pair::full_access())?;
    sink.scribble(5);
    match state {
        QpState::Init => right.init(&setup)?,
        QpState::Err => {
            right.init(&setup)?;
            right.go(QpState::Err)?;
        }
        _ => {}
    }
    left.connect(&setup, &right.endpoint)?;
    let remote = sink.remote(0);
    let op = match operation {
        0 => SendOp::Send { imm: None },
        1 => SendOp::Write { remote, imm: None },
        _ => SendOp::Read { remote },
    };
    left.send(1, op, &[source.whole()])?;
    left.send(2, SendOp::Send { imm: None }, &[source.whole()])?;
    scene.ends_with_or(&left.send_cq, 1, WcStatus::RetryExcErr, &[WcStatus::RemOpErr])?;
    scene.ends_with(&left.send_cq, 2, WcStatus::WrFlushErr)?;
    left.is_in(QpState::Err)?;
    right.is_in(state)?;
    same_bytes(
        "memory of the silent peer",
        &sink.buffer.to_vec(0..64),
        &pattern(5, 64),
    )
}
