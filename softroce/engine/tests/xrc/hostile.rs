//! What no well-behaved initiator sends.

use roce_wire::{NakCode, Opcode, Syndrome};
use softroce_engine::{EngineEvent, SrqConfig};
use verbs_api::{EventKind, QpState, RemoteAddr, WcStatus};

use super::bench::{MTU, Target, events, initiator_config};
use crate::node::pattern;

const REMOTE_ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);

/// Numbers that are no shared receive queue of the target's domain.
fn foreign_numbers(target: &mut Target) -> Vec<u32> {
    let node = &mut target.raw.node;
    let other = node.engine.alloc_xrc_domain().unwrap();
    let in_other_domain = super::bench::Srq::new(node, other).handle.srqn;
    let ordinary = SrqConfig {
        pd: node.pd,
        max_wr: 4,
        max_sge: 1,
        limit: 0,
        xrc: None,
    };
    let ordinary = node.engine.create_srq(&ordinary).unwrap();
    let now = target.raw.now;
    let receive = verbs_api::RecvWr { wr_id: 9, sges: &[] };
    node.engine.post_srq_recv(now, ordinary.id, &receive).unwrap();
    let gone = super::bench::Srq::new(node, target.domain);
    node.engine.destroy_srq(gone.handle.id).unwrap();
    vec![
        0,
        in_other_domain,
        ordinary.srqn,
        gone.handle.srqn,
        0xff_ffff,
        target.qpn,
    ]
}

#[test]
fn a_request_that_names_no_queue_of_the_domain_is_refused_and_touches_nothing() {
    for choice in 0..6 {
        for opcode in [
            Opcode::XRC_SEND_ONLY,
            Opcode::XRC_SEND_FIRST,
            Opcode::XRC_WRITE_ONLY,
            Opcode::XRC_WRITE_ONLY_WITH_IMMEDIATE,
            Opcode::XRC_READ_REQUEST,
            Opcode::XRC_FETCH_ADD,
        ] {
            let mut target = Target::new();
            let srqn = foreign_numbers(&mut target)[choice];
            let srq = target.srq();
            if srq.handle.srqn == srqn {
                // The number of the one that is gone: taken again, it is a good one.
                continue;
            }
            target.post(&srq, 1, 0, 1024);
            target.raw.node.write(4096, &pattern(MTU, 1));
            let remote = target.raw.node.remote(4096);
            let payload = match opcode {
                Opcode::XRC_READ_REQUEST | Opcode::XRC_FETCH_ADD => vec![],
                _ => vec![0xee; MTU],
            };
            let mut headers = target.with_reth(opcode, 0, srqn, remote, MTU as u32);
            headers.immediate = Some(roce_wire::ImmDt([0; 4]));
            headers.atomic_eth = Some(roce_wire::AtomicEth {
                va: remote.addr,
                rkey: roce_wire::RKey(remote.rkey.0),
                swap_or_add: 1,
                compare: 0,
            });
            target.raw.inject(headers, &payload);
            assert_eq!(target.acknowledged(), (0, REMOTE_ACCESS, 0), "{opcode:?}");
            assert_eq!(target.state(), QpState::Err);
            let event = EngineEvent::Qp(target.qpn, EventKind::QpAccessErr);
            assert_eq!(target.failures(), [event]);
            assert_eq!(srq.outcomes(), []);
            assert_eq!(target.raw.node.read(4096, MTU), pattern(MTU, 1));
        }
    }
}

#[test]
fn a_message_that_goes_on_with_another_queue_fails_the_request_that_it_began_with() {
    let mut target = Target::new();
    let srqs = [target.srq(), target.srq()];
    target.post(&srqs[0], 1, 0, 1024);
    target.post(&srqs[1], 2, 4096, 1024);
    target.send(Opcode::XRC_SEND_FIRST, 0, srqs[0].handle.srqn, &pattern(MTU, 0));
    target.raw.sent();
    target.send(Opcode::XRC_SEND_LAST, 1, srqs[1].handle.srqn, b"other");
    assert_eq!(target.acknowledged(), (1, REMOTE_ACCESS, 0));
    assert_eq!(srqs[0].outcomes(), [(1, target.qpn, WcStatus::LocAccessErr)]);
    assert_eq!(srqs[1].outcomes(), []);
    assert_eq!(target.raw.node.read(4096, 5), [0; 5]);
}

