//! What the responder refuses: who learns of it, how, and that no byte is touched.

use verbs_api::{
    Access, AsyncEvent, ErrorKind, EventKind, EventSource, Object, Provider, QpState, QueuePair, RKey,
    RemoteAddr, SendOp, SendWr, Sge, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The three ways to reach a peer's memory.
const REACHES: [Access; 3] = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
    let op = request(refusal.reach, refusal.remote);
    let sges = [own.sge(0..refusal.length)];
    if refused_at_home::<B::P>(&pair.left.qp, op, &sges)? {
        return pair.left.is_in(QpState::Rts);
    }
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

/// Post it. A misaligned atomic may be refused with EINVAL at once, and the peer then sees nothing of it.
pub(super) fn refused_at_home<P: Provider>(
    qp: &P::Qp,
    op: SendOp<'_, P>,
    sges: &[Sge],
) -> Result<bool, Failure> {
    let is_misaligned = match op {
        SendOp::FetchAdd { remote, .. } | SendOp::CompareSwap { remote, .. } => {
            !remote.addr.is_multiple_of(8)
        }
        _ => false,
    };
    match qp.post_send(&[SendWr::new(1, op, sges)]) {
        Err(refusal) if is_misaligned && refusal.error.kind() == ErrorKind::Invalid => Ok(true),
        answer => Ok(answer.map(|()| false)?),
    }
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

/// The event at the responder.
fn expect_event<B: Testbed>(scene: &mut Scene<B>, qpn: u32, kind: EventKind) -> CaseResult {
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

        // With the key wrong too, the alignment is what counts.
        let pair = scene.pair(&Setup::default())?;
        let far = pair.right.region(64, full_access())?;
        let refusal = Refusal {
            what: "misaligned, with key 0",
            remote: far.remote_with(8 + offset, RKey(0)),
            ..refusal
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
