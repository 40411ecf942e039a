//! What the requester itself finds wrong, and a peer that never answers.

use std::time::Duration;

use verbs_api::{Access, LKey, Object, QpState, QueuePair, RKey, RemoteAddr, SendOp, SendWr, Sge, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "E30-KEY",
            "a SEND from memory without a valid key ends with LOC_PROT_ERR",
            &["LOCAL-1"],
            bad_source,
        ),
        Case::verbs(
            "E30-READ",
            "a READ into memory that may not be written ends with LOC_PROT_ERR",
            &["LOCAL-2"],
            bad_sink,
        ),
        Case::verbs(
            "E38",
            "a peer that vanished ends requests with RETRY_EXC_ERR in time",
            &["RETRY-1", "RETRY-2", "FLUSH-2"],
            vanished,
        ),
        Case::verbs(
            "E41",
            "with both keys bad, a WRITE fails at home and a READ at the peer",
            &["LOCAL-1", "ACCESS-1"],
            both_keys_bad,
        )
        .of_priority(2),
        Case::verbs(
            "E0-RNR",
            "without a receive a SEND ends with RNR_RETRY_EXC_ERR",
            &["RNR-1", "FLUSH-2"],
            no_receive,
        )
        .of_priority(2),
        Case::verbs(
            "E25",
            "a receive posted during the RNR wait is used",
            &["RNR-2"],
            late_receive,
        ),
    ]
}

/// Request 1 must end with `status`, a request behind it must be flushed.
fn fails_with<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    op: SendOp<'_, B::P>,
    sge: Sge,
    status: WcStatus,
) -> CaseResult {
    let sges = [sge];
    pair.left.qp.post_send(&[
        SendWr::new(1, op, &sges),
        SendWr::inline(2, SendOp::Send { imm: None }, b"behind"),
    ])?;
    scene.ends_with(&pair.left.send_cq, 1, status)?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::WrFlushErr)?;
    pair.left.is_in(QpState::Err)
}

fn bad_source<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for kind in 0..6 {
        let pair = scene.pair(&Setup::impatient())?;
        let own = pair.left.region(4096, full_access())?;
        let stranger = scene.node(crate::testbed::Side::Left, &Setup::default())?;
        let foreign = stranger.region(4096, full_access())?;
        let sink = pair.right.region(8192, full_access())?;
        sink.scribble(4);
        pair.right.recv(7, &[sink.whole()])?;
        let whole = own.whole();
        let (what, sge) = match kind {
            0 => (
                "a key that never was",
                Sge {
                    lkey: LKey(whole.lkey.0 ^ 0x5a5a_5a00),
                    ..whole
                },
            ),
            1 => (
                "key 0",
                Sge {
                    lkey: LKey(0),
                    ..whole
                },
            ),
            2 => (
                "a key with another low byte",
                Sge {
                    lkey: LKey(whole.lkey.0 ^ 1),
                    ..whole
                },
            ),
            3 => ("a region of another domain", foreign.whole()),
            4 => (
                "one byte beyond the end",
                Sge {
                    addr: whole.addr + 4096 - 63,
                    length: 64,
                    ..whole
                },
            ),
            _ => (
                "one byte before the start",
                Sge {
                    addr: whole.addr - 1,
                    length: 64,
                    ..whole
                },
            ),
        };
        let op = if kind % 2 == 0 {
            SendOp::Send { imm: None }
        } else {
            SendOp::Write {
                remote: sink.remote(0),
                imm: None,
            }
        };
        fails_with(scene, &pair, op, sge, WcStatus::LocProtErr).map_err(|e| e.during(what))?;
        same_bytes(what, &sink.buffer.to_vec(0..8192), &pattern(4, 8192))?;
    }
    Ok(())
}

fn bad_sink<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for kind in 0..3 {
        let pair = scene.pair(&Setup::impatient())?;
        let far = pair.right.region(4096, full_access())?;
        far.scribble(1);
        let read_only = pair.left.region(4096, Access::empty())?;
        let own = pair.left.region(4096, Access::LOCAL_WRITE)?;
        own.scribble(8);
        let whole = own.whole();
        let (what, sge) = match kind {
            0 => ("a region without local write", read_only.whole()),
            1 => (
                "half a region too far",
                Sge {
                    addr: whole.addr + 2048,
                    ..whole
                },
            ),
            _ => (
                "key 0",
                Sge {
                    lkey: LKey(0),
                    ..whole
                },
            ),
        };
        let op = SendOp::Read {
            remote: far.remote(0),
        };
        fails_with(scene, &pair, op, sge, WcStatus::LocProtErr).map_err(|e| e.during(what))?;
        same_bytes(what, &read_only.buffer.to_vec(0..4096), &[0; 4096])?;
        same_bytes(what, &own.buffer.to_vec(0..2048), &pattern(8, 4096)[..2048])?;
    }
    Ok(())
}

