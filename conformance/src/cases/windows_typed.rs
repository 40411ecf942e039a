//! Memory windows of type 2: bound and invalidated in the order of the send queue, open to one queue pair.

use verbs_api::{
    Access, ErrorKind, MemoryWindow, MwType, ProtectionDomain, Provider, QpState, QpType, QueuePair, RKey,
    SendOp, SendWr, WcOpcode, WcStatus,
};

use super::windows::{bad_bind_attempts, bindable, part, rights, through};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, pattern, read, same_bytes, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

pub(super) const NEEDS: &[Need] = &[Need::MwType2];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H5",
            "a window of type 2 takes any low byte of its key, and no other upper part",
            &["MW-5"],
            key_byte,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "H8",
            "a window of type 2 opens its part to the queue pair that bound it",
            &["MW-1", "MW-6"],
            one_queue_pair,
        )
        .needing(NEEDS),
        Case::verbs(
            "H8-UC",
            "over UC a window of type 2 is bound, used, invalidated and bound again",
            &["MW-1", "MW-6", "INV-2"],
            over_uc,
        )
        .needing(&[Need::MwType2, Need::Uc])
        .of_priority(2),
        Case::verbs(
            "H8-TWICE",
            "binding a bound window of type 2 again fails",
            &["MW-7"],
            bound_twice,
        )
        .needing(NEEDS),
        Case::verbs(
            "H7-TYPE2",
            "a bind of type 2 that may not be fails",
            &["MW-3"],
            bad_binds,
        )
        .needing(NEEDS),
        Case::verbs(
            "H9",
            "a local invalidate closes a window of type 2, which can then be bound again",
            &["INV-2"],
            invalidate,
        )
        .needing(NEEDS),
        Case::verbs(
            "H9-TYPE1",
            "a local invalidate of a window of type 1, or of no key, fails",
            &["INV-3"],
            bad_invalidates,
        )
        .needing(&[Need::MwType1, Need::MwType2]),
        Case::verbs(
            "H18",
            "a window of type 2 cannot be bound to no byte",
            &["MW-3"],
            no_byte,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

/// The key with the next low byte.
pub(super) fn next_key(rkey: RKey) -> RKey {
    RKey((rkey.0 & !0xff) | (rkey.0.wrapping_add(1) & 0xff))
}

/// Bind `range` of `far` on the right end and wait; the key.
pub(super) fn bind<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    mw: &<B::P as Provider>::Mw,
    far: &Region<B::P>,
    range: std::ops::Range<usize>,
    access: Access,
) -> Result<RKey, Failure> {
    let rkey = next_key(mw.rkey());
    bind_as(scene, pair, mw, rkey, far, range, access)?;
    Ok(rkey)
}

#[allow(clippy::too_many_arguments, reason = "a bind names all of them")]
fn bind_as<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    mw: &<B::P as Provider>::Mw,
    rkey: RKey,
    far: &Region<B::P>,
    range: std::ops::Range<usize>,
    access: Access,
) -> CaseResult {
    let bind = part(far, range, access);
    pair.right.send(800, SendOp::BindMw { mw, rkey, bind }, &[])?;
    let wc = scene
        .ends_with(&pair.right.send_cq, 800, WcStatus::Success)
        .map_err(|e| e.during("binding a window"))?;
    same!(wc.opcode, WcOpcode::BindMw, "opcode of a bind");
    Ok(())
}

/// The left end WRITEs 8 bytes; how it ended.
pub(super) fn write_ends<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    far: &Region<B::P>,
    rkey: RKey,
    offset: usize,
) -> Result<WcStatus, Failure> {
    pair.left
        .send_inline(700, write(through(far, rkey, offset)), b"through!")?;
    Ok(scene.completion(&pair.left.send_cq)?.status)
}

