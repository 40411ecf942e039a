//! What peers may do through bound windows.

use verbs_api::{Access, ErrorKind, MwType, RKey, RemoteAddr, WcOpcode, WcStatus};

use softroce_engine::SendOperation;

use super::{at, bind_type1, bind_type2, remote_access, settle, with_tag};
use crate::node::{Connection, Node};
use crate::pair::Pair;

const WRITE_LEN: usize = 8;

/// A WRITE of eight bytes from A through `remote`; how it completed. The connection begins anew when it failed.
fn write(pair: &mut Pair, remote: RemoteAddr) -> WcStatus {
    let sge = pair.a.sge(0, WRITE_LEN);
    let op = SendOperation::Write { remote, imm: None };
    pair.a.post(pair.now, pair.qa, 1, op, &[sge]);
    pair.run();
    let outcomes = pair.a.outcomes();
    assert_eq!(outcomes.len(), 1);
    if outcomes[0].1 != WcStatus::Success {
        reconnect(pair);
    }
    outcomes[0].1
}

fn reconnect(pair: &mut Pair) {
    for (node, qpn) in [(&mut pair.a, pair.qa), (&mut pair.b, pair.qb)] {
        let reset = verbs_api::QpAttr {
            state: Some(verbs_api::QpState::Reset),
            ..Default::default()
        };
        node.modify(pair.now, qpn, reset);
        node.completions();
        node.qp_events();
    }
    pair.connect(&Connection::default());
}

/// B's window of type 1 on `length` bytes from `offset`.
fn window1(pair: &mut Pair, offset: usize, length: u64) -> (softroce_engine::MwId, RKey) {
    let (mw, _) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type1).unwrap();
    let request = bind_type1(&pair.b, 5, offset, length, remote_access());
    let rkey = pair.b.engine.bind_mw(pair.now, pair.qb, mw, &request).unwrap();
    settle(&mut pair.b, pair.now);
    assert_eq!(pair.b.outcomes(), [(5, WcStatus::Success)]);
    (mw, rkey)
}

#[test]
fn a_window_opens_its_bytes_and_no_byte_beside_them() {
    let mut pair = Pair::new();
    pair.a.write(0, &[7; 8]);
    let (_, rkey) = window1(&mut pair, 4096, 64);
    for (offset, status) in [
        (4096, WcStatus::Success),
        (4096 + 56, WcStatus::Success),
        (4095, WcStatus::RemAccessErr),
        (4096 + 57, WcStatus::RemAccessErr),
        (0, WcStatus::RemAccessErr),
    ] {
        let remote = at(&pair.b, offset, rkey);
        assert_eq!(write(&mut pair, remote), status, "offset {offset}");
    }
    assert_eq!(pair.b.read(4096, 8), [7; 8]);
    assert_eq!(pair.b.read(4104, 48), [0; 48]);
    assert_eq!(pair.b.read(4152, 8), [7; 8]);
    assert_eq!(
        (pair.b.read(4088, 8), pair.b.read(4160, 8)),
        (vec![0; 8], vec![0; 8])
    );
}

#[test]
fn what_a_window_does_not_grant_is_refused_though_its_region_grants_it() {
    for (access, status) in [
        (Access::empty(), WcStatus::RemAccessErr),
        (Access::LOCAL_WRITE, WcStatus::RemAccessErr),
        (
            Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            WcStatus::RemAccessErr,
        ),
        (Access::REMOTE_WRITE, WcStatus::Success),
    ] {
        let mut pair = Pair::new();
        let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
        let bind = bind_type2(&pair.b, mw, rkey, 0, 64, access);
        pair.b.post(pair.now, pair.qb, 5, bind, &[]);
        settle(&mut pair.b, pair.now);
        assert_eq!(pair.b.outcomes(), [(5, WcStatus::Success)]);
        let remote = at(&pair.b, 0, rkey);
        assert_eq!(write(&mut pair, remote), status, "{access:?}");
    }
}

