//! Invalidating keys: from here, and by the peer's SEND.

use roce_wire::{Ieth, NakCode, Opcode, Syndrome};
use softroce_engine::{MwId, SendOperation};
use verbs_api::{ErrorKind, MwType, QpState, RKey, WcFlags, WcOpcode, WcStatus};

use super::{at, bind_type1, bind_type2, remote_access, settle, with_tag};
use crate::node::{Connection, Node};
use crate::pair::Pair;
use crate::raw::Raw;

const PSN: u32 = 0xab_cdef;

/// Sets up a key to be invalidated.
type Make = fn(&mut Raw) -> RKey;

/// A connection with a window of type 2 bound through it.
fn bound() -> (Raw, MwId, RKey) {
    let mut raw = Raw::new();
    let (mw, rkey) = bind(&mut raw);
    (raw, mw, rkey)
}

fn bind(raw: &mut Raw) -> (MwId, RKey) {
    let (mw, rkey) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type2).unwrap();
    let op = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 0, op, &[]);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(0, WcStatus::Success)]);
    (mw, rkey)
}

fn invalidate(raw: &mut Raw, rkey: RKey) -> Vec<(u64, WcStatus)> {
    let op = SendOperation::LocalInvalidate { rkey };
    raw.node.post(raw.now, raw.qpn, 1, op, &[]);
    settle(&mut raw.node, raw.now);
    raw.node.outcomes()
}

fn is_free(node: &mut Node) -> bool {
    match node.engine.dereg_mr(node.mr.id) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy);
            false
        }
    }
}

#[test]
fn an_invalidated_window_is_closed_and_may_be_bound_again() {
    let (mut raw, mw, rkey) = bound();
    raw.node
        .post(raw.now, raw.qpn, 1, SendOperation::LocalInvalidate { rkey }, &[]);
    settle(&mut raw.node, raw.now);
    let wc = raw.node.completions().pop().unwrap();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
        (1, WcStatus::Success, WcOpcode::LocalInv, 0)
    );
    let again = bind_type2(&raw.node, mw, with_tag(rkey, 1), 64, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 2, again, &[]);
    settle(&mut raw.node, raw.now);
    assert_eq!(raw.node.outcomes(), [(2, WcStatus::Success)]);
    let (old, new) = (at(&raw.node, 0, rkey), at(&raw.node, 64, with_tag(rkey, 1)));
    raw.write(Opcode::RC_WRITE_ONLY, PSN, new, 1, b"y");
    assert_eq!(raw.sent_one().ack().1, Syndrome::ACK);
    raw.write(Opcode::RC_WRITE_ONLY, PSN + 1, old, 1, b"x");
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!((raw.node.read(0, 1), raw.node.read(64, 1)), (vec![0], vec![b'y']));
}

#[test]
fn invalidating_what_is_no_bound_window_of_type_2_of_this_queue_pair_fails() {
    let cases: [(&str, Make); 6] = [
        ("no key", |_| crate::node::BAD_RKEY),
        ("the key of a region", |raw| raw.node.mr.rkey),
        ("a window of type 1", |raw| {
            let (mw, _) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type1).unwrap();
            let request = bind_type1(&raw.node, 0, 0, 64, remote_access());
            let rkey = raw.node.engine.bind_mw(raw.now, raw.qpn, mw, &request).unwrap();
            settle(&mut raw.node, raw.now);
            raw.node.completions();
            rkey
        }),
        ("a window that is not bound", |raw| {
            raw.node.engine.alloc_mw(raw.node.pd, MwType::Type2).unwrap().1
        }),
        ("another tag", |raw| with_tag(bind(raw).1, 3)),
        ("a window of another queue pair", |raw| {
            let other = raw.node.create_qp(&Connection::default());
            raw.node.enter_init(raw.now, other, &Connection::default());
            raw.node
                .enter_rtr(raw.now, other, raw.meta.src, 0x78, &Connection::default());
            raw.node.enter_rts(raw.now, other, &Connection::default());
            let (mw, rkey) = raw.node.engine.alloc_mw(raw.node.pd, MwType::Type2).unwrap();
            let op = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
            raw.node.post(raw.now, other, 0, op, &[]);
            settle(&mut raw.node, raw.now);
            raw.node.completions();
            rkey
        }),
    ];
    for (name, make) in cases {
        let mut raw = Raw::new();
        let rkey = make(&mut raw);
        assert_eq!(invalidate(&mut raw, rkey), [(1, WcStatus::MwBindErr)], "{name}");
        assert_eq!(raw.state(), QpState::Err, "{name}");
        if name.contains("window of") || name == "another tag" {
            assert!(!is_free(&mut raw.node), "{name}: it was unbound");
        }
    }
}

