//! Regions and their keys.

use verbs_api::{
    Access, Buffer, ErrorKind, MemoryRegion, Object, ProtectionDomain, QpState, Rereg, SendOp, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H1",
            "remote writing rights need the local one",
            &["MR-1"],
            rights_need_local_write,
        ),
        Case::verbs("H3", "re-registering takes the old rights away", &["MR-2"], rereg)
            .needing(&[Need::Rereg])
            .of_priority(2),
        Case::verbs("H4", "regions of any alignment work", &["MR-3"], odd_regions).of_priority(2),
        Case::verbs(
            "H14",
            "an old key does not open a new region",
            &["MR-4"],
            stale_key,
        ),
        Case::verbs(
            "H0-IOVA",
            "a region answers under its own address",
            &["MR-5"],
            iova,
        )
        .of_priority(2),
    ]
}

fn rights_need_local_write<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Left, &Setup::default())?;
    let buffer = Buffer::new(4096);
    for access in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::REMOTE_WRITE | Access::REMOTE_READ,
    ] {
        match node.pd.reg_mr(&buffer, access) {
            Ok(_) => {
                return Err(Failure::new(format!(
                    "{access:?} without LOCAL_WRITE was registered"
                )));
            }
            Err(error) => same!(error.kind(), ErrorKind::Invalid, "error for {access:?} ({error})"),
        }
        let mr = node.pd.reg_mr(&buffer, access | Access::LOCAL_WRITE)?;
        check!(
            mr.rkey().0 != 0 && mr.lkey().0 != 0,
            "a key is 0: {:?} {:?}",
            mr.lkey(),
            mr.rkey()
        );
        mr.destroy()?;
    }
    node.pd.reg_mr(&buffer, Access::REMOTE_READ)?.destroy()?;
    node.pd.reg_mr(&buffer, Access::empty())?.destroy()?;
    Ok(())
}

fn rereg<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let own = pair.left.region(64, full_access())?;
    let mut far = pair.right.region(64, full_access())?;
    pair.left.send(
        1,
        SendOp::Write {
            remote: far.remote(0),
            imm: None,
        },
        &[own.whole()],
    )?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    let change = Rereg {
        pd: None,
        buffer: None,
        access: Some(Access::LOCAL_WRITE | Access::REMOTE_READ),
    };
    far.mr.rereg(&change)?;
    pair.left.send(
        2,
        SendOp::Read {
            remote: far.remote(0),
        },
        &[own.whole()],
    )?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    far.scribble(1);
    pair.left.send(
        3,
        SendOp::Write {
            remote: far.remote(0),
            imm: None,
        },
        &[own.whole()],
    )?;
    scene.ends_with(&pair.left.send_cq, 3, WcStatus::RemAccessErr)?;
    same_bytes("memory", &far.buffer.to_vec(0..64), &pattern(1, 64))
}

fn odd_regions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let buffer = Buffer::new(8192);
    let own = pair.left.region(8192, full_access())?;
    own.scribble(12);
    for (start, length) in [(0usize, 1usize), (1, 1), (4095, 2), (3, 4093), (4097, 4095)] {
        buffer.fill(0..8192, 0);
        let mr = pair.right.pd.reg_mr_iova(
            &buffer,
            start..start + length,
            buffer.addr() + start as u64,
            full_access(),
        )?;
        let far = Region::<B::P> {
            mr,
            buffer: buffer.clone(),
        };
        same!(far.mr.length(), length as u64, "length of the region");
        pair.left.send(
            1,
            SendOp::Write {
                remote: far.remote(0),
                imm: None,
            },
            &[own.sge(0..length)],
        )?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        let mut expected = vec![0; 8192];
        expected[start..start + length].copy_from_slice(&own.buffer.to_vec(0..length));
        same_bytes(
            &format!("a region of {length} bytes at {start}"),
            &buffer.to_vec(0..8192),
            &expected,
        )?;
    }
    Ok(())
}

