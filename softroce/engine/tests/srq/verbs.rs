//! Creation, sizes, posting, destruction, each refusal with its errno.

use softroce_engine::{SrqConfig, Time};
use verbs_api::{ErrorKind, QpAttr, QpState, RecvWr, SrqAttr};

use super::bench::{Bench, create_srq, post, qp_config};
use crate::node::Node;

fn node() -> Node {
    Node::new("10.0.0.1", 1)
}

fn config(node: &Node) -> SrqConfig {
    SrqConfig {
        pd: node.pd,
        max_wr: 8,
        max_sge: 2,
        limit: 0,
        xrc: None,
    }
}

#[test]
fn what_is_granted_is_what_was_asked_for_and_a_query_says_the_same() {
    let mut node = node();
    let created = node
        .engine
        .create_srq(&SrqConfig {
            limit: 3,
            ..config(&node)
        })
        .unwrap();
    let attr = SrqAttr {
        max_wr: 8,
        max_sge: 2,
        limit: 3,
    };
    assert_eq!(created.attr, attr);
    assert_eq!(node.engine.query_srq(created.id).unwrap(), attr);
    assert!(created.srqn > 0 && created.srqn < 1 << 24);
}

#[test]
fn sizes_outside_the_devices_limits_are_refused() {
    let mut node = node();
    let device = node.engine.device_attr();
    assert!(device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0);
    let good = config(&node);
    for (what, bad) in [
        ("no requests", SrqConfig { max_wr: 0, ..good }),
        (
            "too many requests",
            SrqConfig {
                max_wr: device.max_srq_wr + 1,
                ..good
            },
        ),
        (
            "too many entries",
            SrqConfig {
                max_sge: device.max_srq_sge + 1,
                ..good
            },
        ),
        ("a limit above the size", SrqConfig { limit: 9, ..good }),
    ] {
        let error = node.engine.create_srq(&bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}");
    }
    let largest = SrqConfig {
        max_wr: device.max_srq_wr,
        max_sge: device.max_srq_sge,
        ..good
    };
    let id = node.engine.create_srq(&largest).unwrap().id;
    node.engine.destroy_srq(id).unwrap();
}

#[test]
fn there_are_as_many_as_the_device_says_and_no_more() {
    let mut node = node();
    let init = SrqConfig {
        max_wr: 1,
        max_sge: 0,
        ..config(&node)
    };
    let limit = node.engine.device_attr().max_srq;
    let all: Vec<_> = (0..limit)
        .map(|_| node.engine.create_srq(&init).unwrap())
        .collect();
    let numbers: std::collections::BTreeSet<u32> = all.iter().map(|srq| srq.srqn).collect();
    assert_eq!(numbers.len(), all.len());
    assert_eq!(
        node.engine.create_srq(&init).unwrap_err().kind(),
        ErrorKind::NoMemory
    );
    for srq in all {
        node.engine.destroy_srq(srq.id).unwrap();
    }
    let pd = node.pd;
    node.engine.dereg_mr(node.mr.id).unwrap();
    node.engine.dealloc_pd(pd).unwrap();
}

