//! What a queue pair does in each of its states.

use std::time::Duration;

use verbs_api::{Access, ErrorKind, EventKind, QpAttr, QpState, QueuePair, RecvWr, SendOp, SendWr, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, all_remote, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