#[test]
fn a_window_may_grant_what_its_region_does_not_grant_to_peers() {
    let mut pair = Pair::new();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    // SAFETY: no new translation, so no new promise.
    let closed = unsafe { pair.b.engine.rereg_mr(pair.b.mr.id, None, None, Some(access)) }.unwrap();
    assert_eq!(closed, pair.b.mr);
    let remote = pair.b.remote(0);
    assert_eq!(write(&mut pair, remote), WcStatus::RemAccessErr);
    let (_, rkey) = window1(&mut pair, 0, 64);
    let remote = at(&pair.b, 0, rkey);
    assert_eq!(write(&mut pair, remote), WcStatus::Success);
}

#[test]
fn reads_and_atomics_go_through_windows_too() {
    let mut pair = Pair::new();
    let (_, rkey) = window1(&mut pair, 64, 8);
    pair.b.write(64, &5u64.to_ne_bytes());
    let (remote, sge) = (at(&pair.b, 64, rkey), pair.a.sge(0, 8));
    let add = SendOperation::FetchAdd { remote, add: 37 };
    pair.a.post(pair.now, pair.qa, 1, add, &[sge]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(pair.a.read(0, 8), 5u64.to_ne_bytes());
    pair.a
        .post(pair.now, pair.qa, 2, SendOperation::Read { remote }, &[sge]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(2, WcStatus::Success)]);
    assert_eq!(pair.a.read(0, 8), 42u64.to_ne_bytes());
}

#[test]
fn each_bind_of_type_1_kills_the_key_before_and_length_0_kills_the_last() {
    let mut pair = Pair::new();
    let (mw, first) = window1(&mut pair, 0, 64);
    assert_eq!(pair.b.engine.mw_rkey(mw).unwrap(), first);
    let request = bind_type1(&pair.b, 6, 128, 64, remote_access());
    let second = pair.b.engine.bind_mw(pair.now, pair.qb, mw, &request).unwrap();
    assert_ne!(first, second);
    assert_eq!(
        pair.b.engine.mw_rkey(mw).unwrap(),
        first,
        "the bind is queued still"
    );
    settle(&mut pair.b, pair.now);
    assert_eq!(pair.b.engine.mw_rkey(mw).unwrap(), second);
    let (old, new) = (at(&pair.b, 0, first), at(&pair.b, 128, second));
    assert_eq!(write(&mut pair, old), WcStatus::RemAccessErr);
    assert_eq!(write(&mut pair, new), WcStatus::Success);

    let mut unbind = bind_type1(&pair.b, 7, 0, 0, Access::empty());
    unbind.mr = None;
    let third = pair.b.engine.bind_mw(pair.now, pair.qb, mw, &unbind).unwrap();
    settle(&mut pair.b, pair.now);
    let wc = pair.b.completions().pop().unwrap();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode),
        (7, WcStatus::Success, WcOpcode::BindMw)
    );
    for rkey in [first, second, third] {
        let remote = at(&pair.b, 128, rkey);
        assert_eq!(write(&mut pair, remote), WcStatus::RemAccessErr, "{rkey:?}");
    }
}

#[test]
fn a_window_of_type_1_is_open_to_all_queue_pairs_of_its_domain() {
    let mut pair = Pair::new();
    let (mw, _) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type1).unwrap();
    // Another queue pair binds it.
    let other = pair.b.create_qp(&Connection::default());
    pair.b.enter_init(pair.now, other, &Connection::default());
    pair.b
        .enter_rtr(pair.now, other, pair.a.ip, 0x99, &Connection::default());
    pair.b.enter_rts(pair.now, other, &Connection::default());
    let request = bind_type1(&pair.b, 5, 0, 64, remote_access());
    let rkey = pair.b.engine.bind_mw(pair.now, other, mw, &request).unwrap();
    settle(&mut pair.b, pair.now);
    let remote = at(&pair.b, 0, rkey);
    assert_eq!(write(&mut pair, remote), WcStatus::Success);
    // It outlives that queue pair.
    pair.b.engine.destroy_qp(pair.now, other).unwrap();
    assert_eq!(write(&mut pair, remote), WcStatus::Success);
    pair.b.engine.dealloc_mw(mw).unwrap();
    assert_eq!(write(&mut pair, remote), WcStatus::RemAccessErr);
}

