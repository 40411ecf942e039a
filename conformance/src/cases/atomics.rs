//! Atomics.

use verbs_api::{QueuePair, SendOp, SendWr, WcOpcode, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    const NEEDS: &[Need] = &[Need::Atomics];
    vec![
        Case::verbs("D7-CAS", "compare and swap", &["ATOMIC-1"], compare_swap).needing(NEEDS),
        Case::verbs("D7-FAA", "fetch and add wraps", &["ATOMIC-2"], fetch_add).needing(NEEDS),
        Case::verbs(
            "D8",
            "two requesters add to one word and none is lost",
            &["ATOMIC-3"],
            two_requesters,
        )
        .needing(NEEDS),
    ]
}

fn compare_swap<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(64, full_access())?,
        pair.right.region(64, full_access())?,
    );
    // (before, compare, swap, after)
    let table = [
        (5u64, 5u64, 9u64, 9u64),
        (5, 6, 9, 5),
        (0, 0, u64::MAX, u64::MAX),
        (
            0x0102_0304_0506_0708,
            0x0102_0304_0506_0708,
            0x1112_1314_1516_1718,
            0x1112_1314_1516_1718,
        ),
        (
            0x0102_0304_0506_0708,
            0x0807_0605_0403_0201,
            1,
            0x0102_0304_0506_0708,
        ),
    ];
    for (before, compare, swap, after) in table {
        far.buffer.fill(0..64, 0x55);
        far.buffer.store_u64(8, before);
        own.buffer.fill(0..64, 0);
        let op = SendOp::CompareSwap {
            remote: far.remote(8),
            compare,
            swap,
        };
        pair.left.send(1, op, &[own.sge(16..24)])?;
        let wc = scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same!((wc.opcode, wc.byte_len), (WcOpcode::CompSwap, 8), "completion");
        same!(
            own.buffer.load_u64(16),
            before,
            "old value of {before:#x} compared with {compare:#x}"
        );
        same!(
            far.buffer.load_u64(8),
            after,
            "new value of {before:#x} compared with {compare:#x}"
        );
        same!(far.buffer.load_u64(0), 0x5555_5555_5555_5555, "word before");
        same!(far.buffer.load_u64(16), 0x5555_5555_5555_5555, "word behind");
        same!(
            (own.buffer.load_u64(8), own.buffer.load_u64(24)),
            (0, 0),
            "own words beside the answer"
        );
    }
    scene.still_works(&pair)
}

fn fetch_add<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(64, full_access())?,
        pair.right.region(64, full_access())?,
    );
    for (before, add) in [
        (0u64, 1u64),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1 << 63, 1 << 63),
        (7, 0),
        (0xffff_ffff, 1),
    ] {
        far.buffer.store_u64(24, before);
        pair.left.send(
            1,
            SendOp::FetchAdd {
                remote: far.remote(24),
                add,
            },
            &[own.sge(0..8)],
        )?;
        let wc = scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same!((wc.opcode, wc.byte_len), (WcOpcode::FetchAdd, 8), "completion");
        same!(
            own.buffer.load_u64(0),
            before,
            "old value of {before:#x} + {add:#x}"
        );
        same!(
            far.buffer.load_u64(24),
            before.wrapping_add(add),
            "new value of {before:#x} + {add:#x}"
        );
    }
    scene.still_works(&pair)
}

fn two_requesters<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const EACH: usize = 1000;
    let setup = Setup::default();
    // One requester at each end; the word lives at the right end, which so adds to its own device's memory too.
    let (first, second) = (scene.pair(&setup)?, scene.unconnected(&setup)?);
    let second = crate::pair::Pair {
        right: scene.node_with(
            Side::Right,
            &setup,
            &first.right.pd,
            &first.right.send_cq,
            &first.right.recv_cq,
        )?,
        ..second
    };
    second.left.connect(&setup, &second.right.endpoint)?;
    second.right.connect(&setup, &second.left.endpoint)?;
    let word = first.right.region(8, full_access())?;
    let results = [
        first.left.region(8 * EACH, full_access())?,
        second.left.region(8 * EACH, full_access())?,
    ];
    let nodes = [&first.left, &second.left];
    let (mut posted, mut done) = ([0usize; 2], [0usize; 2]);
    while done != [EACH; 2] {
        for n in 0..2 {
            while posted[n] < EACH && posted[n] - done[n] < 16 {
                let sges = [results[n].sge(8 * posted[n]..8 * posted[n] + 8)];
                let op = SendOp::FetchAdd {
                    remote: word.remote(0),
                    add: 1 + n as u64 * 1_000_000,
                };
                nodes[n]
                    .qp
                    .post_send(&[SendWr::new(posted[n] as u64, op, &sges)])?;
                posted[n] += 1;
            }
            if done[n] < EACH {
                scene.ends_with(&nodes[n].send_cq, done[n] as u64, WcStatus::Success)?;
                done[n] += 1;
            }
        }
    }
    same!(word.buffer.load_u64(0), EACH as u64 * 1_000_002, "sum");
    let mut seen: Vec<u64> = (0..2 * EACH)
        .map(|n| results[n / EACH].buffer.load_u64(8 * (n % EACH)))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    same!(seen.len(), 2 * EACH, "different old values");
    Ok(())
}
