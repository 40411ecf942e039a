//! ATOMIC WRITE and FLUSH.

use verbs_api::{Access, ErrorKind, QpState, QueuePair, RemoteAddr, SendOp, SendWr, WcOpcode, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, all_remote, full_access, pattern, same_bytes, write};
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};
use crate::{check, same};

const ATOMIC_WRITE: &[Need] = &[Need::AtomicWrite];
const FLUSH: &[Need] = &[Need::Flush];
/// `IBV_FLUSH_GLOBAL`.
const GLOBAL: u32 = 1;
/// `IBV_FLUSH_PERSISTENT`.
const PERSISTENT: u32 = 2;

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "D21",
            "an ATOMIC WRITE stores one word",
            &["AWRITE-1"],
            atomic_write,
        )
        .needing(ATOMIC_WRITE)
        .of_priority(2),
        Case::verbs(
            "D21-BAD",
            "an ATOMIC WRITE of another length, to an odd address or without right is refused",
            &["AWRITE-2"],
            bad_atomic_write,
        )
        .needing(ATOMIC_WRITE)
        .of_priority(2),
        Case::verbs(
            "D21-FLUSH",
            "a FLUSH completes behind the WRITEs before it",
            &["FLUSHOP-1"],
            flush,
        )
        .needing(FLUSH)
        .of_priority(2),
        Case::verbs(
            "D21-FLUSH-BAD",
            "a FLUSH without right, or beyond the region, is refused",
            &["FLUSHOP-2"],
            bad_flush,
        )
        .needing(FLUSH)
        .of_priority(2),
    ]
}

fn atomic_write<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(64, full_access())?,
        pair.right.region(64, full_access())?,
    );
    own.scribble(1);
    for n in 0..8usize {
        let op = SendOp::AtomicWrite {
            remote: far.remote(8 * n),
        };
        pair.left.send(1, op, &[own.sge(8 * n..8 * n + 8)])?;
        let wc = scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same!(wc.opcode, WcOpcode::AtomicWrite, "opcode of an ATOMIC WRITE");
    }
    same_bytes("the written words", &far.buffer.to_vec(0..64), &pattern(1, 64))?;
    // More than may be outstanding at once.
    let op = SendOp::AtomicWrite {
        remote: far.remote(0),
    };
    for wr_id in 0..20u64 {
        pair.left.send_inline(wr_id, op, &wr_id.to_ne_bytes())?;
    }
    for wr_id in 0..20 {
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    same!(far.buffer.load_u64(0), 19, "the word after twenty ATOMIC WRITEs");
    scene.still_works(&pair)
}

fn bad_atomic_write<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Another length is refused here.
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(64, full_access())?,
        pair.right.region(64, full_access())?,
    );
    let op = SendOp::AtomicWrite {
        remote: far.remote(0),
    };
    for length in [0usize, 4, 7, 9, 16] {
        let sges = [own.sge(0..length)];
        match pair.left.qp.post_send(&[SendWr::new(1, op, &sges)]) {
            Err(refused) => same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error of {length} bytes ({})",
                refused.error
            ),
            Ok(()) => {
                scene.ends_with(&pair.left.send_cq, 1, WcStatus::LocLenErr)?;
            }
        }
    }
    // Address and rights are refused by the peer.
    for (what, offset, qp, region, expected) in [
        (
            "an odd address",
            4usize,
            all_remote(),
            full_access(),
            WcStatus::RemInvReqErr,
        ),
        (
            "a queue pair without REMOTE_WRITE",
            0,
            Access::REMOTE_READ,
            full_access(),
            WcStatus::RemInvReqErr,
        ),
        (
            "a region without REMOTE_WRITE",
            0,
            all_remote(),
            Access::LOCAL_WRITE | Access::REMOTE_READ,
            WcStatus::RemAccessErr,
        ),
    ] {
        let pair = scene.pair(&Setup {
            access: qp,
            ..Setup::default()
        })?;
        let far = pair.right.region(64, region)?;
        let op = SendOp::AtomicWrite {
            remote: far.remote(offset),
        };
        pair.left.send_inline(1, op, &[9; 8])?;
        scene
            .ends_with(&pair.left.send_cq, 1, expected)
            .map_err(|e| e.during(what))?;
        same_bytes(what, &far.buffer.to_vec(0..64), &[0; 64])?;
        pair.left.is_in(QpState::Err)?;
    }
    Ok(())
}

