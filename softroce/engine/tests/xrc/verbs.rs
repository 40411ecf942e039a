//! Domains, initiators, targets: creation, reference counts, destruction, each refusal with its errno.

use softroce_engine::{ObjectCounts, QpConfig, SendOperation, SrqConfig, Time};
use verbs_api::{ErrorKind, QpCap, QpState, QpType, RecvWr};

use super::bench::{Srq, Target, connect, connection, initiator_config, post, target_config};
use crate::node::Node;

fn node() -> Node {
    Node::new("10.0.0.1", 1)
}

const SEND: SendOperation = SendOperation::Send { imm: None };

#[test]
fn a_domain_is_busy_while_a_target_or_a_queue_stands_in_it_and_unknown_after_it_was_freed() {
    let mut node = node();
    let domain = node.engine.alloc_xrc_domain().unwrap();
    let other = node.engine.alloc_xrc_domain().unwrap();
    assert_ne!(domain, other);
    let config = target_config(&node, domain);
    let target = node.engine.create_qp(&config).unwrap().qpn;
    let busy = node.engine.dealloc_xrc_domain(domain).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    node.engine.destroy_qp(Time::ZERO, target).unwrap();
    let srq = Srq::new(&mut node, domain);
    let busy = node.engine.dealloc_xrc_domain(domain).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    node.engine.destroy_srq(srq.handle.id).unwrap();
    node.engine.dealloc_xrc_domain(domain).unwrap();
    for error in [
        node.engine.dealloc_xrc_domain(domain).unwrap_err(),
        node.engine.create_qp(&config).unwrap_err(),
        node.engine
            .create_srq(&SrqConfig {
                pd: node.pd,
                max_wr: 1,
                max_sge: 1,
                limit: 0,
                xrc: Some((domain, node.cq)),
            })
            .unwrap_err(),
        node.engine.open_xrc_target(domain, target).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn what_is_made_of_xrc_leaves_nothing_behind() {
    let mut node = node();
    let before = node.engine.objects();
    let domain = node.engine.alloc_xrc_domain().unwrap();
    let srq = Srq::new(&mut node, domain);
    let (initiator, target) = (initiator_config(&node), target_config(&node, domain));
    let qps = [initiator, target].map(|config| node.engine.create_qp(&config).unwrap().qpn);
    assert_eq!(
        node.engine.objects(),
        ObjectCounts {
            qps: before.qps + 2,
            srqs: before.srqs + 1,
            cqs: before.cqs + 1,
            xrc_domains: before.xrc_domains + 1,
            ..before
        }
    );
    // Refused objects leave nothing either.
    for bad in [
        QpConfig {
            send_cq: None,
            ..initiator
        },
        QpConfig {
            xrc_domain: None,
            ..target
        },
        QpConfig {
            srq: Some(srq.handle.id),
            recv_cq: Some(node.cq),
            qp_type: QpType::Rc,
            ..initiator
        },
    ] {
        assert_eq!(
            node.engine.create_qp(&bad).unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    assert_eq!(
        node.engine.destroy_cq(srq.cq).unwrap_err().kind(),
        ErrorKind::Busy
    );
    for qpn in qps {
        node.engine.destroy_qp(Time::ZERO, qpn).unwrap();
    }
    node.engine.destroy_srq(srq.handle.id).unwrap();
    node.engine.destroy_cq(srq.cq).unwrap();
    node.engine.dealloc_xrc_domain(domain).unwrap();
    assert_eq!(node.engine.objects(), before);
}

#[test]
fn each_half_has_the_sizes_of_its_half_alone() {
    let mut node = node();
    let domain = node.engine.alloc_xrc_domain().unwrap();
    let mut config = target_config(&node, domain);
    // What does not apply does not count.
    config.cap.max_send_wr = u32::MAX;
    config.send_cq = Some(node.cq);
    config.recv_cq = Some(node.cq);
    let target = node.engine.create_qp(&config).unwrap();
    assert_eq!(target.cap, QpCap::default());
    let mut config = initiator_config(&node);
    config.cap.max_recv_sge = u32::MAX;
    let initiator = node.engine.create_qp(&config).unwrap();
    assert_eq!((initiator.cap.max_recv_wr, initiator.cap.max_recv_sge), (0, 0));
    assert_eq!(initiator.cap.max_send_wr, config.cap.max_send_wr);
    // The completion queue that was given to the target for nothing is free.
    node.engine.destroy_qp(Time::ZERO, initiator.qpn).unwrap();
    node.engine.destroy_cq(node.cq).unwrap();
}

#[test]
fn a_target_takes_no_work_and_an_initiator_no_receives() {
    let mut target = Target::new();
    let srq = target.srq();
    let (now, qpn) = (target.raw.now, target.qpn);
    let node = &mut target.raw.node;
    let receive = RecvWr { wr_id: 1, sges: &[] };
    let config = initiator_config(node);
    let initiator = node.engine.create_qp(&config).unwrap().qpn;
    let peer = ("10.0.0.2".parse().unwrap(), 0x77);
    connect(node, now, initiator, QpType::XrcInitiator, peer, &connection());
    for error in [
        node.engine.post_recv(now, qpn, &receive).unwrap_err(),
        node.engine.post_recv(now, initiator, &receive).unwrap_err(),
        post(node, now, qpn, (1, Some(srq.handle.srqn)), SEND, &[]).unwrap_err(),
        post(node, now, initiator, (1, None), SEND, &[]).unwrap_err(),
        post(node, now, initiator, (1, Some(1 << 24)), SEND, &[]).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    post(node, now, initiator, (1, Some(0xff_ffff)), SEND, &[]).unwrap();
}

#[test]
fn a_target_is_gone_when_each_of_its_handles_has_been_given_back() {
    let mut target = Target::new();
    let (domain, qpn) = (target.domain, target.qpn);
    let now = target.raw.now;
    let node = &mut target.raw.node;
    node.engine.open_xrc_target(domain, qpn).unwrap();
    node.engine.open_xrc_target(domain, qpn).unwrap();
    for _ in 0..2 {
        node.engine.destroy_qp(now, qpn).unwrap();
        assert_eq!(node.state(qpn), QpState::Rts);
    }
    node.engine.destroy_qp(now, qpn).unwrap();
    for error in [
        node.engine.destroy_qp(now, qpn).unwrap_err(),
        node.engine.open_xrc_target(domain, qpn).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    node.engine.dealloc_xrc_domain(domain).unwrap();
}

#[test]
fn only_a_target_of_the_same_domain_can_be_opened() {
    let mut target = Target::new();
    let (domain, qpn) = (target.domain, target.qpn);
    let node = &mut target.raw.node;
    let other = node.engine.alloc_xrc_domain().unwrap();
    let config = initiator_config(node);
    let initiator = node.engine.create_qp(&config).unwrap().qpn;
    let ordinary = node.create_qp(&connection());
    for (domain, qpn) in [(other, qpn), (domain, initiator), (domain, ordinary), (domain, 0)] {
        let refused = node.engine.open_xrc_target(domain, qpn).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}
