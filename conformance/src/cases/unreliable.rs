//! Unreliable connections: what arrives, what is lost, and what is refused.

use std::time::Duration;

use verbs_api::{
    ErrorKind, LKey, Mtu, QpState, QpType, QueuePair, RKey, RemoteAddr, SendOp, SendWr, Sge, WcFlags,
    WcOpcode, WcStatus,
};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Region, Setup, full_access, pattern, read, same_bytes, send, write};
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Uc];
/// How long to wait for what must not come.
const WHILE: Duration = Duration::from_millis(5);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "G1",
            "over UC, SENDs of any length arrive byte for byte",
            &["UC-1"],
            send_lengths,
        )
        .needing(NEEDS),
        Case::verbs(
            "G1-WRITE",
            "over UC, WRITEs of any length arrive byte for byte",
            &["UC-1"],
            write_lengths,
        )
        .needing(NEEDS),
        Case::verbs(
            "G1-IMM",
            "over UC, immediates arrive with SEND and WRITE",
            &["UC-1", "IMM-1", "IMM-2"],
            immediates,
        )
        .needing(NEEDS),
        Case::verbs(
            "G1-LONE",
            "over UC, requests to a peer that is not there complete all the same",
            &["UC-2"],
            nobody_there,
        )
        .needing(NEEDS),
        Case::verbs(
            "G8",
            "over UC, READs and atomics are refused",
            &["UC-6"],
            refused_operations,
        )
        .needing(NEEDS),
        Case::verbs(
            "G7-V",
            "over UC, what the peer must not do is dropped, and the next message arrives",
            &["UC-5"],
            refused_by_the_peer,
        )
        .needing(NEEDS),
        Case::verbs(
            "G7-LOCAL",
            "over UC, memory without a valid key ends the request with LOC_PROT_ERR",
            &["LOCAL-1"],
            local_error,
        )
        .needing(NEEDS),
    ]
}

/// Message lengths around all packet borders. Nothing holds a sender back, so that a message must fit in the buffers on
/// the way: on a bed that is no simulation long ones may be lost.
fn lengths<B: Testbed>(scene: &Scene<B>) -> Vec<usize> {
    let mut lengths = vec![0, 1, 2, 3, 4, 1023, 1024, 1025, 2048, 4096];
    if scene.bed.has(Need::Network) {
        lengths.extend([1 << 20, (2 << 20) + 3]);
    } else {
        lengths.push(30_001);
    }
    lengths
}

/// Moves messages of every length at every MTU by `exchange`. The sink then holds the bytes of the source, and nothing
/// has changed behind them.
fn every_length<B: Testbed>(
    scene: &mut Scene<B>,
    exchange: impl Fn(&mut Scene<B>, &Pair<B::P>, [&Region<B::P>; 2], usize) -> CaseResult,
) -> CaseResult {
    let lengths = lengths(scene);
    let longest = *lengths.last().unwrap_or(&0);
    for mtu in Mtu::ALL {
        let pair = scene.pair(&Setup {
            mtu,
            ..Setup::of(QpType::Uc)
        })?;
        let source = pair.left.region(longest.max(1), full_access())?;
        let sink = pair.right.region(longest + 16, full_access())?;
        source.scribble(mtu as u64);
        for &length in &lengths {
            let what = format!("{length} bytes at {mtu:?}");
            sink.buffer.fill(0..length + 16, 0xEE);
            exchange(scene, &pair, [&source, &sink], length).map_err(|e| e.during(&what))?;
            same_bytes(
                &what,
                &sink.buffer.to_vec(0..length),
                &source.buffer.to_vec(0..length),
            )?;
            same_bytes(
                "the bytes behind it",
                &sink.buffer.to_vec(length..length + 16),
                &[0xEE; 16],
            )?;
        }
    }
    Ok(())
}

fn send_lengths<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    every_length(scene, |scene, pair, [source, sink], length| {
        pair.right.recv(7, &[sink.whole()])?;
        pair.left.send(100, send(), &[source.sge(0..length)])?;
        scene.ends_with(&pair.left.send_cq, 100, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, 7, WcStatus::Success)?;
        same!(
            (wc.byte_len, wc.opcode, wc.qp_num),
            (length as u32, WcOpcode::Recv, pair.right.endpoint.qpn),
            "length, opcode and queue pair of a receive"
        );
        Ok(())
    })
}

fn write_lengths<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    every_length(scene, |scene, pair, [source, sink], length| {
        pair.left
            .send(1, write(sink.remote(0)), &[source.sge(0..length)])?;
        // The WRITE itself completes nothing at the peer; a SEND behind it tells that it is there.
        pair.right.recv(2, &[])?;
        pair.left.send_inline(3, send(), &[])?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        scene.ends_with(&pair.left.send_cq, 3, WcStatus::Success)?;
        scene.ends_with(&pair.right.recv_cq, 2, WcStatus::Success)?;
        Ok(())
    })
}

