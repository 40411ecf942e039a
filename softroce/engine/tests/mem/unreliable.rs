//! Binds and invalidations on an unreliable connection.

use softroce_engine::SendOperation;
use verbs_api::{MwType, QpState, QpType, WcStatus};

use super::{at, bind_type2, remote_access};
use crate::node::Connection;
use crate::pair::Pair;

fn unreliable() -> Pair {
    Pair::with(Connection {
        qp_type: QpType::Uc,
        ..Connection::default()
    })
}

#[test]
fn a_window_that_was_bound_through_uc_is_written_through_uc() {
    let mut pair = unreliable();
    let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    let bind = bind_type2(&pair.b, mw, rkey, 64, 64, remote_access());
    pair.b.post(pair.now, pair.qb, 1, bind, &[]);
    pair.run();
    pair.a.write(0, b"unsure..");
    let (sge, remote) = (pair.a.sge(0, 8), at(&pair.b, 64, rkey));
    let write = SendOperation::Write { remote, imm: None };
    pair.a.post(pair.now, pair.qa, 2, write, &[sge]);
    pair.run();
    assert_eq!(pair.b.read(64, 8), b"unsure..");
    // Requests around a local one keep their PSNs.
    let invalidate = SendOperation::LocalInvalidate { rkey };
    pair.b.post(pair.now, pair.qb, 3, invalidate, &[]);
    pair.a.write(0, b"too late");
    pair.a.post(pair.now, pair.qa, 4, write, &[sge]);
    pair.run();
    assert_eq!(pair.b.read(64, 8), b"unsure..");
    assert_eq!(
        pair.b.outcomes(),
        [(1, WcStatus::Success), (3, WcStatus::Success)]
    );
    assert_eq!(
        pair.a.outcomes(),
        [(2, WcStatus::Success), (4, WcStatus::Success)]
    );
}

#[test]
fn a_failed_bind_takes_the_send_queue_to_sqe() {
    let mut pair = unreliable();
    let (mw, rkey) = pair.b.engine.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    let bind = bind_type2(&pair.b, mw, rkey, 0, 0, remote_access());
    let sge = pair.b.sge(0, 8);
    pair.b.post(pair.now, pair.qb, 1, bind, &[]);
    pair.b
        .post(pair.now, pair.qb, 2, SendOperation::Send { imm: None }, &[sge]);
    pair.run();
    assert_eq!(
        pair.b.outcomes(),
        [(1, WcStatus::MwBindErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(pair.b.state(pair.qb), QpState::Sqe);
}
