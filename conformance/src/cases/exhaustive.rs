//! Small worlds, all of them: every combination of fates of the first packets.

use std::time::Duration;

use verbs_api::{Mtu, QueuePair, SendOp, SendWr, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, same_bytes};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::faults(
            "E34-LOSS",
            "every pattern of losses among the first ten packets is survived",
            &["LOSS-1", "LOSS-2", "LOSS-3", "DUP-1", "DUP-3"],
            all_losses,
        )
        .needing(&[Need::Network, Need::Atomics]),
        Case::faults(
            "E34-FATE",
            "every pattern of loss, delay and duplication among the first five packets is survived",
            &["LOSS-1", "LOSS-3", "DUP-1", "DUP-2", "DUP-3", "ACK-2"],
            all_fates,
        )
        .needing(&[Need::Network, Need::Atomics]),
    ]
}

fn all_losses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for pattern in (0..1u32 << 10).step_by(stride(scene)) {
        let fates = (0..10).map(|n| match pattern >> n & 1 {
            0 => Fate::Deliver,
            _ => Fate::Drop,
        });
        one_world(scene, fates.collect())
            .map_err(|e| e.during(format!("losses {pattern:#012b}, first packet last")))?;
    }
    Ok(())
}

fn all_fates<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for pattern in (0..4u32.pow(5)).step_by(stride(scene)) {
        let fates: Vec<Fate> = (0..5)
            .map(|n| match pattern / 4u32.pow(n) % 4 {
                0 => Fate::Deliver,
                1 => Fate::Drop,
                2 => Fate::Duplicate,
                // Behind what is sent within the next ten microseconds or so.
                _ => Fate::Delay(Duration::from_micros(10)),
            })
            .collect();
        let what = format!("fates {fates:?}");
        one_world(scene, fates).map_err(|e| e.during(what))?;
    }
    Ok(())
}

/// All patterns, or some of them where their time-outs take real time. Coprime to 2, so that all fates of all packets
/// are among them.
fn stride<B: Testbed>(scene: &Scene<B>) -> usize {
    scene.virtually(1, 53)
}

/// A SEND, an atomic, a READ and a WRITE with immediate, posted at once; the first packets meet `fates`.
fn one_world<B: Testbed>(scene: &mut Scene<B>, fates: Vec<Fate>) -> CaseResult {
    let setup = Setup {
        mtu: Mtu::Mtu256,
        timeout: scene.virtually(6, 13),
        retry_cnt: 7,
        psn: [0xff_fffd, 0xff_fffe],
        cqe: 16,
        ..Setup::default()
    };
    scene.network().clear_rule();
    let pair = scene.pair(&setup)?;
    let (left, right) = (&pair.left, &pair.right);
    let (own, far) = (
        left.region(2048, full_access())?,
        right.region(2048, full_access())?,
    );
    own.scribble(1);
    far.scribble(2);
    far.buffer.store_u64(1024, 41);
    let expected = own.buffer.to_vec(0..300);
    let held = far.buffer.to_vec(512..1012);
    right.recv(11, &[far.sge(0..400)])?;
    right.recv(12, &[])?;

    let mut fates = fates.into_iter();
    scene
        .network()
        .set_rule(Box::new(move |_| fates.next().unwrap_or(Fate::Deliver)));
    let sges = [
        [own.sge(0..300)],
        [own.sge(1024..1032)],
        [own.sge(512..1012)],
        [own.sge(0..300)],
    ];
    let requests = [
        SendOp::Send { imm: Some(1) },
        SendOp::FetchAdd {
            remote: far.remote(1024),
            add: 1,
        },
        SendOp::Read {
            remote: far.remote(512),
        },
        SendOp::Write {
            remote: far.remote(1100),
            imm: Some(2),
        },
    ];
    let list: Vec<SendWr<'_, B::P>> = requests
        .into_iter()
        .zip(&sges)
        .enumerate()
        .map(|(n, (op, sges))| SendWr::new(n as u64, op, sges))
        .collect();
    left.qp.post_send(&list)?;
    for wr_id in 0..4 {
        scene.ends_with(&left.send_cq, wr_id, WcStatus::Success)?;
    }
    for (wr_id, imm, length) in [(11, 1, 300), (12, 2, 300)] {
        let wc = scene.ends_with(&right.recv_cq, wr_id, WcStatus::Success)?;
        same!(
            (wc.immediate(), wc.byte_len),
            (Some(imm), length),
            "receive {wr_id}"
        );
    }
    same_bytes("the SEND", &far.buffer.to_vec(0..300), &expected)?;
    same_bytes("the READ", &own.buffer.to_vec(512..1012), &held)?;
    same_bytes("the WRITE", &far.buffer.to_vec(1100..1400), &expected)?;
    let words = (own.buffer.load_u64(1024), far.buffer.load_u64(1024));
    same!(words, (41, 42), "old and new value of the atomic");
    // What was delayed or doubled still arrives; nothing may come of it.
    scene.rest(Duration::from_micros(50));
    let late = [
        scene.completions_now(&left.send_cq)?,
        scene.completions_now(&right.recv_cq)?,
    ]
    .concat();
    same!(late.len(), 0, "completions afterwards ({late:?})");
    Ok(())
}
