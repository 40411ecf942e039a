//! A target: receives and memory are those of the shared receive queue that a request names.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use softroce_engine::EngineEvent;
use verbs_api::{EventKind, LKey, QpState, RKey, RemoteAddr, WcFlags, WcOpcode, WcStatus};

use super::bench::{MTU, Srq, Target, connection, events};
use crate::node::pattern;

#[test]
fn a_message_goes_to_the_queue_that_it_names_and_completes_there_with_the_targets_number() {
    let mut target = Target::new();
    let srqs = [target.srq(), target.srq()];
    target.post(&srqs[0], 1, 0, 64);
    target.post(&srqs[1], 2, 64, 64);
    for (psn, index) in [1, 0].into_iter().enumerate() {
        let srqn = srqs[index].handle.srqn;
        target.send(Opcode::XRC_SEND_ONLY, psn as u32, srqn, &[index as u8; 8]);
        assert_eq!(target.acknowledged(), (psn as u32, Syndrome::ACK, psn as u32 + 1));
    }
    for (index, srq) in srqs.iter().enumerate() {
        let wc = srq.completions().remove(0);
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.qp_num),
            (index as u64 + 1, WcStatus::Success, WcOpcode::Recv, 8, target.qpn)
        );
        assert_eq!(target.raw.node.read(index * 64, 8), [index as u8; 8]);
    }
    assert_eq!(target.raw.node.completions(), []);
}

#[test]
fn immediate_data_and_solicited_events_reach_the_named_queue() {
    let mut target = Target::new();
    let srq = target.srq();
    target.post(&srq, 1, 0, 64);
    target.post(&srq, 2, 0, 64);
    target
        .raw
        .node
        .engine
        .req_notify_cq(srq.cq, verbs_api::Notify::SolicitedOnly)
        .unwrap();
    let mut headers = target.headers(Opcode::XRC_SEND_ONLY_WITH_IMMEDIATE, 0, srq.handle.srqn);
    headers.immediate = Some(roce_wire::ImmDt([0, 0, 0, 7]));
    headers.bth.solicited = true;
    target.raw.inject(headers, b"x");
    let notified = std::iter::from_fn(|| target.raw.node.engine.poll_event());
    assert!(
        notified
            .into_iter()
            .any(|event| event == EngineEvent::CqNotify(srq.cq))
    );
    let remote = target.raw.node.remote(4096);
    let mut headers = target.with_reth(
        Opcode::XRC_WRITE_ONLY_WITH_IMMEDIATE,
        1,
        srq.handle.srqn,
        remote,
        4,
    );
    headers.immediate = Some(roce_wire::ImmDt([0, 0, 0, 8]));
    target.raw.inject(headers, b"data");
    let all: Vec<_> = srq
        .completions()
        .iter()
        .map(|wc| (wc.wr_id, wc.opcode, wc.imm, wc.flags))
        .collect();
    assert_eq!(
        all,
        [
            (1, WcOpcode::Recv, 7, WcFlags::WITH_IMM),
            (2, WcOpcode::RecvRdmaWithImm, 8, WcFlags::WITH_IMM)
        ]
    );
    assert_eq!(target.raw.node.read(4096, 4), b"data");
}

#[test]
fn long_messages_through_two_targets_take_turns_at_one_queue() {
    let mut target = Target::new();
    let second = target.add();
    let srq = target.srq();
    target.post(&srq, 1, 0, 512);
    target.post(&srq, 2, 1024, 512);
    let qps = [target.qpn, second];
    let messages = [pattern(2 * MTU, 1), pattern(2 * MTU, 2)];
    for (psn, opcode) in [Opcode::XRC_SEND_FIRST, Opcode::XRC_SEND_LAST]
        .into_iter()
        .enumerate()
    {
        for index in [0, 1] {
            target.raw.qpn = qps[index];
            let part = &messages[index][psn * MTU..(psn + 1) * MTU];
            target.send(opcode, psn as u32, srq.handle.srqn, part);
        }
    }
    assert_eq!(
        srq.outcomes(),
        [(1, qps[0], WcStatus::Success), (2, qps[1], WcStatus::Success)]
    );
    assert_eq!(target.raw.node.read(0, 512), messages[0]);
    assert_eq!(target.raw.node.read(1024, 512), messages[1]);
}

#[test]
fn a_named_queue_that_is_empty_is_an_rnr_nak_whatever_others_hold() {
    let mut target = Target::new();
    let srqs = [target.srq(), target.srq()];
    target.post(&srqs[0], 1, 0, 64);
    let rnr = Syndrome::RnrNak(RnrTimer::new(connection().min_rnr_timer).unwrap());
    target.send(Opcode::XRC_SEND_ONLY, 0, srqs[1].handle.srqn, b"x");
    assert_eq!(target.acknowledged(), (0, rnr, 0));
    target.post(&srqs[1], 2, 0, 64);
    target.send(Opcode::XRC_SEND_ONLY, 0, srqs[1].handle.srqn, b"x");
    assert_eq!(target.acknowledged(), (0, Syndrome::ACK, 1));
    assert_eq!(srqs[1].outcomes(), [(2, target.qpn, WcStatus::Success)]);
    assert_eq!(srqs[0].outcomes(), []);
}

