//! Binds that must fail, and what they leave.

use softroce_engine::{BindRequest, MwId, SendOperation};
use verbs_api::{Access, ErrorKind, MwType, QpState, RKey, SendFlags, WcStatus};

use super::{bind_type1, bind_type2, remote_access, settle, with_tag};
use crate::node::all_access;
use crate::raw::Raw;

/// A window of type 2 and a connection.
fn type2() -> (Raw, MwId, RKey) {
    let mut raw = Raw::new();
    let (mw, rkey) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type2).unwrap();
    (raw, mw, rkey)
}

/// Post `op` and a SEND behind it: it must fail, the SEND be flushed, the queue pair be in ERR.
#[track_caller]
fn assert_bind_fails(raw: &mut Raw, op: SendOperation) {
    let sge = raw.node.sge(0, 8);
    raw.node
        .post_with(raw.now, raw.qpn, 1, op, &[], SendFlags::empty());
    raw.node
        .post(raw.now, raw.qpn, 2, SendOperation::Send { imm: None }, &[sge]);
    settle(&mut raw.node, raw.now);
    assert_eq!(
        raw.node.outcomes(),
        [(1, WcStatus::MwBindErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(raw.state(), QpState::Err);
}

/// A region of the first 4096 bytes of the node's memory.
fn region(raw: &mut Raw, pd: softroce_engine::PdId, access: Access) -> softroce_engine::MrInfo {
    let start = raw.node.address(0);
    // SAFETY: the node's memory is never freed, and is used as it demands.
    unsafe { raw.node.engine.reg_mr(pd, start as *mut u8, 4096, start, access) }.unwrap()
}

fn bind_to(
    raw: &Raw,
    (mw, rkey): (MwId, RKey),
    mr: softroce_engine::MrInfo,
    access: Access,
) -> SendOperation {
    SendOperation::BindMw {
        mw,
        rkey,
        mr: mr.id,
        addr: raw.node.address(0),
        length: 64,
        access,
    }
}

#[test]
fn to_a_region_that_permits_no_windows() {
    let (mut raw, mw, rkey) = type2();
    let pd = raw.node.pd;
    let mr = region(&mut raw, pd, all_access() - Access::MW_BIND);
    let op = bind_to(&raw, (mw, rkey), mr, Access::REMOTE_READ);
    assert_bind_fails(&mut raw, op);
}

#[test]
fn with_the_right_to_write_to_a_region_that_cannot_be_written() {
    for (access, fails) in [
        (Access::REMOTE_READ, false),
        (Access::REMOTE_WRITE, true),
        (Access::REMOTE_ATOMIC, true),
    ] {
        let (mut raw, mw, rkey) = type2();
        let pd = raw.node.pd;
        let mr = region(&mut raw, pd, Access::MW_BIND);
        let op = bind_to(&raw, (mw, rkey), mr, access);
        if fails {
            assert_bind_fails(&mut raw, op);
        } else {
            raw.node.post(raw.now, raw.qpn, 1, op, &[]);
            settle(&mut raw.node, raw.now);
            assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
        }
    }
}

#[test]
fn beyond_the_region() {
    let end = crate::node::MEMORY_BYTES as u64;
    let ends = [
        (0, end + 1),
        (1, end),
        (end, 1),
        (u64::MAX - 7, 16),
        (0, u64::MAX),
        (0_u64.wrapping_sub(1), 1),
    ];
    for (offset, length) in ends {
        let (mut raw, mw, rkey) = type2();
        let addr = raw.node.address(0).wrapping_add(offset);
        let mr = raw.node.mr.id;
        let access = remote_access();
        let op = SendOperation::BindMw {
            mw,
            rkey,
            mr,
            addr,
            length,
            access,
        };
        assert_bind_fails(&mut raw, op);
    }
    let (mut raw, mw, rkey) = type2();
    let whole = bind_type2(&raw.node, mw, rkey, 0, end, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, whole, &[]);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
}

#[test]
fn across_protection_domains() {
    let (mut raw, mw, rkey) = type2();
    let other = raw.node.engine.alloc_pd().unwrap();
    let mr = region(&mut raw, other, all_access());
    let op = bind_to(&raw, (mw, rkey), mr, remote_access());
    assert_bind_fails(&mut raw, op);

    let mut raw = Raw::new();
    let other = raw.node.engine.alloc_pd().unwrap();
    let window = raw.node.engine.alloc_mw(other, MwType::Type2).unwrap();
    let own = raw.node.mr;
    let op = bind_to(&raw, window, own, remote_access());
    assert_bind_fails(&mut raw, op);
}

#[test]
fn to_a_zero_based_region_or_the_null_region() {
    let (mut raw, mw, rkey) = type2();
    let pd = raw.node.pd;
    let mr = region(&mut raw, pd, all_access() | Access::ZERO_BASED);
    let mut op = bind_to(&raw, (mw, rkey), mr, remote_access());
    if let SendOperation::BindMw { addr, .. } = &mut op {
        *addr = 0;
    }
    assert_bind_fails(&mut raw, op);

    let (mut raw, mw, rkey) = type2();
    let null = raw.node.engine.alloc_null_mr(raw.node.pd).unwrap();
    let op = bind_to(&raw, (mw, rkey), null, Access::REMOTE_READ);
    assert_bind_fails(&mut raw, op);
}

#[test]
fn to_a_region_or_of_a_window_that_is_gone() {
    let (mut raw, mw, rkey) = type2();
    let pd = raw.node.pd;
    let mr = region(&mut raw, pd, all_access());
    raw.node.engine.dereg_mr(mr.id).unwrap();
    let op = bind_to(&raw, (mw, rkey), mr, remote_access());
    assert_bind_fails(&mut raw, op);

    let (mut raw, mw, rkey) = type2();
    raw.node.engine.dealloc_mw(mw).unwrap();
    let op = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    assert_bind_fails(&mut raw, op);
}

#[test]
fn of_type_2_to_no_bytes_or_under_a_foreign_key() {
    let (mut raw, mw, rkey) = type2();
    let op = bind_type2(&raw.node, mw, rkey, 0, 0, remote_access());
    assert_bind_fails(&mut raw, op);

    let (mut raw, mw, rkey) = type2();
    let op = bind_type2(&raw.node, mw, RKey(rkey.0 ^ 0x100), 0, 64, remote_access());
    assert_bind_fails(&mut raw, op);
}

#[test]
fn of_type_2_while_it_is_bound() {
    let (mut raw, mw, rkey) = type2();
    let first = bind_type2(&raw.node, mw, with_tag(rkey, 1), 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 0, first, &[]);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(0, WcStatus::Success)]);
    let again = bind_type2(&raw.node, mw, with_tag(rkey, 2), 0, 64, remote_access());
    assert_bind_fails(&mut raw, again);
    assert_eq!(raw.node.engine.mw_rkey(mw).unwrap(), with_tag(rkey, 1));
    let busy = raw.node.engine.dereg_mr(raw.node.mr.id).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "the first bind still holds");
}

