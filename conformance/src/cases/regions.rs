//! Regions of other kinds: zero-based, null, device memory.

use verbs_api::{
    Access, Advice, Buffer, Context as _, ErrorKind, MemoryRegion, Object, ProtectionDomain, Provider,
    QpState, RemoteAddr, Sge, WcStatus,
};

use super::windows::connect_to;
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Region, Setup, full_access, pattern, read, same_bytes, send, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H11",
            "a zero-based region is reached by offsets, from here and from the peer",
            &["MR-6"],
            zero_based,
        )
        .needing(&[Need::ZeroBased])
        .of_priority(2),
        Case::verbs(
            "H11-BEYOND",
            "a zero-based region is not reached by its address, nor beyond its end",
            &["MR-6", "ACCESS-3"],
            zero_based_bounds,
        )
        .needing(&[Need::ZeroBased])
        .of_priority(2),
        Case::verbs(
            "H0-NULL",
            "the null region reads as zeros and swallows what is written",
            &["MR-7"],
            null_region,
        )
        .needing(&[Need::NullMr])
        .of_priority(2),
        Case::verbs(
            "H0-ODP",
            "memory on demand is reached like any other, and takes advice",
            &["MR-9"],
            on_demand,
        )
        .needing(&[Need::OnDemand])
        .of_priority(3),
        Case::verbs(
            "H0-KEYS",
            "the keys of some regions tell nothing of those of others",
            &["MR-8"],
            unrelated_keys,
        )
        .needing(&[Need::SecretKeys])
        .of_priority(2),
        Case::verbs(
            "H0-KEYS-OLD",
            "a key that was given up is not given to another region soon",
            &["MR-8"],
            old_keys,
        )
        .needing(&[Need::SecretKeys])
        .of_priority(2),
        Case::verbs(
            "E31",
            "a READ into a region that is deregistered meanwhile ends with LOC_PROT_ERR",
            &["LOCAL-2"],
            deregistered_meanwhile,
        )
        .of_priority(2),
    ]
}

fn based<P: Provider>(pd: &P::Pd, length: usize) -> Result<Region<P>, Failure> {
    Region::new(pd, Buffer::new(length), full_access() | Access::ZERO_BASED)
}

fn zero_based<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        based::<B::P>(&pair.left.pd, 4096)?,
        based::<B::P>(&pair.right.pd, 4096)?,
    );
    same!(
        (own.mr.addr(), far.mr.addr()),
        (0, 0),
        "addresses of zero-based regions"
    );
    own.scribble(1);
    let at = |region: &Region<B::P>, offset: u64| RemoteAddr {
        addr: offset,
        rkey: region.mr.rkey(),
    };
    let entry = |offset: u64, length: u32| Sge {
        addr: offset,
        length,
        lkey: own.mr.lkey(),
    };
    pair.left.send(1, write(at(&far, 100)), &[entry(1000, 2000)])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "what was written",
        &far.buffer.to_vec(100..2100),
        &own.buffer.to_vec(1000..3000),
    )?;
    far.scribble(2);
    pair.left.send(2, read(at(&far, 0)), &[entry(0, 4096)])?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    same_bytes("what was READ", &own.buffer.to_vec(0..4096), &pattern(2, 4096))?;
    let receive = Sge {
        addr: 4000,
        length: 96,
        lkey: far.mr.lkey(),
    };
    pair.right.recv(3, &[receive])?;
    pair.left.send_inline(4, send(), b"by offset")?;
    scene.ends_with(&pair.left.send_cq, 4, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 3, WcStatus::Success)?;
    same_bytes("what was received", &far.buffer.to_vec(4000..4009), b"by offset")
}

fn zero_based_bounds<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let right = scene.node(Side::Right, &Setup::default())?;
    let far = based::<B::P>(&right.pd, 4096)?;
    far.scribble(3);
    for (what, addr) in [
        ("the region's address in memory", far.buffer.addr()),
        ("the last byte and one more", 4095),
        ("an offset before the start", u64::MAX),
    ] {
        let pair = connect_to(scene, &Setup::default(), &right.pd)?;
        let remote = RemoteAddr {
            addr,
            rkey: far.mr.rkey(),
        };
        pair.left.send_inline(1, write(remote), b"xx")?;
        scene
            .ends_with(&pair.left.send_cq, 1, WcStatus::RemAccessErr)
            .map_err(|e| e.during(what))?;
    }
    same_bytes("memory", &far.buffer.to_vec(0..4096), &pattern(3, 4096))
}

fn null_region<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let null = pair.left.pd.alloc_null_mr()?;
    let nothing = |length: u32| Sge {
        addr: 0x1234,
        length,
        lkey: null.lkey(),
    };
    let far = pair.right.region(2000, full_access())?;
    far.scribble(4);
    // Sent, it is zeros; between real entries too.
    let own = pair.left.region(10, full_access())?;
    own.scribble(5);
    let sges = [own.sge(0..10), nothing(1500), own.sge(0..5)];
    pair.left.send(1, write(far.remote(0)), &sges)?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    let mut expected = pattern(5, 10);
    expected.extend(vec![0; 1500]);
    expected.extend(pattern(5, 5));
    same_bytes(
        "a WRITE from the null region",
        &far.buffer.to_vec(0..1515),
        &expected,
    )?;
    // Received into, it swallows.
    far.scribble(6);
    let sges = [nothing(1000), own.sge(0..10)];
    pair.left.send(2, read(far.remote(0)), &sges)?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    same_bytes(
        "what a READ leaves beside the null region",
        &own.buffer.to_vec(0..10),
        &pattern(6, 1010)[1000..],
    )?;
    pair.left.recv(3, &[nothing(64), own.sge(0..10)])?;
    let text = pattern(7, 64);
    pair.right.send_inline(4, send(), &text)?;
    scene.ends_with(&pair.right.send_cq, 4, WcStatus::Success)?;
    let wc = scene.ends_with(&pair.left.recv_cq, 3, WcStatus::Success)?;
    same!(wc.byte_len, 64, "length of a receive into the null region");
    null.destroy()?;
    Ok(())
}

