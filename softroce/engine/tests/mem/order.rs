//! Binds and invalidations keep their place in the queue: in what they do, and in when they complete.

use roce_wire::{Opcode, Syndrome};
use softroce_engine::{Acks, MwId, SendOperation};
use verbs_api::{MwType, QpAttr, QpState, RKey, SendFlags, WcStatus};

use super::{bind_type1, bind_type2, remote_access, settle, with_tag};
use crate::node::Connection;
use crate::pair::{Fate, From, Pair};
use crate::raw::Raw;

const SEND: SendOperation = SendOperation::Send { imm: None };

fn window(raw: &mut Raw) -> (MwId, RKey) {
    raw.node.engine.alloc_mw(raw.node.pd, MwType::Type2).unwrap()
}

/// A SEND, the bind of a window and another SEND are posted, as requests 1 to 3.
fn send_bind_send() -> Raw {
    let mut raw = Raw::new();
    let (mw, rkey) = window(&mut raw);
    let sge = raw.node.sge(0, 8);
    let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.node.post(raw.now, raw.qpn, 2, bind, &[]);
    raw.node.post(raw.now, raw.qpn, 3, SEND, &[sge]);
    raw
}

#[test]
fn a_bind_completes_behind_a_send_before_it_though_it_is_done_already() {
    let mut raw = send_bind_send();
    let psns: Vec<u32> = raw.sent().iter().map(|sent| sent.psn()).collect();
    assert_eq!(psns, [0, 1], "a bind has no PSN");
    assert_eq!(raw.node.outcomes(), []);
    assert!(raw.node.engine.dereg_mr(raw.node.mr.id).is_err(), "it is done");
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(
        raw.node.outcomes(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    raw.acknowledge(1, Syndrome::ACK, 2);
    assert_eq!(raw.node.outcomes(), [(3, WcStatus::Success)]);
}

#[test]
fn one_acknowledgement_completes_everything_around_a_bind_in_order() {
    let mut raw = send_bind_send();
    raw.sent();
    raw.acknowledge(1, Syndrome::ACK, 2);
    let success = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!(raw.node.outcomes(), [success(1), success(2), success(3)]);
}

#[test]
fn an_unsignalled_bind_leaves_no_completion_and_no_trace_in_the_order() {
    let mut raw = Raw::new();
    let (mw, rkey) = window(&mut raw);
    let sge = raw.node.sge(0, 8);
    let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node
        .post_with(raw.now, raw.qpn, 1, bind, &[], SendFlags::empty());
    raw.node.post(raw.now, raw.qpn, 2, SEND, &[sge]);
    raw.sent();
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(raw.node.outcomes(), [(2, WcStatus::Success)]);
}

#[test]
fn a_retry_does_not_bind_again() {
    let mut raw = send_bind_send();
    raw.sent();
    raw.nak(0, roce_wire::NakCode::PsnSequence);
    let psns: Vec<u32> = raw.sent().iter().map(|sent| sent.psn()).collect();
    assert_eq!(psns, [0, 1], "a second bind would have failed");
    assert_eq!(raw.state(), QpState::Rts);
    raw.acknowledge(1, Syndrome::ACK, 2);
    let success = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!(raw.node.outcomes(), [success(1), success(2), success(3)]);
}

/// After the timeout one packet goes out again, the SEND's, and the bind stands next: done before, not to be done twice.
#[test]
fn an_acknowledgement_in_the_middle_of_a_retry_passes_the_bind_by() {
    for acknowledged in [0, 1] {
        let mut raw = Raw::new();
        let (mw, rkey) = window(&mut raw);
        let (sge, remote) = (raw.node.sge(0, 8), raw.node.remote(0));
        let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
        raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
        raw.node.post(raw.now, raw.qpn, 2, bind, &[]);
        let add = SendOperation::FetchAdd { remote, add: 1 };
        raw.node.post(raw.now, raw.qpn, 3, add, &[sge]);
        assert_eq!(raw.sent().len(), 2);
        let again = raw.pass(150_000_000);
        assert_eq!(again.len(), 1, "{again:?}");
        raw.acknowledge(acknowledged, Syndrome::ACK, 1);
        assert_eq!(
            raw.node.outcomes(),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
        assert_eq!(raw.sent_one().opcode(), Opcode::RC_FETCH_ADD);
        raw.atomic_response(1, 7);
        assert_eq!(raw.node.outcomes(), [(3, WcStatus::Success)]);
        assert_eq!(raw.state(), QpState::Rts);
    }
}

#[test]
fn a_failed_bind_waits_for_the_requests_before_it_and_flushes_those_behind() {
    let mut raw = Raw::new();
    let (mw, rkey) = window(&mut raw);
    let sge = raw.node.sge(0, 8);
    let bad = bind_type2(&raw.node, mw, rkey, 0, 0, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.node.post(raw.now, raw.qpn, 2, bad, &[]);
    raw.node.post(raw.now, raw.qpn, 3, SEND, &[sge]);
    assert_eq!(raw.sent().len(), 1, "nothing goes out behind it");
    assert_eq!((raw.node.outcomes(), raw.state()), (vec![], QpState::Rts));
    // Even after a retry.
    raw.pass(100_000_000);
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(
        raw.node.outcomes(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::MwBindErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(raw.state(), QpState::Err);
}

#[test]
fn a_nak_behind_a_bind_fails_the_request_that_it_is_for() {
    let mut raw = send_bind_send();
    raw.sent();
    raw.nak(1, roce_wire::NakCode::RemoteAccess);
    assert_eq!(
        raw.node.outcomes(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::Success),
            (3, WcStatus::RemAccessErr)
        ]
    );
}

#[test]
fn an_invalidation_waits_until_everything_before_it_is_complete_and_holds_up_what_follows() {
    let mut raw = Raw::new();
    let (mw, rkey) = window(&mut raw);
    let sge = raw.node.sge(0, 8);
    let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, bind, &[]);
    raw.node.post(raw.now, raw.qpn, 2, SEND, &[sge]);
    raw.node
        .post(raw.now, raw.qpn, 3, SendOperation::LocalInvalidate { rkey }, &[]);
    raw.node.post(raw.now, raw.qpn, 4, SEND, &[sge]);
    assert_eq!(raw.sent().len(), 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert!(raw.node.engine.dereg_mr(raw.node.mr.id).is_err());
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(raw.sent_one().psn(), 1);
    assert_eq!(
        raw.node.outcomes(),
        [(2, WcStatus::Success), (3, WcStatus::Success)]
    );
    raw.acknowledge(1, Syndrome::ACK, 2);
    assert_eq!(raw.node.outcomes(), [(4, WcStatus::Success)]);
}

#[test]
fn a_fenced_bind_waits_for_the_read_before_it_and_another_does_not() {
    for (flags, is_bound) in [
        (SendFlags::SIGNALED, true),
        (SendFlags::SIGNALED | SendFlags::FENCE, false),
    ] {
        let mut raw = Raw::new();
        let (mw, rkey) = window(&mut raw);
        let (sge, remote) = (raw.node.sge(0, 8), raw.node.remote(0));
        raw.node
            .post(raw.now, raw.qpn, 1, SendOperation::Read { remote }, &[sge]);
        let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
        raw.node.post_with(raw.now, raw.qpn, 2, bind, &[], flags);
        raw.sent();
        let key_works = {
            raw.write(
                Opcode::RC_WRITE_ONLY,
                0xab_cdef,
                super::at(&raw.node, 0, rkey),
                1,
                b"x",
            );
            raw.sent_one().ack().1 == Syndrome::ACK
        };
        assert_eq!(key_works, is_bound, "{flags:?}");
        if is_bound {
            raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[9; 8]);
            assert_eq!(
                raw.node.outcomes(),
                [(1, WcStatus::Success), (2, WcStatus::Success)]
            );
        }
    }
}

#[test]
fn in_sqd_a_bind_waits_and_in_err_it_is_flushed_undone() {
    let mut raw = Raw::new();
    let (mw, rkey) = window(&mut raw);
    let to = |state| QpAttr {
        state: Some(state),
        ..QpAttr::default()
    };
    raw.node.modify(raw.now, raw.qpn, to(QpState::Sqd));
    let bind = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, bind, &[]);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), []);
    raw.node.modify(raw.now, raw.qpn, to(QpState::Rts));
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);

    raw.node.modify(raw.now, raw.qpn, to(QpState::Err));
    raw.node
        .post(raw.now, raw.qpn, 2, SendOperation::LocalInvalidate { rkey }, &[]);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(2, WcStatus::WrFlushErr)]);
    assert!(
        raw.node.engine.dereg_mr(raw.node.mr.id).is_err(),
        "the window is bound"
    );
}