#[test]
fn of_the_other_type() {
    let mut raw = Raw::new();
    let (mw, rkey) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type1).unwrap();
    let op = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    assert_bind_fails(&mut raw, op);

    let (mut raw, mw, _) = type2();
    let request = bind_type1(&raw.node, 1, 0, 64, remote_access());
    let refused = raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &request);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn of_a_zero_based_window_of_type_1() {
    let mut raw = Raw::new();
    let (mw, rkey) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type1).unwrap();
    let request = bind_type1(&raw.node, 1, 0, 64, remote_access() | Access::ZERO_BASED);
    raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &request).unwrap();
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::MwBindErr)]);
    assert_eq!(raw.node.engine.mw_rkey(mw).unwrap(), rkey);
}

#[test]
fn a_failed_bind_of_type_1_leaves_the_window_as_it_was() {
    let mut raw = Raw::new();
    let (mw, _) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type1).unwrap();
    let good = bind_type1(&raw.node, 1, 0, 64, remote_access());
    let key = raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &good).unwrap();
    let beyond = bind_type1(&raw.node, 2, 0, u64::MAX, remote_access());
    raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &beyond).unwrap();
    settle(&mut raw.node, raw.now);
    assert_eq!(
        raw.node.outcomes(),
        [(1, WcStatus::Success), (2, WcStatus::MwBindErr)]
    );
    assert_eq!(raw.node.engine.mw_rkey(mw).unwrap(), key);
    assert_eq!(
        raw.node.engine.dereg_mr(raw.node.mr.id).unwrap_err().kind(),
        ErrorKind::Busy
    );
}

#[test]
fn what_can_be_seen_at_once_is_refused_at_once_and_promises_no_key() {
    let mut raw = Raw::new();
    let (mw, key) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type1).unwrap();
    let good = bind_type1(&raw.node, 1, 0, 64, remote_access());
    let odd = [
        BindRequest {
            access: Access::ON_DEMAND,
            ..good
        },
        BindRequest { mr: None, ..good },
    ];
    for request in odd {
        let refused = raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &request);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let huge = bind_type2(&raw.node, mw, key, 0, 64, Access::HUGETLB);
    let request = softroce_engine::SendRequest {
        wr_id: 1,
        op: huge,
        payload: verbs_api::Payload::Sges(&[]),
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    let refused = raw.node.engine.post_send(raw.now, raw.qpn, &request);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    // A full queue takes no bind either.
    let depth = 64;
    for _ in 0..depth {
        raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &good).unwrap();
    }
    let refused = raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &good);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoMemory);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes().len(), depth);
    assert_eq!(raw.node.engine.mw_rkey(mw).unwrap(), with_tag(key, depth as u8));
    let next = raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &good).unwrap();
    assert_eq!(next, with_tag(key, depth as u8 + 1));
}
