//! What the responder finds wrong: who learns of it, how, and that no byte is touched.

use std::time::Duration;

use verbs_api::{
    Access, AsyncEvent, EventKind, EventSource, LKey, Object, QpState, RKey, RemoteAddr, SendOp, Sge,
    WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, pattern, same_bytes};
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
            "F22",
            "an operation that the queue pair does not permit is an invalid request",
            &["ACCESS-2"],
            qp_access,
        ),
        Case::verbs(
            "F23",
            "a wrong key is a remote access error",
            &["ACCESS-1", "PD-1"],
            wrong_key,
        ),
        Case::verbs(
            "F24",
            "an access beyond the region is a remote access error",
            &["ACCESS-3"],
            bounds,
        ),
        Case::verbs(
            "F25",
            "an access that the region does not permit is a remote access error",
            &["ACCESS-4"],
            region_access,
        ),
        Case::verbs(
            "F26",
            "the responder learns of refused accesses by events",
            &["EVENT-1"],
            responder_events,
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
        Case::verbs(
            "F32-V",
            "a misaligned atomic is an invalid request",
            &["ATOMIC-4"],
            misaligned_atomic,
        )
        .needing(&[Need::Atomics]),
        Case::verbs(
            "F33",
            "an atomic over the end of a region is a remote access error",
            &["ACCESS-3"],
            atomic_bounds,
        )
        .needing(&[Need::Atomics])
        .of_priority(2),
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

/// The three ways to reach a peer's memory.
const REACHES: [Access; 3] = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];

/// A request that needs `reach`, to `remote`, of `length` bytes (atomics: 8).
fn request<P: verbs_api::Provider>(reach: Access, remote: RemoteAddr) -> SendOp<'static, P> {
    match reach {
        Access::REMOTE_WRITE => SendOp::Write { remote, imm: None },
        Access::REMOTE_READ => SendOp::Read { remote },
        _ => SendOp::FetchAdd { remote, add: 1 },
    }
}

/// A request that must be refused: with which status, and which event is allowed at the responder.
struct Refusal<'a> {
    what: &'a str,
    reach: Access,
    remote: RemoteAddr,
    length: usize,
    status: WcStatus,
    tolerated: &'a [WcStatus],
}

/// Post it, expect its status, the error state at both ends, own and peer's memory untouched.
fn refused<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    far: &Region<B::P>,
    refusal: &Refusal<'_>,
) -> CaseResult {
    if refusal.reach == Access::REMOTE_ATOMIC && !scene.bed.has(Need::Atomics) {
        return Ok(());
    }
    let own = pair.left.region(refusal.length.max(8), full_access())?;
    far.scribble(21);
    let expected = far.buffer.to_vec(0..far.buffer.len());
    pair.left.send(
        1,
        request(refusal.reach, refusal.remote),
        &[own.sge(0..refusal.length)],
    )?;
    let verdict = (|| {
        scene.ends_with_or(&pair.left.send_cq, 1, refusal.status, refusal.tolerated)?;
        pair.left.is_in(QpState::Err)?;
        scene.until("the responder to be in ERR", |_| {
            Ok((verbs_api::QueuePair::state(&pair.right.qp)? == QpState::Err).then_some(()))
        })?;
        same_bytes(
            "memory of the responder",
            &far.buffer.to_vec(0..far.buffer.len()),
            &expected,
        )?;
        same_bytes(
            "memory of the requester",
            &own.buffer.to_vec(0..own.buffer.len()),
            &vec![0; own.buffer.len()],
        )
    })();
    verdict.map_err(|e: Failure| e.during(format!("{:?}, {}", refusal.reach, refusal.what)))
}

fn qp_access<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for reach in REACHES {
        let setup = Setup {
            access: crate::pair::all_remote() - reach,
            ..Setup::default()
        };
        let pair = scene.pair(&setup)?;
        let far = pair.right.region(64, full_access())?;
        let refusal = Refusal {
            what: "not permitted by the queue pair",
            reach,
            remote: far.remote(0),
            length: 8,
            status: WcStatus::RemInvReqErr,
            tolerated: &[WcStatus::RemAccessErr],
        };
        refused(scene, &pair, &far, &refusal)?;
    }
    Ok(())
}

fn wrong_key<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for reach in REACHES {
        for kind in 0..5 {
            let pair = scene.pair(&Setup::default())?;
            let far = pair.right.region(64, full_access())?;
            let stranger = scene.node(Side::Right, &Setup::default())?;
            let foreign = stranger.region(64, full_access())?;
            let right = far.remote(0);
            let (what, remote) = match kind {
                0 => (
                    "wrong low byte",
                    RemoteAddr {
                        rkey: RKey(right.rkey.0 ^ 1),
                        ..right
                    },
                ),
                1 => (
                    "wrong upper bits",
                    RemoteAddr {
                        rkey: RKey(right.rkey.0 ^ 0x0a5a_5500),
                        ..right
                    },
                ),
                2 => (
                    "key 0",
                    RemoteAddr {
                        rkey: RKey(0),
                        ..right
                    },
                ),
                3 => ("region of another domain", foreign.remote(0)),
                _ => {
                    let gone = pair.right.region(64, full_access())?;
                    let remote = gone.remote(0);
                    gone.mr.destroy()?;
                    ("deregistered region", remote)
                }
            };
            let refusal = Refusal {
                what,
                reach,
                remote,
                length: 8,
                status: WcStatus::RemAccessErr,
                tolerated: &[],
            };
            refused(scene, &pair, &far, &refusal)?;
            same_bytes(what, &foreign.buffer.to_vec(0..64), &[0; 64])?;
        }
    }
    Ok(())
}