/// A request on the right end's send queue must fail: refused when posted, or with one of `statuses` and the end of
/// the queue pair.
pub(super) fn fails<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    op: SendOp<'_, B::P>,
    statuses: &[WcStatus],
    what: &str,
) -> CaseResult {
    match pair.right.qp.post_send(&[SendWr::new(810, op, &[])]) {
        Err(refused) => {
            check!(
                matches!(refused.error.kind(), ErrorKind::Invalid | ErrorKind::Permission),
                "{what} must be refused with EINVAL or EPERM, not {}",
                refused.error
            );
            pair.right.is_in(QpState::Rts)
        }
        Ok(()) => {
            let wc = scene
                .completion(&pair.right.send_cq)
                .map_err(|e| e.during(what))?;
            check!(
                statuses.contains(&wc.status),
                "{what} must end with one of {statuses:?}, it ended with {:?}",
                wc.status
            );
            pair.right.is_in(QpState::Err).map_err(|e| e.during(what))
        }
    }
}

fn key_byte<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let upper = mw.rkey().0 & !0xff;
    for low in [0u32, 1, 0x7f, 0xff] {
        let rkey = RKey(upper | low);
        bind_as(scene, &pair, &mw, rkey, &far, 0..64, rights())?;
        same!(
            write_ends(scene, &pair, &far, rkey, 0)?,
            WcStatus::Success,
            "WRITE under the key {rkey:x?}"
        );
        pair.right.send(1, SendOp::LocalInvalidate { rkey }, &[])?;
        scene.ends_with(&pair.right.send_cq, 1, WcStatus::Success)?;
    }
    let (mw, bind) = (&mw, part(&far, 0..64, rights()));
    let rkey = RKey(upper ^ 0x1_0000);
    fails(
        scene,
        &pair,
        SendOp::BindMw { mw, rkey, bind },
        &[WcStatus::MwBindErr],
        "binding under a key with another upper part",
    )
}

fn one_queue_pair<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(4096, bindable())?;
    far.scribble(2);
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    same!(mw.mw_type(), MwType::Type2, "type of the window");
    let rkey = bind(scene, &pair, &mw, &far, 1024..2048, rights())?;
    let own = pair.left.region(1024, full_access())?;
    pair.left
        .send(1, read(through(&far, rkey, 1024)), &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "what the window shows",
        &own.buffer.to_vec(0..1024),
        &pattern(2, 4096)[1024..2048],
    )?;
    same!(
        write_ends(scene, &pair, &far, rkey, 2040)?,
        WcStatus::Success,
        "WRITE to the end of the window"
    );
    // Another queue pair of the same domain is not the one that bound it.
    let other = super::windows::connect_to(scene, &Setup::default(), &pair.right.pd)?;
    same!(
        write_ends(scene, &other, &far, rkey, 1024)?,
        WcStatus::RemAccessErr,
        "WRITE through another queue pair"
    );
    same!(
        write_ends(scene, &pair, &far, rkey, 2041)?,
        WcStatus::RemAccessErr,
        "WRITE beyond the end of the window"
    );
    Ok(())
}

fn over_uc<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::of(QpType::Uc))?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    for text in [b"first", b"again"] {
        let rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
        pair.left.send_inline(1, write(far.remote_with(8, rkey)), text)?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        scene.until("what was written", |_| {
            Ok((far.buffer.to_vec(8..13) == text).then_some(()))
        })?;
        pair.right.send(801, SendOp::LocalInvalidate { rkey }, &[])?;
        let wc = scene.ends_with(&pair.right.send_cq, 801, WcStatus::Success)?;
        same!(wc.opcode, WcOpcode::LocalInv, "opcode of an invalidation");
    }
    // What is bound twice ends the send queue, and the other half goes on.
    bind(scene, &pair, &mw, &far, 0..64, rights())?;
    let op = SendOp::BindMw {
        mw: &mw,
        rkey: next_key(mw.rkey()),
        bind: part(&far, 0..32, rights()),
    };
    pair.right.send(802, op, &[])?;
    scene.ends_with(&pair.right.send_cq, 802, WcStatus::MwBindErr)?;
    pair.right.is_in(QpState::Sqe)
}