fn deregistered_meanwhile<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // The READ waits behind the peer, which is not ready yet.
    let setup = Setup::default();
    let pair = scene.unconnected(&setup)?;
    let own = pair.left.region(4096, full_access())?;
    let far = pair.right.region(4096, full_access())?;
    far.scribble(1);
    pair.left.connect(&setup, &pair.right.endpoint)?;
    pair.left.send(1, read(far.remote(0)), &[own.whole()])?;
    let Region { mr, buffer } = own;
    mr.destroy()?;
    pair.right.connect(&setup, &pair.left.endpoint)?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::LocProtErr)?;
    pair.left.is_in(QpState::Err)?;
    same_bytes(
        "memory that was deregistered",
        &buffer.to_vec(0..4096),
        &[0; 4096],
    )
}

fn unrelated_keys<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const COUNT: usize = 512;
    let pd = scene.context(Side::Left).alloc_pd()?;
    let regions = (0..COUNT)
        .map(|_| Region::<B::P>::new(&pd, Buffer::new(8), full_access()))
        .collect::<Result<Vec<_>, _>>()?;
    // The lowest byte is the tag.
    let keys: Vec<u32> = regions.iter().map(|region| region.mr.rkey().0 >> 8).collect();
    let distinct = |numbers: &mut Vec<u32>| {
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    };
    same!(
        distinct(&mut keys.clone()),
        COUNT,
        "different keys of so many regions"
    );
    let steps = |step: fn(u32, u32) -> u32| {
        let mut steps: Vec<u32> = keys.windows(2).map(|pair| step(pair[0], pair[1])).collect();
        distinct(&mut steps)
    };
    // 511 draws out of 2^24 hardly meet.
    for (what, count) in [
        ("differences", steps(|a, b| b.wrapping_sub(a))),
        ("different bits", steps(|a, b| a ^ b)),
    ] {
        check!(
            count + 3 >= COUNT - 1,
            "the {what} of {COUNT} keys in a row are {count} different numbers"
        );
    }
    for bit in 0..24 {
        let set = keys.iter().filter(|key| *key >> bit & 1 == 1).count();
        let changes = keys
            .windows(2)
            .filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1)
            .count();
        // Six standard deviations.
        for (what, count) in [("is set", set), ("changes", changes)] {
            check!(
                count.abs_diff(COUNT / 2) < 68,
                "bit {bit} of the key {what} in {count} of {COUNT} regions"
            );
        }
    }
    Ok(())
}

fn old_keys<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const COUNT: usize = 5000;
    let pd = scene.context(Side::Left).alloc_pd()?;
    let mut keys = std::collections::BTreeSet::new();
    let _stays = Region::<B::P>::new(&pd, Buffer::new(8), full_access())?;
    let buffer = Buffer::new(8);
    for n in 0..COUNT {
        let mr = pd.reg_mr(&buffer, full_access())?;
        check!(
            keys.insert(mr.rkey().0),
            "region {n} has the key of one before it"
        );
        mr.destroy()?;
    }
    Ok(())
}

fn on_demand<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(10_000, full_access() | Access::ON_DEMAND)?;
    let own = pair.left.region(10_000, full_access())?;
    own.scribble(1);
    let pd = &pair.right.pd;
    let part = |offset: usize, length: u32| Sge {
        addr: far.buffer.addr() + offset as u64,
        length,
        lkey: far.mr.lkey(),
    };
    for advice in [Advice::Prefetch, Advice::PrefetchWrite, Advice::PrefetchNoFault] {
        for sge in [part(0, 10_000), part(9_999, 1), part(100, 0)] {
            pd.advise_mr(advice, &[sge])
                .map_err(|error| Failure::new(format!("{advice:?} about {sge:?}: {error}")))?;
        }
        for (what, sge, kind) in [
            ("one byte too many", part(1, 10_000), ErrorKind::Fault),
            (
                "a key that opens nothing",
                Sge {
                    lkey: verbs_api::LKey(far.mr.lkey().0 ^ 0x100),
                    ..part(0, 8)
                },
                ErrorKind::Fault,
            ),
        ] {
            same!(
                pd.advise_mr(advice, &[sge]).err().map(|error| error.kind()),
                Some(kind),
                "error of {advice:?} with {what}"
            );
        }
    }
    let pinned = pair.right.region(64, full_access())?;
    same!(
        pd.advise_mr(Advice::Prefetch, &[pinned.whole()])
            .err()
            .map(|error| error.kind()),
        Some(ErrorKind::Invalid),
        "error of advice about memory that is not on demand"
    );
    let fixed = Region::<B::P>::new(pd, Buffer::new(64), Access::ON_DEMAND)?;
    // Through the C interface advice may come to nothing in silence: it is advice.
    let answer = pd.advise_mr(Advice::PrefetchWrite, &[fixed.whole()]);
    let answer = answer.err().map(|error| error.kind());
    check!(
        answer == Some(ErrorKind::Fault) || answer.is_none() && !scene.bed.has(Need::Counters),
        "error of advice to write what may not be written: {answer:?}"
    );
    pair.left.send(1, write(far.remote(0)), &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "what was written",
        &far.buffer.to_vec(0..10_000),
        &pattern(1, 10_000),
    )
}