fn vanished<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Timeout code 12 is 16.8 ms; a try may last up to four times as long, and there are three.
    let setup = Setup {
        timeout: 12,
        retry_cnt: 2,
        ..Setup::default()
    };
    let Pair { left, right, .. } = scene.pair(&setup)?;
    right.qp.destroy()?;
    let source = left.region(64, full_access())?;
    let before = scene.bed.now();
    for wr_id in 0..5 {
        left.send(wr_id, SendOp::Send { imm: None }, &[source.whole()])?;
    }
    scene.ends_with(&left.send_cq, 0, WcStatus::RetryExcErr)?;
    let took = scene.bed.now() - before;
    scene.flushed(&left.send_cq, 1..5)?;
    left.is_in(QpState::Err)?;
    let timeout = Duration::from_nanos(4096 << 12);
    check!(
        took >= 3 * timeout,
        "gave up after {took:?}; three tries last at least {:?}",
        3 * timeout
    );
    let longest = 3 * 4 * timeout + scene.bed.slack();
    check!(
        took <= longest,
        "gave up only after {took:?}; three tries last at most {longest:?}"
    );
    Ok(())
}

fn both_keys_bad<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let nowhere = RemoteAddr {
        addr: 0x1000,
        rkey: RKey(0xdead_be00),
    };
    for (op, status) in [
        (
            SendOp::Write {
                remote: nowhere,
                imm: None,
            },
            WcStatus::LocProtErr,
        ),
        (SendOp::Read { remote: nowhere }, WcStatus::RemAccessErr),
    ] {
        let pair = scene.pair(&Setup::default())?;
        let own = pair.left.region(64, full_access())?;
        fails_with(
            scene,
            &pair,
            op,
            Sge {
                lkey: LKey(0),
                ..own.whole()
            },
            status,
        )?;
    }
    Ok(())
}

fn no_receive<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // RNR timer code 12 is 0.64 ms.
    for rnr_retry in [0u8, 1, 3] {
        let pair = scene.pair(&Setup {
            rnr_retry,
            retry_cnt: 0,
            timeout: 18,
            ..Setup::default()
        })?;
        let source = pair.left.region(64, full_access())?;
        let before = scene.bed.now();
        for wr_id in 0..3 {
            pair.left
                .send(wr_id, SendOp::Send { imm: None }, &[source.whole()])?;
        }
        scene
            .ends_with(&pair.left.send_cq, 0, WcStatus::RnrRetryExcErr)
            .map_err(|e| e.during(format!("rnr_retry {rnr_retry}")))?;
        let took = scene.bed.now() - before;
        let least = Duration::from_micros(640) * u32::from(rnr_retry);
        check!(
            took >= least,
            "gave up after {took:?}; {rnr_retry} waits last at least {least:?}"
        );
        scene.flushed(&pair.left.send_cq, 1..3)?;
        pair.left.is_in(QpState::Err)?;
        pair.right.is_in(QpState::Rts)?;
    }
    Ok(())
}

fn late_receive<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // RNR timer code 30 is 327.68 ms: on a bed in real time the refusal must have happened long before the receive is
    // posted, on a busy machine too.
    let pair = scene.pair(&Setup {
        rnr_retry: 7,
        min_rnr_timer: 30,
        ..Setup::default()
    })?;
    let (source, sink) = (
        pair.left.region(2500, full_access())?,
        pair.right.region(2500, full_access())?,
    );
    source.scribble(9);
    let before = scene.bed.now();
    pair.left
        .send(1, SendOp::Send { imm: Some(5) }, &[source.whole()])?;
    pair.left.send(
        2,
        SendOp::Write {
            remote: sink.remote(0),
            imm: Some(6),
        },
        &[source.sge(0..0)],
    )?;
    scene.quiet(&[&pair.left.send_cq], Duration::from_millis(150))?;
    pair.right.recv(11, &[sink.whole()])?;
    pair.right.recv(12, &[])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    let took = scene.bed.now() - before;
    check!(
        took >= Duration::from_micros(327_680),
        "tried again after {took:?}, less than the RNR timer"
    );
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    let first = scene.ends_with(&pair.right.recv_cq, 11, WcStatus::Success)?;
    let second = scene.ends_with(&pair.right.recv_cq, 12, WcStatus::Success)?;
    same!(
        (first.immediate(), second.immediate()),
        (Some(5), Some(6)),
        "immediates in order"
    );
    same_bytes(
        "the message",
        &sink.buffer.to_vec(0..2500),
        &source.buffer.to_vec(0..2500),
    )?;
    scene.still_works(&pair)
}
