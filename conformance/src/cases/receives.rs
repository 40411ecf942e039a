//! Requests and receives that do not fit each other.

use std::time::Duration;

use verbs_api::{Access, LKey, QpState, RKey, RemoteAddr, SendOp, Sge, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "F16",
            "READ, WRITE and atomics need no receive",
            &["RNR-3"],
            no_receive_needed,
        ),
        Case::verbs(
            "F20",
            "a SEND longer than the receive is refused",
            &["LENGTH-1"],
            receive_too_small,
        ),
        Case::verbs(
            "F21",
            "a receive into memory without a valid key is a remote operational error",
            &["LOCAL-3"],
            bad_receive,
        ),
        Case::verbs(
            "F27",
            "a refused WRITE with immediate completes the receive in error",
            &["EVENT-2"],
            write_immediate_refused,
        ),
        Case::verbs(
            "F28",
            "nothing is checked for zero bytes",
            &["ZERO-1"],
            zero_length,
        ),
    ]
}

fn no_receive_needed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        rnr_retry: 0,
        ..Setup::default()
    })?;
    let (own, far) = (
        pair.left.region(4096, full_access())?,
        pair.right.region(4096, full_access())?,
    );
    own.scribble(1);
    pair.left.send(
        1,
        SendOp::Write {
            remote: far.remote(0),
            imm: None,
        },
        &[own.sge(0..2048)],
    )?;
    pair.left.send(
        2,
        SendOp::Read {
            remote: far.remote(0),
        },
        &[own.sge(2048..4096)],
    )?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    if scene.bed.has(Need::Atomics) {
        pair.left.send(
            3,
            SendOp::FetchAdd {
                remote: far.remote(0),
                add: 1,
            },
            &[own.sge(0..8)],
        )?;
        scene.ends_with(&pair.left.send_cq, 3, WcStatus::Success)?;
    }
    scene.still_works(&pair)
}

fn receive_too_small<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for (sent, room) in [(1usize, 0usize), (65, 64), (1025, 1024), (5000, 2048)] {
        let pair = scene.pair(&Setup::default())?;
        let (source, sink) = (
            pair.left.region(8192, full_access())?,
            pair.right.region(8192, full_access())?,
        );
        sink.scribble(2);
        pair.right.recv(7, &[sink.sge(0..room)])?;
        pair.right.recv(8, &[sink.sge(0..room)])?;
        pair.left
            .send(1, SendOp::Send { imm: None }, &[source.sge(0..sent)])?;
        let what = format!("{sent} bytes into {room}");
        scene
            .ends_with_or(
                &pair.left.send_cq,
                1,
                WcStatus::RemInvReqErr,
                &[WcStatus::RemOpErr],
            )
            .and_then(|()| {
                scene.ends_with_or(
                    &pair.right.recv_cq,
                    7,
                    WcStatus::LocLenErr,
                    &[WcStatus::LocQpOpErr],
                )
            })
            .and_then(|()| scene.flushed(&pair.right.recv_cq, [8]))
            .map_err(|e| e.during(&what))?;
        pair.left.is_in(QpState::Err)?;
        pair.right.is_in(QpState::Err)?;
        same_bytes(&what, &sink.buffer.to_vec(room..8192), &pattern(2, 8192)[room..])?;
    }
    Ok(())
}

fn bad_receive<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for kind in 0..4 {
        let pair = scene.pair(&Setup::default())?;
        let source = pair.left.region(64, full_access())?;
        let (sink, read_only) = (
            pair.right.region(64, full_access())?,
            pair.right.region(64, Access::empty())?,
        );
        let stranger = scene.node(Side::Right, &Setup::default())?;
        let foreign = stranger.region(64, full_access())?;
        let whole = sink.whole();
        let (what, sge) = match kind {
            0 => (
                "key 0",
                Sge {
                    lkey: LKey(0),
                    ..whole
                },
            ),
            1 => ("a region without local write", read_only.whole()),
            2 => ("a region of another domain", foreign.whole()),
            _ => (
                "half a region too far",
                Sge {
                    addr: whole.addr + 32,
                    ..whole
                },
            ),
        };
        pair.right.recv(7, &[sge])?;
        pair.left.send(1, SendOp::Send { imm: None }, &[source.whole()])?;
        scene
            .ends_with(&pair.left.send_cq, 1, WcStatus::RemOpErr)
            .and_then(|_| {
                scene.ends_with_or(
                    &pair.right.recv_cq,
                    7,
                    WcStatus::LocProtErr,
                    &[WcStatus::LocQpOpErr],
                )
            })
            .map_err(|e| e.during(what))?;
        pair.left.is_in(QpState::Err)?;
        pair.right.is_in(QpState::Err)?;
        same_bytes(what, &read_only.buffer.to_vec(0..64), &[0; 64])?;
        same_bytes(what, &foreign.buffer.to_vec(0..64), &[0; 64])?;
    }
    Ok(())
}

fn write_immediate_refused<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for length in [8usize, 3000] {
        let pair = scene.pair(&Setup::default())?;
        let (own, far) = (
            pair.left.region(4096, full_access())?,
            pair.right.region(4096, full_access())?,
        );
        far.scribble(3);
        pair.right.recv(7, &[])?;
        let remote = far.remote_with(0, RKey(far.remote(0).rkey.0 ^ 1));
        pair.left
            .send(1, SendOp::Write { remote, imm: Some(1) }, &[own.sge(0..length)])?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::RemAccessErr)?;
        // A WRITE of one packet has the receive in hand; one of several is refused at its first packet.
        let wc = scene.completion(&pair.right.recv_cq)?;
        crate::same!(wc.wr_id, 7, "the receive");
        let right = [WcStatus::LocAccessErr, WcStatus::LocProtErr];
        if length > 1024 {
            crate::check!(
                right.contains(&wc.status) || wc.status == WcStatus::WrFlushErr,
                "the receive ended with {:?}",
                wc.status
            );
        } else if !right.contains(&wc.status) {
            scene.deviation(format!(
                "the receive must end with LOC_ACCESS_ERR or LOC_PROT_ERR, ended with {:?}",
                wc.status
            ))?;
        }
        same_bytes(
            "memory of the responder",
            &far.buffer.to_vec(0..4096),
            &pattern(3, 4096),
        )?;
        pair.right.is_in(QpState::Err)?;
    }
    Ok(())
}

fn zero_length<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let own = pair.left.region(8, full_access())?;
    let nowhere = RemoteAddr {
        addr: 0xdead_beef_0000_0001,
        rkey: RKey(0),
    };
    let garbage = RemoteAddr {
        addr: 1,
        rkey: RKey(0xdead_beef),
    };
    for (n, remote) in [nowhere, garbage].into_iter().enumerate() {
        for sges in [&[][..], &[own.sge(0..0)][..]] {
            pair.left.send(1, SendOp::Write { remote, imm: None }, sges)?;
            scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
            pair.left.send(2, SendOp::Read { remote }, sges)?;
            scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
            pair.right.recv(3, &[])?;
            pair.left.send(
                4,
                SendOp::Write {
                    remote,
                    imm: Some(n as u32),
                },
                sges,
            )?;
            scene.ends_with(&pair.left.send_cq, 4, WcStatus::Success)?;
            let wc = scene.ends_with(&pair.right.recv_cq, 3, WcStatus::Success)?;
            crate::same!(
                (wc.immediate(), wc.byte_len),
                (Some(n as u32), 0),
                "receive of an empty WRITE"
            );
        }
    }
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(2))?;
    scene.still_works(&pair)
}
