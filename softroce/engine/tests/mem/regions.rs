//! Regions of other kinds, and regions that change, as peers and requests see them.

use softroce_engine::{MrInfo, SendOperation};
use verbs_api::{Access, ErrorKind, LKey, MwType, QpAttr, QpState, RemoteAddr, Sge, WcStatus};

use super::{bind_type2, remote_access, settle};
use crate::node::{Connection, all_access};
use crate::pair::Pair;
use crate::raw::Raw;

const SEND: SendOperation = SendOperation::Send { imm: None };

/// Change B's region.
fn change(pair: &mut Pair, pd: Option<softroce_engine::PdId>, access: Option<Access>) -> MrInfo {
    // SAFETY: no new translation, so no new promise.
    unsafe { pair.b.engine.rereg_mr(pair.b.mr.id, pd, None, access) }.unwrap()
}

fn write_status(pair: &mut Pair, remote: RemoteAddr) -> WcStatus {
    let sge = pair.a.sge(0, 8);
    let op = SendOperation::Write { remote, imm: None };
    pair.a.post(pair.now, pair.qa, 1, op, &[sge]);
    pair.run();
    pair.a.outcomes()[0].1
}

fn restart(pair: &mut Pair) {
    for (node, qpn) in [(&mut pair.a, pair.qa), (&mut pair.b, pair.qb)] {
        let reset = QpAttr {
            state: Some(QpState::Reset),
            ..QpAttr::default()
        };
        node.modify(pair.now, qpn, reset);
        node.completions();
    }
    pair.connect(&Connection::default());
}

#[test]
fn rights_and_domain_change_under_the_same_keys() {
    let mut pair = Pair::new();
    let (info, remote) = (pair.b.mr, pair.b.remote(0));
    assert_eq!(change(&mut pair, None, Some(Access::LOCAL_WRITE)), info);
    assert_eq!(write_status(&mut pair, remote), WcStatus::RemAccessErr);
    restart(&mut pair);
    assert_eq!(change(&mut pair, None, Some(all_access())), info);
    assert_eq!(write_status(&mut pair, remote), WcStatus::Success);

    let other = pair.b.engine.alloc_pd().unwrap();
    assert_eq!(change(&mut pair, Some(other), None), info);
    assert_eq!(
        pair.b.engine.dealloc_pd(other).unwrap_err().kind(),
        ErrorKind::Busy
    );
    assert_eq!(write_status(&mut pair, remote), WcStatus::RemAccessErr);
    restart(&mut pair);
    let own = pair.b.pd;
    assert_eq!(change(&mut pair, Some(own), None), info);
    assert_eq!(write_status(&mut pair, remote), WcStatus::Success);
    pair.b.engine.dealloc_pd(other).unwrap();
}

/// As a receive request finds it that was posted before.
#[test]
fn a_receive_into_a_region_of_another_domain_fails_and_the_peer_is_told() {
    let mut pair = Pair::new();
    let room = pair.b.sge(0, 64);
    pair.b.recv(pair.now, pair.qb, 7, &[room]);
    let other = pair.b.engine.alloc_pd().unwrap();
    change(&mut pair, Some(other), None);
    let sge = pair.a.sge(0, 8);
    pair.a.post(pair.now, pair.qa, 1, SEND, &[sge]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::RemOpErr)]);
    assert_eq!(pair.b.outcomes(), [(7, WcStatus::LocProtErr)]);
}

#[test]
fn another_translation_gives_new_keys_and_kills_the_old_ones() {
    let mut pair = Pair::new();
    let old = pair.b.remote(0);
    let start = pair.b.address(4096);
    let place = (start as *mut u8, 4096, start);
    // SAFETY: the node's memory is never freed, and is used as it demands.
    let info = unsafe { pair.b.engine.rereg_mr(pair.b.mr.id, None, Some(place), None) }.unwrap();
    assert_ne!((info.id, info.rkey), (pair.b.mr.id, pair.b.mr.rkey));
    let new = RemoteAddr {
        addr: start,
        rkey: info.rkey,
    };
    assert_eq!(write_status(&mut pair, new), WcStatus::Success);
    assert_eq!(write_status(&mut pair, old), WcStatus::RemAccessErr);
    assert_eq!(
        pair.b.engine.dereg_mr(pair.b.mr.id).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    pair.b.engine.dereg_mr(info.id).unwrap();
}

#[test]
fn a_region_with_windows_on_it_neither_goes_nor_changes() {
    let mut raw = Raw::new();
    let (mw, rkey) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type2).unwrap();
    let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, bind, &[]);
    settle(&mut raw.node, raw.now);
    let (id, pd, start) = (raw.node.mr.id, raw.node.pd, raw.node.address(0));
    let changes = [
        (Some(pd), None, None),
        (None, Some((start as *mut u8, 64, start)), None),
        (None, None, Some(all_access())),
    ];
    for (pd, place, access) in changes {
        // SAFETY: the node's memory is never freed, and is used as it demands.
        let refused = unsafe { raw.node.engine.rereg_mr(id, pd, place, access) };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    }
    assert_eq!(raw.node.engine.dereg_mr(id).unwrap_err().kind(), ErrorKind::Busy);
    // Freeing the window frees the region.
    raw.node.engine.dealloc_mw(mw).unwrap();
    raw.node.engine.dereg_mr(id).unwrap();
}