#[test]
fn the_limit_of_a_named_queue_fires() {
    let mut target = Target::new();
    let srq = target.srq();
    target.post(&srq, 1, 0, 64);
    let now = target.raw.now;
    let engine = &mut target.raw.node.engine;
    engine.modify_srq(now, srq.handle.id, None, Some(1)).unwrap();
    target.send(Opcode::XRC_SEND_ONLY, 0, srq.handle.srqn, b"x");
    let fired = EngineEvent::Srq(srq.handle.id, EventKind::SrqLimitReached);
    assert_eq!(target.failures(), [fired]);
}

/// The queue's domain counts for remote keys too, not the target's (IBA annex A14).
#[test]
fn remote_keys_are_looked_up_in_the_named_queues_domain() {
    let mut target = Target::new();
    let (pd, mr) = target.foreign_memory(1 << 20);
    let foreign = Srq::in_pd(&mut target.raw.node, pd, target.domain, 64);
    let own = target.srq();
    let there = |offset: usize, target: &Target| RemoteAddr {
        addr: target.raw.node.address((1 << 20) + offset),
        rkey: mr.rkey,
    };
    let data = pattern(MTU, 5);
    target.raw.node.write((1 << 20) + 1024, &data);
    // A WRITE, a READ and an atomic through the queue of that domain.
    let remote = there(0, &target);
    target.write(Opcode::XRC_WRITE_ONLY, 0, foreign.handle.srqn, remote, b"written");
    let remote = there(1024, &target);
    target.read(1, foreign.handle.srqn, remote, MTU as u32);
    let remote = there(2048, &target);
    target.fetch_add(2, foreign.handle.srqn, remote, 3);
    let sent = target.sent();
    let opcodes: Vec<_> = sent.iter().map(|packet| packet.opcode()).collect();
    assert_eq!(
        opcodes,
        [Opcode::XRC_READ_RESPONSE_ONLY, Opcode::XRC_ATOMIC_ACKNOWLEDGE]
    );
    assert_eq!(sent[0].payload, data);
    assert_eq!(target.raw.node.read(1 << 20, 7), b"written");
    assert_eq!(target.raw.node.read((1 << 20) + 2048, 1), [3]);
    // The target's own domain is of no use with it, nor is that domain's key with another queue.
    let ours = target.raw.node.remote(0);
    for (srqn, remote) in [(foreign.handle.srqn, ours), (own.handle.srqn, there(0, &target))] {
        let mut target = again(&mut target);
        target.write(Opcode::XRC_WRITE_ONLY, 0, srqn, remote, b"no");
        let nak = Syndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(target.acknowledged(), (0, nak, 0));
        assert_eq!(target.state(), QpState::Err);
        let event = EngineEvent::Qp(target.qpn, EventKind::QpAccessErr);
        assert_eq!(target.failures(), [event]);
    }
}

/// Another target on the same engine takes over; the bench is moved out and back in by the caller's loop.
fn again(target: &mut Target) -> Again<'_> {
    let before = (target.qpn, target.raw.qpn);
    let qpn = target.add();
    (target.qpn, target.raw.qpn) = (qpn, qpn);
    events(&mut target.raw.node);
    Again { target, before }
}

struct Again<'a> {
    target: &'a mut Target,
    before: (u32, u32),
}

impl std::ops::Deref for Again<'_> {
    type Target = Target;
    fn deref(&self) -> &Target {
        self.target
    }
}

impl std::ops::DerefMut for Again<'_> {
    fn deref_mut(&mut self) -> &mut Target {
        self.target
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        (self.target.qpn, self.target.raw.qpn) = self.before;
    }
}

#[test]
fn a_long_read_goes_on_in_its_queues_domain_when_the_next_request_names_another() {
    let mut target = Target::new();
    let (pd, mr) = target.foreign_memory(1 << 20);
    let foreign = Srq::in_pd(&mut target.raw.node, pd, target.domain, 64);
    let own = target.srq();
    target.post(&own, 1, 0, 64);
    let data = pattern(3 * MTU, 9);
    target.raw.node.write(1 << 20, &data);
    let remote = RemoteAddr {
        addr: target.raw.node.address(1 << 20),
        rkey: mr.rkey,
    };
    target.read(0, foreign.handle.srqn, remote, data.len() as u32);
    target.send(Opcode::XRC_SEND_ONLY, 3, own.handle.srqn, b"x");
    let sent = target.sent();
    let payload: Vec<u8> = sent.iter().flat_map(|packet| packet.payload.clone()).collect();
    assert_eq!(payload, data);
    let last = sent.last().unwrap();
    assert_eq!((last.opcode(), last.psn()), (Opcode::XRC_ACKNOWLEDGE, 3));
    // A repeated one is answered from there too, whatever it names itself.
    target.read(0, own.handle.srqn, remote, data.len() as u32);
    let sent = target.sent();
    let payload: Vec<u8> = sent.iter().flat_map(|packet| packet.payload.clone()).collect();
    assert_eq!(payload, data);
}