#[test]
fn a_window_of_type_2_is_open_through_the_queue_pair_that_bound_it_and_closed_when_that_is_gone() {
    let mut pair = Pair::new();
    let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    let other = pair.b.create_qp(&Connection::default());
    pair.b.enter_init(pair.now, other, &Connection::default());
    pair.b
        .enter_rtr(pair.now, other, pair.a.ip, 0x99, &Connection::default());
    pair.b.enter_rts(pair.now, other, &Connection::default());
    let bind = bind_type2(&pair.b, mw, with_tag(rkey, 9), 0, 64, remote_access());
    pair.b.post(pair.now, other, 5, bind, &[]);
    settle(&mut pair.b, pair.now);
    assert_eq!(pair.b.outcomes(), [(5, WcStatus::Success)]);
    assert_eq!(pair.b.engine.mw_rkey(mw).unwrap(), with_tag(rkey, 9));
    let remote = at(&pair.b, 0, with_tag(rkey, 9));
    assert_eq!(write(&mut pair, remote), WcStatus::RemAccessErr);
    assert_eq!(pair.b.read(0, 8), [0; 8]);

    let busy = pair.b.engine.dereg_mr(pair.b.mr.id).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    pair.b.engine.destroy_qp(pair.now, other).unwrap();
    pair.b.engine.dereg_mr(pair.b.mr.id).unwrap();
}

#[test]
fn a_window_of_type_2_works_for_the_queue_pair_that_bound_it_and_only_with_its_whole_key() {
    let mut pair = Pair::new();
    let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    let bind = bind_type2(&pair.b, mw, with_tag(rkey, 9), 0, 64, remote_access());
    pair.b.post(pair.now, pair.qb, 5, bind, &[]);
    settle(&mut pair.b, pair.now);
    let (right, wrong) = (at(&pair.b, 0, with_tag(rkey, 9)), at(&pair.b, 0, rkey));
    assert_eq!(write(&mut pair, wrong), WcStatus::RemAccessErr);
    // It stays bound while its queue pair begins anew.
    assert_eq!(write(&mut pair, right), WcStatus::Success);
}

#[test]
fn a_zero_based_window_counts_from_zero() {
    let mut pair = Pair::new();
    pair.a.write(0, &[7; 8]);
    let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    let access = remote_access() | Access::ZERO_BASED;
    let bind = bind_type2(&pair.b, mw, rkey, 512, 16, access);
    pair.b.post(pair.now, pair.qb, 5, bind, &[]);
    settle(&mut pair.b, pair.now);
    for (addr, status) in [
        (8, WcStatus::Success),
        (9, WcStatus::RemAccessErr),
        (pair.b.address(512), WcStatus::RemAccessErr),
    ] {
        assert_eq!(write(&mut pair, RemoteAddr { addr, rkey }), status);
    }
    assert_eq!(pair.b.read(512, 24), [[0; 8], [7; 8], [0; 8]].concat());
}

#[test]
fn windows_count_as_objects_and_as_uses_of_their_domain() {
    let mut node = Node::new("10.0.0.1", 1);
    let pd = node.engine.alloc_pd().unwrap();
    let (one, key_one) = node.engine.alloc_mw(pd, MwType::Type1).unwrap();
    let (two, key_two) = node.engine.alloc_mw(pd, MwType::Type2).unwrap();
    assert_ne!(key_one, key_two);
    assert_eq!(node.engine.objects().mws, 2);
    assert_eq!(node.engine.dealloc_pd(pd).unwrap_err().kind(), ErrorKind::Busy);
    node.engine.dealloc_mw(one).unwrap();
    node.engine.dealloc_mw(two).unwrap();
    assert_eq!(
        node.engine.dealloc_mw(two).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(node.engine.mw_rkey(one).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(node.engine.objects().mws, 0);
    node.engine.dealloc_pd(pd).unwrap();
}