/// Binds, sends of the new key, WRITEs under it by the peer, over a wire that loses every fifth packet.
#[test]
fn keys_sent_behind_their_binds_always_work() {
    let mut pair = Pair::with(Connection {
        retry_cnt: 7,
        rnr_retry: 7,
        ..Connection::default()
    });
    pair.rule = super::bad_wire(5, 0, None);
    let (mw, _) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type1).unwrap();
    for round in 0..40u64 {
        let room = pair.a.sge(0, 8);
        pair.a.recv(pair.now, pair.qa, round, &[room]);
        let offset = 4096 + 64 * (round as usize % 7);
        let request = bind_type1(&pair.b, 1, offset, 64, remote_access());
        let rkey = pair.b.engine.bind_mw(pair.now, pair.qb, mw, &request).unwrap();
        pair.b.write(0, &rkey.0.to_ne_bytes());
        let key = pair.b.sge(0, 4);
        pair.b.post(pair.now, pair.qb, 2, SEND, &[key]);
        pair.run();
        let told = RKey(u32::from_ne_bytes(pair.a.read(0, 4).try_into().unwrap()));
        assert_eq!(told, rkey);
        pair.a.write(64, &round.to_ne_bytes());
        let (sge, remote) = (pair.a.sge(64, 8), super::at(&pair.b, offset, told));
        let write = SendOperation::Write { remote, imm: None };
        pair.a.post(pair.now, pair.qa, 3, write, &[sge]);
        pair.run();
        assert_eq!(
            pair.a.outcomes(),
            [(round, WcStatus::Success), (3, WcStatus::Success)]
        );
        assert_eq!(
            pair.b.outcomes(),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
        assert_eq!(pair.b.read(offset, 8), round.to_ne_bytes());
    }
    assert!(
        pair.seen
            .iter()
            .any(|seen| seen.from == From::B && seen.fate == Fate::Drop)
    );
}

#[test]
fn a_write_that_is_under_way_stops_where_its_window_is_unbound() {
    let mut raw = Raw::new();
    let (mw, rkey) = window(&mut raw);
    let key = with_tag(rkey, 1);
    let bind = bind_type2(&raw.node, mw, key, 0, 4096, remote_access());
    raw.node.post(raw.now, raw.qpn, 1, bind, &[]);
    settle(&mut raw.node, raw.now);
    let remote = super::at(&raw.node, 0, key);
    raw.write(Opcode::RC_WRITE_FIRST, 0xab_cdef, remote, 2048, &[1; 1024]);
    raw.node.post(
        raw.now,
        raw.qpn,
        2,
        SendOperation::LocalInvalidate { rkey: key },
        &[],
    );
    raw.sent_with(Acks::Flush);
    raw.plain(Opcode::RC_WRITE_LAST, 0xab_cdf0, &[1; 1024]);
    assert_eq!(
        raw.sent_one().ack().1,
        Syndrome::Nak(roce_wire::NakCode::RemoteAccess)
    );
    assert_eq!(raw.node.read(1024, 1024), [0; 1024]);
}