fn bound_twice<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for same_key in [true, false] {
        let pair = scene.pair(&Setup::default())?;
        let far = pair.right.region(64, bindable())?;
        let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
        let first = bind(scene, &pair, &mw, &far, 0..64, rights())?;
        let rkey = if same_key { first } else { next_key(first) };
        let bind = part(&far, 0..32, rights());
        let op = SendOp::BindMw { mw: &mw, rkey, bind };
        fails(scene, &pair, op, &[WcStatus::MwBindErr], "binding a bound window")?;
    }
    Ok(())
}

fn bad_binds<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let foreign = scene.node(Side::Right, &Setup::default())?;
    for attempt in bad_bind_attempts() {
        let pair = scene.pair(&Setup::default())?;
        let far = attempt.region(&pair.right, &foreign)?;
        let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
        let rkey = next_key(mw.rkey());
        let bind = attempt.of(&far);
        let op = SendOp::BindMw { mw: &mw, rkey, bind };
        fails(scene, &pair, op, &[WcStatus::MwBindErr], attempt.what)?;
    }
    Ok(())
}

fn invalidate<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let first = bind(scene, &pair, &mw, &far, 0..64, rights())?;
    same!(
        write_ends(scene, &pair, &far, first, 0)?,
        WcStatus::Success,
        "WRITE before the invalidate"
    );
    pair.right.send(1, SendOp::LocalInvalidate { rkey: first }, &[])?;
    let wc = scene.ends_with(&pair.right.send_cq, 1, WcStatus::Success)?;
    same!(wc.opcode, WcOpcode::LocalInv, "opcode of a local invalidate");
    let second = next_key(first);
    bind_as(scene, &pair, &mw, second, &far, 0..32, rights())?;
    same!(
        write_ends(scene, &pair, &far, second, 0)?,
        WcStatus::Success,
        "WRITE under the new key"
    );
    same!(
        write_ends(scene, &pair, &far, first, 0)?,
        WcStatus::RemAccessErr,
        "WRITE under the invalidated key"
    );
    Ok(())
}

/// Statuses with which providers end an invalidate that may not be.
pub(super) const INVALIDATE_FAILS: &[WcStatus] = &[
    WcStatus::MwBindErr,
    WcStatus::LocQpOpErr,
    WcStatus::LocProtErr,
    WcStatus::LocAccessErr,
];

fn bad_invalidates<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mut mw = pair.right.pd.alloc_mw(MwType::Type1)?;
    let rkey = pair
        .right
        .qp
        .bind_mw(&mut mw, 1, &part(&far, 0..64, rights()), true)?;
    scene.ends_with(&pair.right.send_cq, 1, WcStatus::Success)?;
    let op = SendOp::LocalInvalidate { rkey };
    fails(
        scene,
        &pair,
        op,
        INVALIDATE_FAILS,
        "invalidating a window of type 1",
    )?;
    let again = super::windows::connect_to(scene, &Setup::default(), &pair.right.pd)?;
    same!(
        write_ends(scene, &again, &far, rkey, 0)?,
        WcStatus::Success,
        "WRITE through the window of type 1 afterwards"
    );
    let op = SendOp::LocalInvalidate {
        rkey: RKey(rkey.0 ^ 0x55_0000),
    };
    fails(
        scene,
        &again,
        op,
        INVALIDATE_FAILS,
        "invalidating a key that is none",
    )
}

fn no_byte<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let rkey = next_key(mw.rkey());
    let bind = part(&far, 0..0, rights());
    let op = SendOp::BindMw { mw: &mw, rkey, bind };
    fails(scene, &pair, op, &[WcStatus::MwBindErr], "binding to no byte")
}
