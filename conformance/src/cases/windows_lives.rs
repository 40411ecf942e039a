//! Memory windows of type 2 beside what they depend on: rights, their queue pair, their region.

use verbs_api::{Access, ErrorKind, MwType, Object, ProtectionDomain, SendOp, WcStatus};

use super::windows::{bindable, connect_to, rights, through};
use super::windows_typed::{INVALIDATE_FAILS, NEEDS, bind, fails, write_ends};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Region, Setup, full_access, read, write};
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H12",
            "rights of queue pair and window both count",
            &["MW-1", "ACCESS-2"],
            every_right,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "H13",
            "a window whose queue pair is gone holds nothing back",
            &["MW-8"],
            queue_pair_gone,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "H16",
            "a region under a window of type 2 stays, or takes the window along",
            &["MW-9"],
            region_under_window,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "H17",
            "a local invalidate on another queue pair fails and leaves the window",
            &["INV-3"],
            foreign_invalidate,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

fn every_right<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let atomics = scene.bed.has(Need::Atomics);
    let flags = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    for flag in flags {
        if flag == Access::REMOTE_ATOMIC && !atomics {
            continue;
        }
        let others = flags.into_iter().collect::<Access>() - flag;
        for (on_qp, on_window) in [(true, true), (true, false), (false, true), (false, false)] {
            let given = |on: bool| if on { others | flag } else { others };
            let pair = scene.pair(&Setup {
                access: given(on_qp),
                ..Setup::default()
            })?;
            let far = pair.right.region(64, bindable())?;
            let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
            let rkey = bind(scene, &pair, &mw, &far, 0..64, given(on_window))?;
            let remote = through(&far, rkey, 0);
            let op = match flag {
                Access::REMOTE_READ => read(remote),
                Access::REMOTE_WRITE => write(remote),
                _ => SendOp::FetchAdd { remote, add: 1 },
            };
            let own = pair.left.region(8, full_access())?;
            pair.left.send(1, op, &[own.whole()])?;
            let expected = match (on_qp, on_window) {
                (true, true) => WcStatus::Success,
                (true, false) => WcStatus::RemAccessErr,
                (false, _) => WcStatus::RemInvReqErr,
            };
            scene.ends_with(&pair.left.send_cq, 1, expected).map_err(|e| {
                e.during(format!(
                    "{flag:?}: on the queue pair {on_qp}, on the window {on_window}"
                ))
            })?;
        }
    }
    Ok(())
}

fn queue_pair_gone<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
    let Pair { left, right, .. } = pair;
    right.qp.destroy()?;
    left.qp.destroy()?;
    let other = connect_to(scene, &Setup::default(), &right.pd)?;
    same!(
        write_ends(scene, &other, &far, rkey, 0)?,
        WcStatus::RemAccessErr,
        "WRITE through the window of a queue pair that is gone"
    );
    // The region may need the window to go first; then it goes.
    let Region { mr, .. } = far;
    match mr.destroy() {
        Ok(()) => mw.destroy()?,
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            mw.destroy()?;
            refused.object.destroy()?;
        }
    }
    Ok(())
}

fn region_under_window<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
    let target = through(&far, rkey, 0);
    let Region { mr, buffer: _buffer } = far;
    let (kept, expected) = match mr.destroy() {
        Ok(()) => (None, WcStatus::RemAccessErr),
        Err(refused) => {
            check!(
                matches!(refused.error.kind(), ErrorKind::Busy | ErrorKind::Invalid),
                "error of deregistering a region under a window: {}",
                refused.error
            );
            (Some(refused.object), WcStatus::Success)
        }
    };
    pair.left.send_inline(1, write(target), b"window")?;
    scene.ends_with(&pair.left.send_cq, 1, expected)?;
    mw.destroy()?;
    if let Some(mr) = kept {
        mr.destroy()?;
    }
    Ok(())
}

fn foreign_invalidate<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
    let other = connect_to(scene, &Setup::default(), &pair.right.pd)?;
    fails(
        scene,
        &other,
        SendOp::LocalInvalidate { rkey },
        INVALIDATE_FAILS,
        "invalidating another queue pair's window",
    )?;
    same!(
        write_ends(scene, &pair, &far, rkey, 0)?,
        WcStatus::Success,
        "WRITE through the window afterwards"
    );
    scene.still_works(&pair)
}