fn flush_of<'a, P: verbs_api::Provider>(
    remote: RemoteAddr,
    length: u32,
    placement: u32,
    whole_mr: bool,
) -> SendOp<'a, P> {
    SendOp::Flush {
        remote,
        length,
        placement,
        whole_mr,
    }
}

fn flush_setup() -> Setup {
    Setup {
        access: all_remote() | Access::FLUSH_GLOBAL,
        ..Setup::default()
    }
}

fn flush<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&flush_setup())?;
    let own = pair.left.region(10_000, full_access())?;
    let far = pair.right.region(10_000, full_access() | Access::FLUSH_GLOBAL)?;
    own.scribble(1);
    for (wr_id, whole_mr) in [(1u64, false), (3, true)] {
        pair.left.send(wr_id, write(far.remote(0)), &[own.whole()])?;
        let op = flush_of(far.remote(0), 10_000, GLOBAL, whole_mr);
        pair.left.send(wr_id + 1, op, &[])?;
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.left.send_cq, wr_id + 1, WcStatus::Success)?;
        same!(wc.opcode, WcOpcode::Flush, "opcode of a FLUSH");
        same_bytes(
            "what was flushed",
            &far.buffer.to_vec(0..10_000),
            &pattern(1, 10_000),
        )?;
        far.buffer.fill(0..10_000, 0);
    }
    scene.still_works(&pair)
}

fn bad_flush<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let both = full_access() | Access::FLUSH_GLOBAL;
    for (what, qp, region, length, placement, expected) in [
        (
            "a queue pair without the right",
            all_remote(),
            both,
            8,
            GLOBAL,
            WcStatus::RemInvReqErr,
        ),
        (
            "a region without the right",
            flush_setup().access,
            full_access(),
            8,
            GLOBAL,
            WcStatus::RemAccessErr,
        ),
        (
            "more than the region",
            flush_setup().access,
            both,
            65,
            GLOBAL,
            WcStatus::RemAccessErr,
        ),
    ] {
        let pair = scene.pair(&Setup {
            access: qp,
            ..Setup::default()
        })?;
        let far = pair.right.region(64, region)?;
        let op = flush_of(far.remote(0), length, placement, false);
        pair.left.send(1, op, &[])?;
        scene
            .ends_with(&pair.left.send_cq, 1, expected)
            .map_err(|e| e.during(what))?;
        pair.left.is_in(QpState::Err)?;
    }
    // A whole region, of which no part is named.
    for (what, access, key_change) in [
        ("a whole region without the right", full_access(), 0),
        ("a whole region by another's key", both, 1 << 8),
    ] {
        let pair = scene.pair(&flush_setup())?;
        let far = pair.right.region(64, access)?;
        let mut remote = far.remote(0);
        remote.rkey.0 ^= key_change;
        pair.left.send(1, flush_of(remote, 8, GLOBAL, true), &[])?;
        scene
            .ends_with(&pair.left.send_cq, 1, WcStatus::RemAccessErr)
            .map_err(|e| e.during(what))?;
    }
    flush_to_persistence(scene)?;
    let pair = scene.pair(&flush_setup())?;
    let far = pair.right.region(64, both)?;
    let op = flush_of(far.remote(0), 8, 0, false);
    match pair.left.qp.post_send(&[SendWr::new(1, op, &[])]) {
        Ok(()) => Err(Failure::new("a FLUSH of no kind was accepted")),
        Err(refused) => {
            same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error ({})",
                refused.error
            );
            Ok(())
        }
    }
}

/// Where only visibility is permitted.
fn flush_to_persistence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&flush_setup())?;
    let far = pair.right.region(64, full_access() | Access::FLUSH_GLOBAL)?;
    let op = flush_of(far.remote(0), 8, PERSISTENT, false);
    match pair.left.qp.post_send(&[SendWr::new(1, op, &[])]) {
        Err(refused) => check!(
            matches!(refused.error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported),
            "error of a FLUSH to persistence: {}",
            refused.error
        ),
        Ok(()) => {
            let wc = scene.completion(&pair.left.send_cq)?;
            check!(
                matches!(wc.status, WcStatus::RemInvReqErr | WcStatus::RemAccessErr),
                "a FLUSH to persistence without the right ended with {:?}",
                wc.status
            );
        }
    }
    Ok(())
}