#[test]
fn entries_of_a_receive_are_looked_up_in_its_queues_domain() {
    let mut target = Target::new();
    let (pd, mr) = target.foreign_memory(1 << 20);
    let srq = Srq::in_pd(&mut target.raw.node, pd, target.domain, 64);
    let sge = |lkey: LKey, target: &Target| verbs_api::Sge {
        lkey,
        ..target.raw.node.sge(1 << 20, 64)
    };
    let good = sge(mr.lkey, &target);
    srq.post(&mut target.raw.node, 1, &[good]);
    let bad = sge(target.raw.node.mr.lkey, &target);
    srq.post(&mut target.raw.node, 2, &[bad]);
    target.send(Opcode::XRC_SEND_ONLY, 0, srq.handle.srqn, b"there");
    target.send(Opcode::XRC_SEND_ONLY, 1, srq.handle.srqn, b"fails");
    assert_eq!(
        srq.outcomes(),
        [
            (1, target.qpn, WcStatus::Success),
            (2, target.qpn, WcStatus::LocProtErr)
        ]
    );
    assert_eq!(target.raw.node.read(1 << 20, 5), b"there");
}

#[test]
fn a_target_that_fails_gives_its_held_request_up_and_the_queue_keeps_the_others() {
    let mut target = Target::new();
    let srq = target.srq();
    target.post(&srq, 1, 0, 1024);
    target.post(&srq, 2, 0, 1024);
    target.send(Opcode::XRC_SEND_FIRST, 0, srq.handle.srqn, &pattern(MTU, 0));
    let (now, qpn) = (target.raw.now, target.qpn);
    let error = verbs_api::QpAttr {
        state: Some(QpState::Err),
        ..verbs_api::QpAttr::default()
    };
    target.raw.node.modify(now, qpn, error);
    assert_eq!(srq.outcomes(), [(1, qpn, WcStatus::WrFlushErr)]);
    assert_eq!(target.failures(), []);
    let mut next = again(&mut target);
    next.send(Opcode::XRC_SEND_ONLY, 0, srq.handle.srqn, b"x");
    assert_eq!(srq.outcomes(), [(2, next.qpn, WcStatus::Success)]);
}

#[test]
fn a_target_whose_completion_finds_no_room_fails() {
    let mut target = Target::new();
    let (domain, pd) = (target.domain, target.raw.node.pd);
    let srq = Srq::in_pd(&mut target.raw.node, pd, domain, 1);
    let idle = target.add();
    target.post(&srq, 1, 0, 64);
    target.post(&srq, 2, 0, 64);
    for psn in 0..2 {
        target.send(Opcode::XRC_SEND_ONLY, psn, srq.handle.srqn, b"x");
    }
    assert_eq!(target.state(), QpState::Err);
    assert_eq!(target.raw.node.state(idle), QpState::Rts);
    let expected = [
        EngineEvent::Cq(srq.cq, EventKind::CqErr),
        EngineEvent::Qp(target.qpn, EventKind::QpFatal),
    ];
    assert_eq!(target.failures(), expected);
}

#[test]
fn the_first_request_establishes_a_target_that_is_not_in_rts_yet() {
    let mut target = Target::new();
    let srq = target.srq();
    target.post(&srq, 1, 0, 64);
    let config = super::bench::target_config(&target.raw.node, target.domain);
    let qpn = target.raw.node.engine.create_qp(&config).unwrap().qpn;
    let (now, peer) = (target.raw.now, target.raw.meta.src);
    let c = connection();
    target.raw.node.enter_init(now, qpn, &c);
    target
        .raw
        .node
        .enter_rtr(now, qpn, peer, crate::raw::PEER_QPN, &c);
    target.raw.qpn = qpn;
    target.send(Opcode::XRC_SEND_ONLY, 0, srq.handle.srqn, b"x");
    assert_eq!(target.acknowledged(), (0, Syndrome::ACK, 1));
    let established = EngineEvent::Qp(qpn, EventKind::CommEst);
    assert_eq!(events(&mut target.raw.node), [established]);
}

#[test]
fn what_is_written_with_length_0_needs_a_queue_but_no_key() {
    let mut target = Target::new();
    let srq = target.srq();
    let nowhere = RemoteAddr {
        addr: 0,
        rkey: RKey(0),
    };
    target.write(Opcode::XRC_WRITE_ONLY, 0, srq.handle.srqn, nowhere, &[]);
    assert_eq!(target.acknowledged(), (0, Syndrome::ACK, 1));
}