#[test]
fn an_unknown_domain_is_refused_and_a_used_one_cannot_be_freed() {
    let mut node = node();
    let pd = node.engine.alloc_pd().unwrap();
    let srq = node
        .engine
        .create_srq(&SrqConfig { pd, ..config(&node) })
        .unwrap()
        .id;
    assert_eq!(node.engine.dealloc_pd(pd).unwrap_err().kind(), ErrorKind::Busy);
    node.engine.destroy_srq(srq).unwrap();
    node.engine.dealloc_pd(pd).unwrap();
    let gone = SrqConfig { pd, ..config(&node) };
    assert_eq!(
        node.engine.create_srq(&gone).unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

#[test]
fn a_full_queue_and_too_many_entries_are_refused() {
    let mut node = node();
    let srq = create_srq(&mut node, 2);
    let sge = node.sge(0, 8);
    post(&mut node, srq, 1, &[sge; 4]).unwrap();
    assert_eq!(
        post(&mut node, srq, 2, &[sge; 5]).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    post(&mut node, srq, 2, &[]).unwrap();
    assert_eq!(
        post(&mut node, srq, 3, &[]).unwrap_err().kind(),
        ErrorKind::NoMemory
    );
}

#[test]
fn a_queue_that_a_queue_pair_uses_cannot_be_destroyed() {
    let mut node = node();
    let srq = create_srq(&mut node, 2);
    let config = qp_config(&node, srq);
    let qps: Vec<u32> = (0..2)
        .map(|_| node.engine.create_qp(&config).unwrap().qpn)
        .collect();
    for qpn in qps {
        assert_eq!(node.engine.destroy_srq(srq).unwrap_err().kind(), ErrorKind::Busy);
        node.engine.destroy_qp(Time::ZERO, qpn).unwrap();
    }
    node.engine.destroy_srq(srq).unwrap();
    for error in [
        node.engine.destroy_srq(srq).unwrap_err(),
        node.engine.query_srq(srq).unwrap_err(),
        node.engine
            .modify_srq(Time::ZERO, srq, None, Some(1))
            .unwrap_err(),
        post(&mut node, srq, 1, &[]).unwrap_err(),
        node.engine.create_qp(&config).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    // A refused queue pair leaves nothing behind.
    node.engine.destroy_cq(node.cq).unwrap();
}

#[test]
fn a_queue_pair_on_a_shared_queue_has_no_receive_queue_of_its_own() {
    let bench = Bench::new(1, 4);
    let mut raw = bench.raw;
    let cap = raw.node.engine.query_qp(bench.qps[0]).unwrap().cap.unwrap();
    assert_eq!((cap.max_recv_wr, cap.max_recv_sge), (0, 0));
    let request = RecvWr { wr_id: 1, sges: &[] };
    let refused = raw.node.engine.post_recv(raw.now, bench.qps[0], &request);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn sizes_for_a_receive_queue_do_not_count_with_a_shared_one() {
    let mut node = node();
    let srq = create_srq(&mut node, 2);
    let mut config = qp_config(&node, srq);
    config.cap.max_recv_wr = u32::MAX;
    config.cap.max_recv_sge = u32::MAX;
    let created = node.engine.create_qp(&config).unwrap();
    assert_eq!((created.cap.max_recv_wr, created.cap.max_recv_sge), (0, 0));
}

#[test]
fn a_queue_that_grows_or_shrinks_keeps_what_is_queued_in_order() {
    let mut bench = Bench::new(1, 4);
    let srq = bench.srq;
    for wr_id in 1..=2 {
        bench.post(wr_id, 0, 64);
    }
    bench.to(0).plain(roce_wire::Opcode::RC_SEND_ONLY, 0, b"first");
    for wr_id in 3..=5 {
        bench.post(wr_id, 0, 64);
    }
    let engine = &mut bench.raw.node.engine;
    engine.modify_srq(Time::ZERO, srq, Some(9), None).unwrap();
    assert_eq!(engine.query_srq(srq).unwrap().max_wr, 9);
    for wr_id in 6..=10 {
        bench.post(wr_id, 0, 64);
    }
    let engine = &mut bench.raw.node.engine;
    let refused = engine.modify_srq(Time::ZERO, srq, Some(8), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(engine.query_srq(srq).unwrap().max_wr, 9);
    assert_eq!(
        post(&mut bench.raw.node, srq, 11, &[]).unwrap_err().kind(),
        ErrorKind::NoMemory
    );
    for psn in 1..10 {
        bench.to(0).plain(roce_wire::Opcode::RC_SEND_ONLY, psn, b"more");
        bench.raw.sent();
    }
    let order: Vec<u64> = bench.outcomes().iter().map(|(wr_id, ..)| *wr_id).collect();
    assert_eq!(order, (1..=10).collect::<Vec<_>>());
    let engine = &mut bench.raw.node.engine;
    engine.modify_srq(Time::ZERO, srq, Some(1), None).unwrap();
    bench.post(12, 0, 64);
    assert_eq!(
        post(&mut bench.raw.node, srq, 13, &[]).unwrap_err().kind(),
        ErrorKind::NoMemory
    );
}

#[test]
fn a_refused_change_changes_neither_size_nor_limit() {
    let mut node = node();
    let srq = create_srq(&mut node, 8);
    let device = node.engine.device_attr();
    node.engine.modify_srq(Time::ZERO, srq, None, Some(5)).unwrap();
    let before = node.engine.query_srq(srq).unwrap();
    for (max_wr, limit) in [
        (Some(0), Some(0)),
        (Some(device.max_srq_wr + 1), Some(1)),
        (None, Some(9)),
        (Some(20), Some(21)),
        // Smaller than the limit that is armed.
        (Some(4), None),
    ] {
        let error = node
            .engine
            .modify_srq(Time::ZERO, srq, max_wr, limit)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{max_wr:?} {limit:?}");
        assert_eq!(node.engine.query_srq(srq).unwrap(), before);
    }
    node.engine.modify_srq(Time::ZERO, srq, Some(4), Some(4)).unwrap();
    let attr = node.engine.query_srq(srq).unwrap();
    assert_eq!((attr.max_wr, attr.limit), (4, 4));
}

#[test]
fn requests_stay_queued_when_their_queue_pair_is_reset() {
    let mut bench = Bench::new(1, 4);
    bench.post(1, 0, 64);
    let (now, qpn) = (bench.raw.now, bench.qps[0]);
    let reset = QpAttr {
        state: Some(QpState::Reset),
        ..QpAttr::default()
    };
    bench.raw.node.modify(now, qpn, reset);
    assert_eq!(bench.outcomes(), []);
    let mut again = Bench::on(bench.raw, bench.srq, 1);
    again.to(0).plain(roce_wire::Opcode::RC_SEND_ONLY, 0, b"x");
    assert_eq!(
        again.outcomes(),
        [(1, again.qps[0], verbs_api::WcStatus::Success)]
    );
}