/// A SEND with invalidate of `rkey`, into one of two receive requests.
fn send_with_invalidate(raw: &mut Raw, rkey: RKey) {
    for wr_id in [50, 51] {
        let sge = raw.node.sge(4096, 64);
        raw.node.recv(raw.now, raw.qpn, wr_id, &[sge]);
    }
    let mut headers = raw.headers(Opcode::RC_SEND_ONLY_WITH_INVALIDATE, PSN);
    headers.invalidate = Some(Ieth(roce_wire::RKey(rkey.0)));
    raw.inject(headers, b"bye!");
}

#[test]
fn a_send_invalidates_the_window_and_its_receive_says_so() {
    let (mut raw, mw, rkey) = bound();
    send_with_invalidate(&mut raw, rkey);
    let wc = raw.node.completions().pop().unwrap();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
        (50, WcStatus::Success, WcOpcode::Recv, 4)
    );
    assert_eq!((wc.flags, wc.imm), (WcFlags::WITH_INV, rkey.0));
    assert_eq!(raw.sent_one().ack(), (PSN, Syndrome::ACK, 1));
    // A late copy is acknowledged and does nothing, though the window is bound again under the same key.
    let op = bind_type2(&raw.node, mw, rkey, 0, 64, remote_access());
    raw.node.post(raw.now, raw.qpn, 3, op, &[]);
    settle(&mut raw.node, raw.now);
    let mut headers = raw.headers(Opcode::RC_SEND_ONLY_WITH_INVALIDATE, PSN);
    headers.invalidate = Some(Ieth(roce_wire::RKey(rkey.0)));
    raw.inject(headers, b"bye!");
    assert_eq!(raw.sent_one().ack(), (PSN, Syndrome::ACK, 1));
    assert_eq!(raw.node.outcomes(), [(3, WcStatus::Success)]);
    assert!(!is_free(&mut raw.node));
}

#[test]
fn a_send_that_cannot_invalidate_ends_the_queue_pair_without_a_nak() {
    let cases: [(&str, Make); 4] = [
        ("no key", |_| crate::node::BAD_RKEY),
        ("the key of a region", |raw| raw.node.mr.rkey),
        ("another tag", |raw| with_tag(bind(raw).1, 3)),
        ("a window of another domain", |raw| {
            let pd = raw.node.engine.alloc_pd().unwrap();
            raw.node.engine.alloc_mw(pd, MwType::Type2).unwrap().1
        }),
    ];
    for (name, make) in cases {
        let mut raw = Raw::new();
        let rkey = make(&mut raw);
        send_with_invalidate(&mut raw, rkey);
        assert_eq!(
            raw.node.outcomes(),
            [(50, WcStatus::RemInvReqErr), (51, WcStatus::WrFlushErr)],
            "{name}"
        );
        raw.assert_silent();
        assert_eq!(raw.state(), QpState::Err, "{name}");
        // The region of that key is as it was.
        assert_eq!(is_free(&mut raw.node), name != "another tag", "{name}");
    }
}

#[test]
fn a_peer_that_invalidates_and_goes_on_completes_at_both_ends() {
    let mut pair = Pair::new();
    let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    for round in 0..3 {
        let key = with_tag(rkey, round);
        let bind = bind_type2(&pair.b, mw, key, 0, 64, remote_access());
        pair.b.post(pair.now, pair.qb, 1, bind, &[]);
        let room = pair.b.sge(4096, 64);
        pair.b.recv(pair.now, pair.qb, 2, &[room]);
        pair.run();
        let (sge, remote) = (pair.a.sge(0, 8), at(&pair.b, 0, key));
        let write = SendOperation::Write { remote, imm: None };
        let finish = SendOperation::SendWithInvalidate { rkey: key };
        pair.a.post(pair.now, pair.qa, 3, write, &[sge]);
        pair.a.post(pair.now, pair.qa, 4, finish, &[sge]);
        pair.run();
        assert_eq!(
            pair.a.outcomes(),
            [(3, WcStatus::Success), (4, WcStatus::Success)]
        );
        assert_eq!(
            pair.b.outcomes(),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
    }
    assert!(is_free(&mut pair.b));
}
