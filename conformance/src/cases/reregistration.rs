//! Regions that change: domain, memory, rights.

use verbs_api::{Access, Buffer, ErrorKind, MemoryRegion, Object, Provider, RemoteAddr, Rereg, WcStatus};

use super::windows::connect_to;
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, pattern, read, same_bytes, write};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H3-ACCESS",
            "re-registration changes the rights, and nothing when it is refused",
            &["MR-2"],
            rereg_access,
        )
        .needing(&[Need::Rereg])
        .of_priority(2),
        Case::verbs(
            "H3-PD",
            "re-registration moves a region to another domain",
            &["MR-2", "PD-1"],
            rereg_domain,
        )
        .needing(&[Need::Rereg])
        .of_priority(2),
        Case::verbs(
            "H3-MEMORY",
            "re-registration gives a region other memory",
            &["MR-2", "MR-3"],
            rereg_memory,
        )
        .needing(&[Need::Rereg])
        .of_priority(2),
        Case::verbs(
            "H3-ALL",
            "domain, memory and rights can change at once",
            &["MR-2"],
            rereg_everything,
        )
        .needing(&[Need::Rereg])
        .of_priority(2),
    ]
}

/// How a WRITE of 8 bytes and a READ of as many end, each on a connection of its own to the domain.
fn try_both<B: Testbed>(
    scene: &mut Scene<B>,
    pd: &<B::P as Provider>::Pd,
    remote: RemoteAddr,
) -> Result<[WcStatus; 2], Failure> {
    let mut seen = [WcStatus::Success; 2];
    for (n, status) in seen.iter_mut().enumerate() {
        let pair: Pair<B::P> = connect_to(scene, &Setup::default(), pd)?;
        let own = pair.left.region(8, full_access())?;
        own.scribble(8);
        let op = if n == 0 { write(remote) } else { read(remote) };
        pair.left.send(1, op, &[own.whole()])?;
        *status = scene.completion(&pair.left.send_cq)?.status;
    }
    Ok(seen)
}

const BOTH: [WcStatus; 2] = [WcStatus::Success; 2];
const NEITHER: [WcStatus; 2] = [WcStatus::RemAccessErr; 2];

fn rereg_access<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Right, &Setup::default())?;
    let mut far = node.region(64, full_access())?;
    let change = |far: &mut Region<B::P>, access: Access| {
        far.mr.rereg(&Rereg {
            pd: None,
            buffer: None,
            access: Some(access),
        })
    };
    change(&mut far, Access::LOCAL_WRITE)?;
    let remote = far.remote(0);
    same!(
        try_both(scene, &node.pd, remote)?,
        NEITHER,
        "WRITE and READ without remote rights"
    );
    change(&mut far, Access::REMOTE_READ)?;
    let remote = far.remote(0);
    same!(
        try_both(scene, &node.pd, remote)?,
        [WcStatus::RemAccessErr, WcStatus::Success],
        "WRITE and READ with the right to READ"
    );
    match change(&mut far, Access::REMOTE_WRITE) {
        Ok(()) => return Err(Failure::new("REMOTE_WRITE without LOCAL_WRITE was re-registered")),
        Err(error) => same!(error.kind(), ErrorKind::Invalid, "error ({error})"),
    }
    same!(
        try_both(scene, &node.pd, remote)?,
        [WcStatus::RemAccessErr, WcStatus::Success],
        "WRITE and READ after a refused change"
    );
    change(&mut far, full_access())?;
    let remote = far.remote(0);
    same!(
        try_both(scene, &node.pd, remote)?,
        BOTH,
        "WRITE and READ with all rights"
    );
    Ok(())
}

fn rereg_domain<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (old, new) = (
        scene.node(Side::Right, &Setup::default())?,
        scene.node(Side::Right, &Setup::default())?,
    );
    let mut far = old.region(64, full_access())?;
    let remote = far.remote(0);
    same!(
        try_both(scene, &old.pd, remote)?,
        BOTH,
        "WRITE and READ in the first domain"
    );
    far.mr.rereg(&Rereg {
        pd: Some(&new.pd),
        buffer: None,
        access: None,
    })?;
    let remote = far.remote(0);
    same!(
        try_both(scene, &new.pd, remote)?,
        BOTH,
        "WRITE and READ in the new domain"
    );
    same!(
        try_both(scene, &old.pd, remote)?,
        NEITHER,
        "WRITE and READ in the old domain"
    );
    // The old domain is free, the new one is in use.
    let crate::pair::Node { qp, pd, .. } = old;
    qp.destroy()?;
    pd.destroy()?;
    let crate::pair::Node { qp, pd, .. } = new;
    qp.destroy()?;
    match pd.destroy() {
        Ok(()) => Err(Failure::new("the domain that a region was moved to was freed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            Ok(())
        }
    }
}

fn rereg_memory<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Right, &Setup::default())?;
    let mut far = node.region(64, full_access())?;
    let old = far.buffer.clone();
    old.write(0, &pattern(1, 64));
    let new = Buffer::new(32);
    far.mr.rereg(&Rereg {
        pd: None,
        buffer: Some(&new),
        access: None,
    })?;
    same!(
        (far.mr.addr(), far.mr.length()),
        (new.addr(), 32),
        "address and length after re-registration"
    );
    let remote = |addr: u64| RemoteAddr {
        addr,
        rkey: far.mr.rkey(),
    };
    same!(
        try_both(scene, &node.pd, remote(new.addr() + 24))?,
        BOTH,
        "the end of the new memory"
    );
    same_bytes("the new memory", &new.to_vec(24..32), &pattern(8, 8))?;
    same!(
        try_both(scene, &node.pd, remote(new.addr() + 25))?,
        NEITHER,
        "beyond the new memory"
    );
    same!(
        try_both(scene, &node.pd, remote(old.addr()))?,
        NEITHER,
        "the old memory"
    );
    same_bytes("the old memory", &old.to_vec(0..64), &pattern(1, 64))
}

fn rereg_everything<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let (old, new) = (
        scene.node(Side::Right, &Setup::default())?,
        scene.node(Side::Right, &Setup::default())?,
    );
    let mut far = old.region(64, full_access())?;
    let buffer = Buffer::new(128);
    far.mr.rereg(&Rereg {
        pd: Some(&new.pd),
        buffer: Some(&buffer),
        access: Some(Access::REMOTE_READ),
    })?;
    let remote = RemoteAddr {
        addr: buffer.addr() + 120,
        rkey: far.mr.rkey(),
    };
    same!(
        try_both(scene, &new.pd, remote)?,
        [WcStatus::RemAccessErr, WcStatus::Success],
        "WRITE and READ of the changed region"
    );
    same!(
        try_both(scene, &old.pd, remote)?,
        NEITHER,
        "WRITE and READ in the old domain"
    );
    Ok(())
}