fn stale_key<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let own = pair.left.region(64, full_access())?;
    let buffer = Buffer::new(64);
    let first = Region::<B::P>::new(&pair.right.pd, buffer.clone(), full_access())?;
    let old = first.remote(0);
    first.mr.destroy()?;
    for round in 0..300 {
        let next = Region::<B::P>::new(&pair.right.pd, buffer.clone(), full_access())?;
        check!(
            next.remote(0).rkey != old.rkey,
            "registration {round} gave out the key of the first one again"
        );
        next.mr.destroy()?;
    }
    let last = Region::<B::P>::new(&pair.right.pd, buffer.clone(), full_access())?;
    last.scribble(4);
    pair.left.send(
        1,
        SendOp::Write {
            remote: old,
            imm: None,
        },
        &[own.whole()],
    )?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::RemAccessErr)?;
    same_bytes("memory", &buffer.to_vec(0..64), &pattern(4, 64))?;
    pair.left.is_in(QpState::Err)
}

/// Addresses may reach up to the last one, and not around. Each lies within its page as its memory does, as Linux wants it.
fn ends_of_addresses<P: verbs_api::Provider>(pd: &P::Pd) -> CaseResult {
    let buffer = Buffer::new(8192);
    pd.reg_mr_iova(&buffer, 4032..4096, u64::MAX - 63, full_access())?
        .destroy()?;
    check!(
        pd.reg_mr_iova(&buffer, 4033..4097, u64::MAX - 62, full_access())
            .is_err(),
        "a region around the end of all addresses was registered"
    );
    Ok(())
}

/// Where a region begins says nothing of where its words are.
fn odd_start<B: Testbed>(scene: &mut Scene<B>, pair: &Pair<B::P>) -> CaseResult {
    if !scene.bed.has(Need::Atomics) {
        return Ok(());
    }
    let buffer = Buffer::new(64);
    buffer.store_u64(8, 7);
    let start = buffer.addr() + 2;
    let mr = pair.right.pd.reg_mr_iova(&buffer, 2..64, start, full_access())?;
    let own = pair.left.region(8, full_access())?;
    let op = SendOp::FetchAdd {
        remote: verbs_api::RemoteAddr {
            addr: buffer.addr() + 8,
            rkey: mr.rkey(),
        },
        add: 3,
    };
    pair.left.send(5, op, &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 5, WcStatus::Success)?;
    same!(
        (own.buffer.load_u64(0), buffer.load_u64(8)),
        (7, 10),
        "a word before and after an atomic"
    );
    Ok(())
}

fn iova<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let own = pair.left.region(4096, full_access())?;
    own.scribble(5);
    let buffer = Buffer::new(8192);
    let iova = 0x1000_0000_0000u64;
    let mr = pair
        .right
        .pd
        .reg_mr_iova(&buffer, 4096..8192, iova, full_access())?;
    let far = Region::<B::P> { mr, buffer };
    same!(far.mr.addr(), iova, "address of the region");
    pair.left.send(
        1,
        SendOp::Write {
            remote: far.remote(96),
            imm: None,
        },
        &[own.sge(0..1500)],
    )?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "written bytes",
        &far.buffer.to_vec(4192..5692),
        &own.buffer.to_vec(0..1500),
    )?;
    pair.right.recv(3, &[far.sge(2000..2100)])?;
    pair.left
        .send(2, SendOp::Send { imm: None }, &[own.sge(0..100)])?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 3, WcStatus::Success)?;
    same_bytes(
        "received bytes",
        &far.buffer.to_vec(6096..6196),
        &own.buffer.to_vec(0..100),
    )?;
    ends_of_addresses::<B::P>(&pair.right.pd)?;
    odd_start(scene, &pair)?;
    // The host's own address is not the region's.
    let host = verbs_api::RemoteAddr {
        addr: far.buffer.addr() + 4096,
        ..far.remote(0)
    };
    pair.left.send(
        4,
        SendOp::Write {
            remote: host,
            imm: None,
        },
        &[own.sge(0..8)],
    )?;
    scene.ends_with(&pair.left.send_cq, 4, WcStatus::RemAccessErr)?;
    Ok(())
}
