//! Memory windows of type 1: bound by their owner, open to every queue pair of the domain.

use std::ops::Range;

use verbs_api::{
    Access, BindInfo, ErrorKind, MemoryWindow, MwType, Object, ProtectionDomain, Provider, QpState,
    QueuePair, RKey, RemoteAddr, WcOpcode, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Region, Setup, Shared, full_access, pattern, read, same_bytes, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::MwType1];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H6",
            "a window opens its part of the region, with its rights, and nothing else",
            &["MW-1"],
            inside_and_outside,
        )
        .needing(NEEDS),
        Case::verbs(
            "H6-UNBIND",
            "binding to no byte closes a window; binding again gives another key",
            &["MW-2"],
            unbind_and_rebind,
        )
        .needing(NEEDS),
        Case::verbs(
            "H6-SHARED",
            "a window of type 1 serves every queue pair of its domain, and no other",
            &["MW-1", "PD-1"],
            other_queue_pairs,
        )
        .needing(NEEDS),
        Case::verbs(
            "H6-GONE",
            "a window that was freed, or never bound, opens nothing",
            &["MW-2"],
            freed,
        )
        .needing(NEEDS),
        Case::verbs("H7", "a bind that may not be fails", &["MW-3"], bad_binds).needing(NEEDS),
        Case::verbs(
            "H2",
            "a region with a bound window cannot go",
            &["MW-4"],
            region_in_use,
        )
        .needing(NEEDS),
        Case::verbs(
            "H2-PD",
            "a domain with a window cannot go",
            &["CQ-6"],
            domain_in_use,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

/// What a region must permit so that windows with all rights can be bound to it.
pub(super) fn bindable() -> Access {
    Access::LOCAL_WRITE | Access::MW_BIND
}

/// A new connection whose right end stands in the domain `pd`.
pub(super) fn connect_to<B: Testbed>(
    scene: &Scene<B>,
    setup: &Setup,
    pd: &<B::P as Provider>::Pd,
) -> Result<Pair<B::P>, Failure> {
    let left = scene.node(Side::Left, setup)?;
    let right = scene.node_in(Side::Right, setup, pd, &Shared::default())?;
    left.connect(setup, &right.endpoint)?;
    right.connect(setup, &left.endpoint)?;
    Ok(Pair {
        left,
        right,
        setup: setup.clone(),
    })
}

/// The address of the byte at `offset` of a region, under a window's key.
pub(super) fn through<P: Provider>(region: &Region<P>, rkey: RKey, offset: usize) -> RemoteAddr {
    region.remote_with(offset, rkey)
}

/// A binding to a part of a region.
pub(super) fn part<P: Provider>(
    region: &Region<P>,
    range: std::ops::Range<usize>,
    access: Access,
) -> BindInfo<'_, P> {
    BindInfo {
        mr: &region.mr,
        addr: region.remote(0).addr + range.start as u64,
        length: range.len() as u64,
        access,
    }
}

/// Bind and wait for the completion.
fn bind<B: Testbed>(
    scene: &mut Scene<B>,
    node: &Node<B::P>,
    mw: &mut <B::P as Provider>::Mw,
    info: &BindInfo<'_, B::P>,
) -> Result<RKey, Failure> {
    let rkey = node.qp.bind_mw(mw, 800, info, true)?;
    let wc = scene.ends_with(&node.send_cq, 800, WcStatus::Success)?;
    same!(wc.opcode, WcOpcode::BindMw, "opcode of a bind");
    same!(mw.rkey(), rkey, "key of the window after its bind");
    Ok(rkey)
}

/// What a peer may do with one byte range under a key, each tried on a connection of its own to the domain `pd`.
pub(super) fn may<B: Testbed>(
    scene: &mut Scene<B>,
    pd: &<B::P as Provider>::Pd,
    target: RemoteAddr,
    length: usize,
    expected: [(bool, WcStatus); 2],
) -> CaseResult {
    for (n, (allowed, refusal)) in expected.into_iter().enumerate() {
        let pair = connect_to(scene, &Setup::default(), pd)?;
        let own = pair.left.region(length.max(1), full_access())?;
        let (name, op) = match n {
            0 => ("READ", read(target)),
            _ => ("WRITE", write(target)),
        };
        pair.left.send(1, op, &[own.sge(0..length)])?;
        let status = if allowed { WcStatus::Success } else { refusal };
        scene
            .ends_with(&pair.left.send_cq, 1, status)
            .map_err(|e| e.during(format!("{name} of {length} bytes at {target:x?}")))?;
    }
    Ok(())
}