/// A key of one domain, and in the middle of the WRITE a queue of another.
#[test]
fn a_write_that_goes_on_with_a_queue_of_another_domain_writes_no_more() {
    let mut target = Target::new();
    let (pd, mr) = target.foreign_memory(1 << 20);
    let foreign = super::bench::Srq::in_pd(&mut target.raw.node, pd, target.domain, 8);
    let own = target.srq();
    let remote = RemoteAddr {
        addr: target.raw.node.address(1 << 20),
        rkey: mr.rkey,
    };
    let headers = target.with_reth(Opcode::XRC_WRITE_FIRST, 0, foreign.handle.srqn, remote, 512);
    target.raw.inject(headers, &[1; MTU]);
    target.raw.sent();
    target.send(Opcode::XRC_WRITE_LAST, 1, own.handle.srqn, &[2; MTU]);
    assert_eq!(target.acknowledged(), (1, REMOTE_ACCESS, 0));
    assert_eq!(target.raw.node.read((1 << 20) + MTU, MTU), [0; MTU]);
    assert_eq!(target.state(), QpState::Err);
}

#[test]
fn a_queue_that_is_destroyed_in_the_middle_of_a_message_takes_its_request_with_it() {
    let mut target = Target::new();
    let srq = target.srq();
    target.post(&srq, 1, 0, 1024);
    target.send(Opcode::XRC_SEND_FIRST, 0, srq.handle.srqn, &pattern(MTU, 0));
    target.raw.sent();
    let engine = &mut target.raw.node.engine;
    engine.destroy_srq(srq.handle.id).unwrap();
    engine.destroy_cq(srq.cq).unwrap();
    target.send(Opcode::XRC_SEND_LAST, 1, srq.handle.srqn, b"end");
    assert_eq!(target.acknowledged(), (1, REMOTE_ACCESS, 0));
    assert_eq!(target.raw.node.read(MTU, 3), [0; 3]);
    let event = EngineEvent::Qp(target.qpn, EventKind::QpAccessErr);
    assert_eq!(target.failures(), [event]);
}

#[test]
fn packets_of_the_other_half_or_of_another_service_are_dropped() {
    let mut target = Target::new();
    let srq = target.srq();
    target.post(&srq, 1, 0, 1024);
    let node = &mut target.raw.node;
    let config = initiator_config(node);
    let initiator = node.engine.create_qp(&config).unwrap().qpn;
    let peer = (target.raw.meta.src, crate::raw::PEER_QPN);
    let (now, c) = (target.raw.now, super::bench::connection());
    super::bench::connect(node, now, initiator, verbs_api::QpType::XrcInitiator, peer, &c);
    let ordinary = {
        let raw = crate::raw::Raw::new();
        raw.qpn
    };
    let before = target.raw.node.engine.counters().dropped_wrong_transport;
    for (qpn, opcode) in [
        (target.qpn, Opcode::XRC_ACKNOWLEDGE),
        (target.qpn, Opcode::XRC_READ_RESPONSE_ONLY),
        (target.qpn, Opcode::RC_SEND_ONLY),
        (target.qpn, Opcode::UC_SEND_ONLY),
        (initiator, Opcode::XRC_SEND_ONLY),
        (initiator, Opcode::RC_ACKNOWLEDGE),
        (ordinary, Opcode::XRC_SEND_ONLY),
        (ordinary, Opcode::XRC_ACKNOWLEDGE),
    ] {
        target.raw.qpn = qpn;
        let mut headers = target.headers(opcode, 0, srq.handle.srqn);
        headers.aeth = Some(roce_wire::Aeth {
            syndrome: Syndrome::ACK,
            msn: roce_wire::Msn::new(1),
        });
        target.raw.inject(headers, &[]);
    }
    let after = target.raw.node.engine.counters().dropped_wrong_transport;
    assert_eq!(after - before, 8);
    target.raw.assert_silent();
    assert_eq!(srq.outcomes(), []);
    assert_eq!(events(&mut target.raw.node), []);
}

#[test]
fn reserved_opcodes_are_invalid_requests() {
    for operation in [0x15, 0x18, 0x1b, 0x1e] {
        let mut target = Target::new();
        let mut bytes = target
            .raw
            .packet(target.raw.headers(Opcode::RC_SEND_ONLY, 0), b"x");
        bytes[0] = 0xa0 | operation;
        target.raw.seal(&mut bytes);
        target.raw.inject_bytes(&bytes);
        let invalid = Syndrome::Nak(NakCode::InvalidRequest);
        assert_eq!(target.acknowledged(), (0, invalid, 0), "{operation:#x}");
    }
}