fn bounds<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const LEN: usize = 4096;
    for reach in [Access::REMOTE_WRITE, Access::REMOTE_READ] {
        for (what, shift, length) in [
            ("one byte before", -1i64, 1usize),
            ("one byte behind", LEN as i64, 1),
            ("last byte and one behind", LEN as i64 - 1, 2),
            ("longer than the region", 0, LEN + 1),
            ("starting before", -1, LEN),
            ("over the end in the third packet", 2000, 2200),
            ("wrapping around 2^64", i64::MIN, 64),
        ] {
            let pair = scene.pair(&Setup::default())?;
            // The region is a part of a larger buffer, so that bytes beside it can be watched.
            let buffer = verbs_api::Buffer::new(3 * LEN);
            let far = Region::<B::P> {
                mr: verbs_api::ProtectionDomain::reg_mr_iova(
                    &pair.right.pd,
                    &buffer,
                    LEN..2 * LEN,
                    buffer.addr() + LEN as u64,
                    full_access(),
                )?,
                buffer,
            };
            let addr = match shift {
                i64::MIN => u64::MAX - 10,
                _ => far.remote(0).addr.wrapping_add_signed(shift),
            };
            let remote = RemoteAddr {
                addr,
                ..far.remote(0)
            };
            let refusal = Refusal {
                what,
                reach,
                remote,
                length,
                status: WcStatus::RemAccessErr,
                tolerated: &[],
            };
            refused(scene, &pair, &far, &refusal)?;
        }
    }
    // The exact end is inside.
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(LEN, full_access())?,
        pair.right.region(LEN, full_access())?,
    );
    for (offset, length) in [(0, LEN), (LEN - 1, 1), (1, LEN - 1)] {
        let remote = far.remote(offset);
        pair.left
            .send(1, SendOp::Write { remote, imm: None }, &[own.sge(0..length)])?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        pair.left
            .send(2, SendOp::Read { remote }, &[own.sge(0..length)])?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    }
    scene.still_works(&pair)
}

fn region_access<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for reach in REACHES {
        let pair = scene.pair(&Setup::default())?;
        let far = pair.right.region(64, full_access() - reach)?;
        let refusal = Refusal {
            what: "not permitted by the region",
            reach,
            remote: far.remote(0),
            length: 8,
            status: WcStatus::RemAccessErr,
            tolerated: &[],
        };
        refused(scene, &pair, &far, &refusal)?;
    }
    Ok(())
}

/// The event at the responder; a provider may be known to raise none.
fn expect_event<B: Testbed>(scene: &mut Scene<B>, qpn: u32, kind: EventKind) -> CaseResult {
    if scene.bed.tolerance("F26").is_some() {
        return scene.deviation(format!("{kind:?} is not waited for"));
    }
    scene.event(
        Side::Right,
        AsyncEvent {
            kind,
            source: EventSource::Qp(qpn),
        },
    )
}

fn responder_events<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for reach in [Access::REMOTE_WRITE, Access::REMOTE_READ] {
        let pair = scene.pair(&Setup::default())?;
        let far = pair.right.region(64, full_access())?;
        let remote = RemoteAddr {
            rkey: RKey(0),
            ..far.remote(0)
        };
        let refusal = Refusal {
            what: "key 0",
            reach,
            remote,
            length: 8,
            status: WcStatus::RemAccessErr,
            tolerated: &[],
        };
        refused(scene, &pair, &far, &refusal)?;
        expect_event(scene, pair.right.endpoint.qpn, EventKind::QpAccessErr)?;

        let setup = Setup {
            access: Access::empty(),
            ..Setup::default()
        };
        let pair = scene.pair(&setup)?;
        let far = pair.right.region(64, full_access())?;
        let refusal = Refusal {
            what: "not permitted by the queue pair",
            reach,
            remote: far.remote(0),
            length: 8,
            status: WcStatus::RemInvReqErr,
            tolerated: &[WcStatus::RemAccessErr],
        };
        refused(scene, &pair, &far, &refusal)?;
        expect_event(scene, pair.right.endpoint.qpn, EventKind::QpReqErr)?;
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

fn misaligned_atomic<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for offset in [1usize, 4, 7] {
        let pair = scene.pair(&Setup::default())?;
        let far = pair.right.region(64, full_access())?;
        let refusal = Refusal {
            what: "misaligned",
            reach: Access::REMOTE_ATOMIC,
            remote: far.remote(8 + offset),
            length: 8,
            status: WcStatus::RemInvReqErr,
            tolerated: &[],
        };
        refused(scene, &pair, &far, &refusal)?;
    }
    Ok(())
}

fn atomic_bounds<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(60, full_access())?;
    let refusal = Refusal {
        what: "over the end",
        reach: Access::REMOTE_ATOMIC,
        remote: far.remote(56),
        length: 8,
        status: WcStatus::RemAccessErr,
        tolerated: &[],
    };
    refused(scene, &pair, &far, &refusal)
}