fn immediates<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::of(QpType::Uc))?;
    let (source, sink) = (
        pair.left.region(3000, full_access())?,
        pair.right.region(3000, full_access())?,
    );
    source.scribble(8);
    let imm = Some(0x0102_0304);
    for length in [0usize, 5, 3000] {
        let remote = sink.remote(0);
        let operations = [
            (SendOp::Send { imm }, WcOpcode::Recv),
            (SendOp::Write { remote, imm }, WcOpcode::RecvRdmaWithImm),
        ];
        for (op, opcode) in operations {
            sink.buffer.fill(0..3000, 0);
            pair.right.recv(1, &[sink.whole()])?;
            pair.left.send(2, op, &[source.sge(0..length)])?;
            scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
            let wc = scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
            same!(
                (wc.opcode, wc.immediate(), wc.byte_len),
                (opcode, imm, length as u32),
                "opcode, immediate and length of {opcode:?} with {length} bytes"
            );
            check!(
                wc.flags.contains(WcFlags::WITH_IMM),
                "a receive with an immediate must carry the flag, flags are {:?}",
                wc.flags
            );
            same_bytes(
                "the message",
                &sink.buffer.to_vec(0..length),
                &source.buffer.to_vec(0..length),
            )?;
        }
    }
    Ok(())
}

fn nobody_there<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::of(QpType::Uc);
    let pair = scene.unconnected(&setup)?;
    pair.left.connect(&setup, &pair.right.endpoint)?;
    // The right queue pair stays in RESET, where it drops everything.
    let source = pair.left.region(3000, full_access())?;
    for wr_id in 0..100 {
        pair.left.send(wr_id, send(), &[source.whole()])?;
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    pair.left.is_in(QpState::Rts)
}

fn refused_operations<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for which in 0..4 {
        let pair = scene.pair(&Setup::of(QpType::Uc))?;
        let (own, far) = (
            pair.left.region(64, full_access())?,
            pair.right.region(64, full_access())?,
        );
        far.scribble(3);
        let remote = far.remote(0);
        let (name, op) = match which {
            0 => ("READ", read(remote)),
            1 => (
                "compare and swap",
                SendOp::CompareSwap {
                    remote,
                    compare: 0,
                    swap: 1,
                },
            ),
            2 => ("fetch and add", SendOp::FetchAdd { remote, add: 1 }),
            _ => (
                "SEND with invalidate",
                SendOp::SendWithInvalidate { rkey: remote.rkey },
            ),
        };
        refused(scene, &pair, op, &[own.sge(0..8)], name)?;
        same_bytes("the peer's memory", &far.buffer.to_vec(0..64), &pattern(3, 64))?;
    }
    Ok(())
}

/// Posting must be refused with EINVAL (EOPNOTSUPP will do), with nothing posted; or else the request ends with
/// LOC_QP_OP_ERR.
fn refused<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    op: SendOp<'_, B::P>,
    sges: &[Sge],
    name: &str,
) -> CaseResult {
    match pair.left.qp.post_send(&[SendWr::new(1, op, sges)]) {
        Ok(()) => {
            scene
                .ends_with(&pair.left.send_cq, 1, WcStatus::LocQpOpErr)
                .map_err(|e| e.during(format!("{name}, which was accepted")))?;
            scene.quiet(&[&pair.left.send_cq], WHILE)
        }
        Err(refusal) => {
            same!(refusal.posted, 0, "requests accepted before {name}");
            check!(
                matches!(refusal.error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported),
                "{name} must be refused with EINVAL, not {} (errno {})",
                refusal.error,
                refusal.error.errno()
            );
            scene.quiet(&[&pair.left.send_cq], WHILE)?;
            scene.still_works(pair)
        }
    }
}

fn refused_by_the_peer<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::of(QpType::Uc);
    let pair = scene.pair(&setup)?;
    let (own, far) = (
        pair.left.region(3000, full_access())?,
        pair.right.region(3000, full_access())?,
    );
    far.scribble(5);
    let unknown = RemoteAddr {
        rkey: RKey(far.remote(0).rkey.0 ^ 0xff00),
        ..far.remote(0)
    };
    let outside = far.remote(3000 - 10);
    // A wrong key, a range that leaves the region, a SEND without a receive.
    pair.left.send(1, write(unknown), &[own.whole()])?;
    pair.left.send(2, write(outside), &[own.sge(0..11)])?;
    pair.left.send(3, send(), &[own.whole()])?;
    for wr_id in 1..=3 {
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    scene.quiet(&[&pair.left.send_cq, &pair.right.recv_cq], WHILE)?;
    // A SEND longer than the receive is dropped, and leaves the receive for the next one.
    let sink = pair.right.region(200, full_access())?;
    pair.right.recv(9, &[sink.sge(0..100)])?;
    pair.left.send(4, send(), &[own.sge(0..101)])?;
    pair.left.send_inline(5, send(), b"fits")?;
    scene.ends_with(&pair.left.send_cq, 4, WcStatus::Success)?;
    scene.ends_with(&pair.left.send_cq, 5, WcStatus::Success)?;
    let wc = scene.ends_with(&pair.right.recv_cq, 9, WcStatus::Success)?;
    same!(wc.byte_len, 4, "length of the message that fits");
    same_bytes("the message that fits", &sink.buffer.to_vec(0..4), b"fits")?;
    same_bytes(
        "the bytes behind the receive",
        &sink.buffer.to_vec(100..200),
        &[0; 100],
    )?;
    same_bytes(
        "memory that no key opened",
        &far.buffer.to_vec(0..3000),
        &pattern(5, 3000),
    )?;
    pair.left.is_in(QpState::Rts)?;
    pair.right.is_in(QpState::Rts)?;
    scene.still_works(&pair)
}

fn local_error<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::of(QpType::Uc))?;
    let own = pair.left.region(64, full_access())?;
    pair.right.recv(1, &[])?;
    let bad = Sge {
        lkey: LKey(own.whole().lkey.0 ^ 0xff00),
        ..own.whole()
    };
    pair.left.send(2, send(), &[bad])?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::LocProtErr)?;
    scene.quiet(&[&pair.right.recv_cq], WHILE)
}