const OPEN: [(bool, WcStatus); 2] = [(true, WcStatus::Success); 2];
const CLOSED: [(bool, WcStatus); 2] = [(false, WcStatus::RemAccessErr); 2];

pub(super) fn rights() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE
}

fn inside_and_outside<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let right = &pair.right;
    let far = right.region(4096, bindable())?;
    far.scribble(1);
    let mut mw = right.pd.alloc_mw(MwType::Type1)?;
    same!(mw.mw_type(), MwType::Type1, "type of the window");
    let rkey = bind(scene, right, &mut mw, &part(&far, 1024..2048, rights()))?;
    check!(rkey != far.remote(0).rkey, "a window has the key of its region");
    let own = pair.left.region(1024, full_access())?;
    pair.left
        .send(1, read(through(&far, rkey, 1024)), &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "what the window shows",
        &own.buffer.to_vec(0..1024),
        &pattern(1, 4096)[1024..2048],
    )?;
    let pd = &right.pd;
    for (offset, length, expected) in [
        (2047, 1, OPEN),
        (1023, 1, CLOSED),
        (1023, 2, CLOSED),
        (2048, 1, CLOSED),
        (2047, 2, CLOSED),
        (1024, 1025, CLOSED),
    ] {
        may(scene, pd, through(&far, rkey, offset), length, expected)?;
    }
    // The region's own key does not open it: it has no remote rights.
    may(scene, pd, far.remote(1024), 8, CLOSED)?;
    // A window for READs only.
    let mut narrow = pd.alloc_mw(MwType::Type1)?;
    let rkey = bind(scene, right, &mut narrow, &part(&far, 0..64, Access::REMOTE_READ))?;
    may(
        scene,
        pd,
        through(&far, rkey, 0),
        64,
        [(true, WcStatus::Success), (false, WcStatus::RemAccessErr)],
    )
}

fn unbind_and_rebind<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let right = &pair.right;
    let far = right.region(4096, bindable())?;
    let mut mw = right.pd.alloc_mw(MwType::Type1)?;
    let first = bind(scene, right, &mut mw, &part(&far, 0..64, rights()))?;
    may(scene, &right.pd, through(&far, first, 0), 64, OPEN)?;
    let second = bind(scene, right, &mut mw, &part(&far, 64..128, rights()))?;
    check!(first != second, "a window bound again has the same key {first:?}");
    may(scene, &right.pd, through(&far, second, 64), 64, OPEN)?;
    may(scene, &right.pd, through(&far, first, 0), 64, CLOSED)?;
    may(scene, &right.pd, through(&far, first, 64), 64, CLOSED)?;
    bind(scene, right, &mut mw, &part(&far, 0..0, Access::empty()))?;
    may(scene, &right.pd, through(&far, second, 64), 64, CLOSED)?;
    right.is_in(QpState::Rts)?;
    scene.still_works(&pair)
}

fn other_queue_pairs<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let right = &pair.right;
    let far = right.region(64, bindable())?;
    let mut mw = right.pd.alloc_mw(MwType::Type1)?;
    let rkey = bind(scene, right, &mut mw, &part(&far, 0..64, rights()))?;
    // `may` uses a new queue pair of the same domain each time.
    may(scene, &right.pd, through(&far, rkey, 0), 64, OPEN)?;
    let stranger = scene.node(Side::Right, &Setup::default())?;
    may(scene, &stranger.pd, through(&far, rkey, 0), 64, CLOSED)
}

fn freed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let right = &pair.right;
    let far = right.region(64, bindable())?;
    let unbound = right.pd.alloc_mw(MwType::Type1)?;
    may(scene, &right.pd, through(&far, unbound.rkey(), 0), 8, CLOSED)?;
    let mut mw = right.pd.alloc_mw(MwType::Type1)?;
    let rkey = bind(scene, right, &mut mw, &part(&far, 0..64, rights()))?;
    may(scene, &right.pd, through(&far, rkey, 0), 64, OPEN)?;
    mw.destroy()?;
    may(scene, &right.pd, through(&far, rkey, 0), 64, CLOSED)?;
    unbound.destroy()?;
    far.mr.destroy()?;
    Ok(())
}

