//! Device memory.

use softroce_engine::SendOperation;
use verbs_api::{Access, ErrorKind, RemoteAddr, Sge, WcStatus};

use crate::node::{Node, all_access};
use crate::pair::Pair;
use crate::raw::Raw;

const TOTAL_BYTES: usize = 64 << 20;

fn zero_based() -> Access {
    all_access() | Access::ZERO_BASED
}

#[test]
fn it_is_zero_at_first_and_keeps_what_is_copied_in() {
    let mut node = Node::new("10.0.0.1", 1);
    let dm = node.engine.alloc_dm(100, 0).unwrap();
    let mut out = [9; 100];
    node.engine.read_dm(dm, 0, &mut out).unwrap();
    assert_eq!(out, [0; 100]);
    node.engine.write_dm(dm, 96, b"last").unwrap();
    node.engine.write_dm(dm, 4, b"fore").unwrap();
    node.engine.read_dm(dm, 92, &mut out[..8]).unwrap();
    assert_eq!(&out[..8], b"\0\0\0\0last");
    node.engine.free_dm(dm).unwrap();
    assert_eq!(node.engine.free_dm(dm).unwrap_err().kind(), ErrorKind::Invalid);
    let refused = node.engine.read_dm(dm, 0, &mut out[..4]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn copies_outside_of_it_or_off_its_grain_are_refused_and_change_nothing() {
    let mut node = Node::new("10.0.0.1", 1);
    let dm = node.engine.alloc_dm(100, 0).unwrap();
    for (offset, length) in [
        (100, 4),
        (96, 8),
        (0, 104),
        (3, 4),
        (4, 3),
        (u64::MAX - 3, 4),
        (u64::MAX - 3, 8),
    ] {
        let bytes = vec![7; length];
        let refused = node.engine.write_dm(dm, offset, &bytes).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{offset}+{length}");
        let refused = node.engine.read_dm(dm, offset, &mut vec![0; length]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{offset}+{length}");
    }
    let mut out = [9; 100];
    node.engine.read_dm(dm, 0, &mut out).unwrap();
    assert_eq!(out, [0; 100]);
    node.engine.read_dm(dm, 100, &mut []).unwrap();
}

#[test]
fn all_of_it_together_is_bounded_and_comes_back() {
    let mut node = Node::new("10.0.0.1", 1);
    assert_eq!(node.engine.device_attr().max_dm_bytes, TOTAL_BYTES as u64);
    for (length, log_align, kind) in [
        (0, 0, ErrorKind::Invalid),
        (8, 21, ErrorKind::Invalid),
        (8, u32::MAX, ErrorKind::Invalid),
        (TOTAL_BYTES + 1, 0, ErrorKind::NoMemory),
        (usize::MAX, 0, ErrorKind::NoMemory),
    ] {
        let refused = node.engine.alloc_dm(length, log_align).unwrap_err();
        assert_eq!(refused.kind(), kind, "{length} {log_align}");
    }
    let half = node.engine.alloc_dm(TOTAL_BYTES / 2, 20).unwrap();
    let other = node.engine.alloc_dm(TOTAL_BYTES / 2, 0).unwrap();
    let refused = node.engine.alloc_dm(1, 0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
    assert_eq!(node.engine.objects().dms, 2);
    node.engine.free_dm(half).unwrap();
    node.engine.alloc_dm(TOTAL_BYTES / 2, 0).unwrap();
    node.engine.free_dm(other).unwrap();
}

#[test]
fn regions_on_it_are_zero_based_within_it_and_keep_it() {
    let mut node = Node::new("10.0.0.1", 1);
    let pd = node.pd;
    let dm = node.engine.alloc_dm(100, 0).unwrap();
    for (offset, length) in [(0, 101), (101, 0), (96, 5), (u64::MAX, 1), (u64::MAX, 2)] {
        let refused = node.engine.reg_dm_mr(pd, dm, offset, length, zero_based());
        assert_eq!(
            refused.unwrap_err().kind(),
            ErrorKind::Invalid,
            "{offset}+{length}"
        );
    }
    let refused = node.engine.reg_dm_mr(pd, dm, 0, 100, all_access());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    let refused = node
        .engine
        .reg_dm_mr(pd, dm, 0, 100, Access::ZERO_BASED | Access::REMOTE_WRITE);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    // The refusals lent nothing.
    let mr = node.engine.reg_dm_mr(pd, dm, 50, 50, zero_based()).unwrap();
    let empty = node.engine.reg_dm_mr(pd, dm, 100, 0, zero_based()).unwrap();
    for id in [mr.id, empty.id] {
        assert_eq!(node.engine.free_dm(dm).unwrap_err().kind(), ErrorKind::Busy);
        node.engine.dereg_mr(id).unwrap();
    }
    node.engine.free_dm(dm).unwrap();
}

#[test]
fn a_region_on_it_changes_its_rights_and_not_its_place() {
    let mut node = Node::new("10.0.0.1", 1);
    let dm = node.engine.alloc_dm(100, 0).unwrap();
    let mr = node.engine.reg_dm_mr(node.pd, dm, 0, 100, zero_based()).unwrap();
    let start = node.address(0);
    let place = Some((start as *mut u8, 64, start));
    let rights = Some(Access::REMOTE_READ | Access::ZERO_BASED);
    for (place, access, is_fine) in [
        (place, None, false),
        (None, Some(Access::REMOTE_READ), false),
        (None, rights, true),
    ] {
        // SAFETY: the node's memory is never freed.
        let changed = unsafe { node.engine.rereg_mr(mr.id, None, place, access) };
        match changed {
            Ok(info) => assert_eq!((is_fine, info), (true, mr)),
            Err(error) => assert_eq!((is_fine, error.kind()), (false, ErrorKind::Invalid)),
        }
    }
    assert_eq!(node.engine.free_dm(dm).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn peers_and_requests_reach_it_through_its_region() {
    let mut pair = Pair::new();
    let dm = pair.b.engine.alloc_dm(4096, 3).unwrap();
    let mr = pair
        .b
        .engine
        .reg_dm_mr(pair.b.pd, dm, 1024, 2048, zero_based())
        .unwrap();
    let data = crate::node::pattern(2000, 1);
    pair.a.write(0, &data);
    let sge = pair.a.sge(0, 2000);
    let remote = |addr| RemoteAddr { addr, rkey: mr.rkey };
    let write = SendOperation::Write {
        remote: remote(8),
        imm: None,
    };
    pair.a.post(pair.now, pair.qa, 1, write, &[sge]);
    let word = pair.a.sge(8192, 8);
    let add = SendOperation::FetchAdd {
        remote: remote(2040),
        add: 3,
    };
    pair.a.post(pair.now, pair.qa, 2, add, &[word]);
    pair.a.post(pair.now, pair.qa, 3, add, &[word]);
    pair.run();
    let success = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!(pair.a.outcomes(), [success(1), success(2), success(3)]);
    assert_eq!(pair.a.read(8192, 8), 3u64.to_ne_bytes());
    let mut out = vec![0; 4096];
    pair.b.engine.read_dm(dm, 0, &mut out).unwrap();
    assert_eq!(out[..1032], [0; 1032]);
    assert_eq!(out[1032..3032], data);
    assert_eq!(out[1024 + 2040..1024 + 2048], 6u64.to_ne_bytes());

    // And back, by a SEND out of it.
    let room = pair.a.sge(4096, 2048);
    pair.a.recv(pair.now, pair.qa, 4, &[room]);
    let local = Sge {
        addr: 8,
        length: 2000,
        lkey: mr.lkey,
    };
    pair.b
        .post(pair.now, pair.qb, 5, SendOperation::Send { imm: None }, &[local]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [success(4)]);
    assert_eq!(pair.a.read(4096, 2000), data);
}

#[test]
fn windows_are_not_bound_to_it() {
    let mut raw = Raw::new();
    let dm = raw.node.engine.alloc_dm(100, 0).unwrap();
    let mr = raw
        .node
        .engine
        .reg_dm_mr(raw.node.pd, dm, 0, 100, zero_based())
        .unwrap();
    let (mw, rkey) = raw
        .node
        .engine
        .alloc_mw(raw.node.pd, verbs_api::MwType::Type2)
        .unwrap();
    let bind = SendOperation::BindMw {
        mw,
        rkey,
        mr: mr.id,
        addr: 0,
        length: 8,
        access: Access::REMOTE_READ,
    };
    raw.node.post(raw.now, raw.qpn, 1, bind, &[]);
    super::settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::MwBindErr)]);
}