#[test]
fn a_zero_based_region_is_addressed_from_zero_from_both_sides() {
    let mut pair = Pair::new();
    let start = pair.b.address(4096);
    let access = all_access() | Access::ZERO_BASED;
    // SAFETY: the node's memory is never freed, and is used as it demands.
    let mr = unsafe {
        pair.b
            .engine
            .reg_mr(pair.b.pd, start as *mut u8, 64, start, access)
    }
    .unwrap();
    pair.a.write(0, b"from a..");
    let remote = |addr| RemoteAddr { addr, rkey: mr.rkey };
    assert_eq!(write_status(&mut pair, remote(56)), WcStatus::Success);
    assert_eq!(pair.b.read(4096 + 56, 8), b"from a..");
    let room = Sge {
        addr: 0,
        length: 64,
        lkey: mr.lkey,
    };
    pair.b.recv(pair.now, pair.qb, 2, &[room]);
    let sge = pair.a.sge(0, 8);
    pair.a.post(pair.now, pair.qa, 1, SEND, &[sge]);
    pair.run();
    assert_eq!(pair.b.outcomes(), [(2, WcStatus::Success)]);
    assert_eq!(pair.b.read(4096, 8), b"from a..");
    pair.a.completions();
    assert_eq!(write_status(&mut pair, remote(start)), WcStatus::RemAccessErr);
}

#[test]
fn the_null_region_swallows_and_gives_zeros_and_is_closed_to_peers() {
    let mut pair = Pair::new();
    let null = pair.b.engine.alloc_null_mr(pair.b.pd).unwrap();
    let anywhere = |length| Sge {
        addr: 0x7777,
        length,
        lkey: null.lkey,
    };
    let kept = pair.b.sge(0, 4);
    pair.b.recv(pair.now, pair.qb, 1, &[anywhere(4), kept]);
    pair.a.write(0, b"lostkept");
    let sge = pair.a.sge(0, 8);
    pair.a.post(pair.now, pair.qa, 2, SEND, &[sge]);
    pair.run();
    assert_eq!(pair.b.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(pair.b.read(0, 4), b"kept");
    let room = pair.a.sge(0, 8);
    pair.a.completions();
    pair.a.recv(pair.now, pair.qa, 3, &[room]);
    pair.b.post(pair.now, pair.qb, 4, SEND, &[kept, anywhere(4)]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(3, WcStatus::Success)]);
    assert_eq!(pair.a.read(0, 8), b"kept\0\0\0\0");
    let remote = RemoteAddr {
        addr: 0,
        rkey: null.rkey,
    };
    assert_eq!(write_status(&mut pair, remote), WcStatus::RemAccessErr);
}

#[test]
fn entries_of_every_operation_are_counted_and_empty_ones_are_not_looked_at() {
    let mut raw = Raw::new();
    let remote = raw.node.remote(0);
    let nonsense = Sge {
        addr: u64::MAX,
        length: 0,
        lkey: LKey(0xdead_beef),
    };
    let eight = raw.node.sge(0, 8);
    let operations = [
        SEND,
        SendOperation::Write { remote, imm: None },
        SendOperation::Read { remote },
        SendOperation::FetchAdd { remote, add: 1 },
        SendOperation::CompareSwap {
            remote,
            compare: 0,
            swap: 1,
        },
        SendOperation::AtomicWrite { remote },
    ];
    for op in operations {
        let request = softroce_engine::SendRequest {
            wr_id: 1,
            op,
            payload: verbs_api::Payload::Sges(&[eight; 5]),
            flags: verbs_api::SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        let refused = raw.node.engine.post_send(raw.now, raw.qpn, &request);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{op:?}");
        let mut raw = Raw::new();
        let (now, qpn) = (raw.now, raw.qpn);
        let eight = raw.node.sge(0, 8);
        raw.node
            .post(now, qpn, 1, op, &[nonsense, eight, nonsense, nonsense]);
        assert_eq!(raw.sent().len(), 1, "{op:?}");
    }
}

#[test]
fn an_atomic_without_entries_or_of_another_length_fails_here() {
    for length in [None, Some(4), Some(16)] {
        let mut raw = Raw::new();
        let remote = raw.node.remote(0);
        let sges: Vec<Sge> = length.into_iter().map(|length| raw.node.sge(0, length)).collect();
        let op = SendOperation::FetchAdd { remote, add: 1 };
        raw.node.post(raw.now, raw.qpn, 1, op, &sges);
        raw.assert_silent();
        assert_eq!(raw.node.outcomes(), [(1, WcStatus::LocLenErr)], "{length:?}");
    }
}