/// A bind that may not be, of a window of either type to a region of 128 bytes.
pub(super) struct BadBind {
    pub(super) what: &'static str,
    /// The rights of the region.
    region: Access,
    /// What of the region the window is to open.
    range: Range<usize>,
    /// The rights that the window asks for.
    access: Access,
    /// Whether the region stands in another domain than the window.
    is_foreign: bool,
}

impl BadBind {
    /// The region to bind to, at `own` end or in the domain of the `foreign` one.
    pub(super) fn region<P: Provider>(&self, own: &Node<P>, foreign: &Node<P>) -> Result<Region<P>, Failure> {
        let owner = if self.is_foreign { foreign } else { own };
        owner.region(128, self.region)
    }

    /// The bind itself.
    pub(super) fn of<'a, P: Provider>(&self, region: &'a Region<P>) -> BindInfo<'a, P> {
        part(region, self.range.clone(), self.access)
    }
}

pub(super) fn bad_bind_attempts() -> [BadBind; 5] {
    let good = |what| BadBind {
        what,
        region: bindable(),
        range: 0..64,
        access: rights(),
        is_foreign: false,
    };
    [
        BadBind {
            region: full_access(),
            ..good("a region without MW_BIND")
        },
        BadBind {
            region: Access::MW_BIND,
            access: Access::REMOTE_WRITE,
            ..good("write without LOCAL_WRITE")
        },
        BadBind {
            region: Access::MW_BIND,
            access: Access::REMOTE_ATOMIC,
            ..good("atomics without LOCAL_WRITE")
        },
        BadBind {
            range: 0..129,
            ..good("a range beyond the region")
        },
        BadBind {
            is_foreign: true,
            ..good("a region of another domain")
        },
    ]
}

fn bad_binds<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let foreign = scene.node(Side::Right, &Setup::default())?;
    for attempt in bad_bind_attempts() {
        let what = attempt.what;
        let pair = scene.pair(&Setup::default())?;
        let right = &pair.right;
        let far = attempt.region(right, &foreign)?;
        let mut mw = right.pd.alloc_mw(MwType::Type1)?;
        let key = mw.rkey();
        match right.qp.bind_mw(&mut mw, 1, &attempt.of(&far), true) {
            // Refused at once: the queue pair is as before.
            Err(error) => {
                check!(
                    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Permission),
                    "binding {what} must be refused with EINVAL or EPERM, not {error}"
                );
                right.is_in(QpState::Rts)?;
            }
            Ok(rkey) => {
                scene
                    .ends_with(&right.send_cq, 1, WcStatus::MwBindErr)
                    .map_err(|e| e.during(what))?;
                right.is_in(QpState::Err)?;
                may(scene, &right.pd, through(&far, rkey, 0), 8, CLOSED).map_err(|e| e.during(what))?;
            }
        }
        may(scene, &right.pd, through(&far, key, 0), 8, CLOSED).map_err(|e| e.during(what))?;
    }
    Ok(())
}

fn region_in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let right = &pair.right;
    let far = right.region(128, bindable())?;
    let mut mw = right.pd.alloc_mw(MwType::Type1)?;
    let rkey = bind(scene, right, &mut mw, &part(&far, 0..64, rights()))?;
    let Region { mr, buffer } = far;
    let mr = match mr.destroy() {
        Ok(()) => return Err(Failure::new("a region with a bound window was deregistered")),
        Err(refused) => {
            check!(
                matches!(refused.error.kind(), ErrorKind::Busy | ErrorKind::Invalid),
                "deregistering a region with a bound window must be EBUSY or EINVAL, is {}",
                refused.error
            );
            refused.object
        }
    };
    let far = Region::<B::P> { mr, buffer };
    may(scene, &right.pd, through(&far, rkey, 0), 64, OPEN)?;
    bind(scene, right, &mut mw, &part(&far, 0..0, Access::empty()))?;
    far.mr.destroy()?;
    mw.destroy()?;
    Ok(())
}

fn domain_in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Left, &Setup::default())?;
    let mw = node.pd.alloc_mw(MwType::Type1)?;
    let Node { qp, pd, .. } = node;
    qp.destroy()?;
    let pd = match pd.destroy() {
        Ok(()) => return Err(Failure::new("a domain with a memory window was freed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    mw.destroy()?;
    pd.destroy()?;
    Ok(())
}
