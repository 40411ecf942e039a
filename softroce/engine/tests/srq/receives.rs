//! Messages that take their receive requests from a shared queue.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use softroce_engine::EngineEvent;
use verbs_api::{EventKind, WcOpcode, WcStatus};

use super::bench::{Bench, create_srq_in, failures, post};
use crate::node::{Connection, pattern};
use crate::raw::Raw;

const MTU: usize = 256;

#[test]
fn messages_to_several_queue_pairs_take_the_requests_in_turn_and_each_completion_names_its_queue_pair() {
    let mut bench = Bench::new(3, 16);
    for wr_id in 0..6 {
        bench.post(wr_id, wr_id as usize * 64, 64);
    }
    for (step, index) in [2, 0, 1, 0, 2, 2].into_iter().enumerate() {
        let psn = [0, 0, 0, 1, 1, 2][step];
        bench
            .to(index)
            .plain(Opcode::RC_SEND_ONLY, psn, &pattern(40, step));
    }
    let qps = bench.qps.clone();
    let expected: Vec<_> = [2, 0, 1, 0, 2, 2]
        .into_iter()
        .enumerate()
        .map(|(wr_id, index)| (wr_id as u64, qps[index], WcStatus::Success))
        .collect();
    assert_eq!(bench.outcomes(), expected);
    for step in 0..6 {
        assert_eq!(bench.raw.node.read(step * 64, 40), pattern(40, step));
    }
}

#[test]
fn two_long_messages_that_come_interleaved_fill_a_request_each() {
    let mut bench = Bench::new(2, 16);
    bench.post(1, 0, 1024);
    bench.post(2, 4096, 1024);
    bench.post(3, 8192, 1024);
    let messages = [pattern(3 * MTU, 1), pattern(3 * MTU, 2)];
    let opcodes = [
        Opcode::RC_SEND_FIRST,
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_SEND_LAST,
    ];
    for (psn, opcode) in opcodes.into_iter().enumerate() {
        for index in [1, 0] {
            let part = &messages[index][psn * MTU..(psn + 1) * MTU];
            bench.to(index).plain(opcode, psn as u32, part);
        }
    }
    let qps = bench.qps.clone();
    assert_eq!(
        bench.outcomes(),
        [(1, qps[1], WcStatus::Success), (2, qps[0], WcStatus::Success)]
    );
    assert_eq!(bench.raw.node.read(0, 3 * MTU), messages[1]);
    assert_eq!(bench.raw.node.read(4096, 3 * MTU), messages[0]);
    // A short message overtakes a long one.
    bench.post(4, 12288, 1024);
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 3, &messages[0][..MTU]);
    bench.to(1).plain(Opcode::RC_SEND_ONLY, 3, b"short");
    bench.to(0).plain(Opcode::RC_SEND_LAST, 4, b"end");
    assert_eq!(
        bench.outcomes(),
        [(4, qps[1], WcStatus::Success), (3, qps[0], WcStatus::Success)]
    );
    assert_eq!(bench.raw.node.read(8192 + MTU, 3), b"end");
}

#[test]
fn a_held_request_keeps_its_entries_while_its_place_in_the_queue_is_used_again() {
    let mut bench = Bench::new(2, 1);
    let sges = [
        bench.raw.node.sge(0, 100),
        bench.raw.node.sge(1000, 100),
        bench.raw.node.sge(2000, 312),
    ];
    post(&mut bench.raw.node, bench.srq, 1, &sges).unwrap();
    let message = pattern(2 * MTU, 7);
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 0, &message[..MTU]);
    bench.post(2, 5000, 64);
    bench.to(1).plain(Opcode::RC_SEND_ONLY, 0, b"other");
    bench.post(3, 6000, 64);
    bench.to(0).plain(Opcode::RC_SEND_LAST, 1, &message[MTU..]);
    let node = &bench.raw.node;
    assert_eq!(node.read(0, 100), message[..100]);
    assert_eq!(node.read(1000, 100), message[100..200]);
    assert_eq!(node.read(2000, 312), message[200..512]);
    assert_eq!(node.read(6000, 8), [0; 8]);
    let numbers: Vec<u64> = bench.outcomes().iter().map(|(wr_id, ..)| *wr_id).collect();
    assert_eq!(numbers, [2, 1]);
}

#[test]
fn immediate_data_of_a_write_takes_one_request_and_leaves_its_memory_alone() {
    let mut bench = Bench::new(1, 4);
    bench.post(1, 0, 64);
    bench.post(2, 64, 64);
    let remote = bench.raw.node.remote(4096);
    let data = pattern(MTU + 10, 3);
    let length = data.len() as u32;
    bench
        .to(0)
        .write(Opcode::RC_WRITE_FIRST, 0, remote, length, &data[..MTU]);
    assert_eq!(bench.raw.node.completions(), []);
    bench
        .to(0)
        .with_imm(Opcode::RC_WRITE_LAST_WITH_IMMEDIATE, 1, 9, &data[MTU..]);
    let wc = bench.raw.node.completions().remove(0);
    assert_eq!((wc.wr_id, wc.opcode), (1, WcOpcode::RecvRdmaWithImm));
    assert_eq!((wc.byte_len, wc.imm), (length, 9));
    assert_eq!(bench.raw.node.read(0, 64), [0; 64]);
    bench.to(0).plain(Opcode::RC_SEND_ONLY, 2, b"next");
    assert_eq!(bench.outcomes()[0].0, 2);
}

#[test]
fn an_empty_queue_is_an_rnr_nak_with_the_queue_pairs_timer_and_nothing_is_lost() {
    let mut bench = Bench::new(2, 4);
    bench.post(1, 1024, 1024);
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 0, &pattern(MTU, 0));
    bench.raw.sent();
    bench.to(1).plain(Opcode::RC_SEND_ONLY, 0, b"one");
    let timer = Connection::default().min_rnr_timer;
    let rnr = Syndrome::RnrNak(RnrTimer::new(timer).unwrap());
    assert_eq!(bench.raw.sent_one().ack(), (0, rnr, 0));
    bench.post(2, 512, 64);
    bench.to(1).plain(Opcode::RC_SEND_ONLY, 0, b"one");
    assert_eq!(bench.raw.sent_one().ack(), (0, Syndrome::ACK, 1));
    assert_eq!(bench.outcomes(), [(2, bench.qps[1], WcStatus::Success)]);
}

#[test]
fn the_limit_fires_once_when_a_message_leaves_fewer_and_reads_0_then() {
    let mut bench = Bench::new(2, 8);
    let srq = bench.srq;
    for wr_id in 0..6 {
        bench.post(wr_id, 0, 64);
    }
    let now = bench.raw.now;
    let engine = &mut bench.raw.node.engine;
    engine.modify_srq(now, srq, None, Some(4)).unwrap();
    let send = |bench: &mut Bench, index: usize, psn: u32| {
        bench.to(index).plain(Opcode::RC_SEND_ONLY, psn, b"x");
        failures(&mut bench.raw.node)
    };
    assert_eq!(send(&mut bench, 0, 0), []);
    assert_eq!(send(&mut bench, 1, 0), [], "four are left, which is not fewer");
    assert_eq!(bench.raw.node.engine.query_srq(srq).unwrap().limit, 4);
    assert_eq!(
        send(&mut bench, 0, 1),
        [EngineEvent::Srq(srq, EventKind::SrqLimitReached)]
    );
    assert_eq!(bench.raw.node.engine.query_srq(srq).unwrap().limit, 0);
    assert_eq!(send(&mut bench, 1, 1), []);
    // Armed above what is left: the next message fires it.
    let engine = &mut bench.raw.node.engine;
    engine.modify_srq(now, srq, None, Some(8)).unwrap();
    assert_eq!(failures(&mut bench.raw.node), []);
    assert_eq!(
        send(&mut bench, 0, 2),
        [EngineEvent::Srq(srq, EventKind::SrqLimitReached)]
    );
    assert_eq!(send(&mut bench, 0, 3), []);
}

#[test]
fn the_limit_fires_when_a_long_message_takes_its_request_and_not_when_it_ends() {
    let mut bench = Bench::new(1, 8);
    let srq = bench.srq;
    bench.post(1, 0, 1024);
    let now = bench.raw.now;
    let engine = &mut bench.raw.node.engine;
    engine.modify_srq(now, srq, None, Some(1)).unwrap();
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 0, &pattern(MTU, 0));
    let fired = [EngineEvent::Srq(srq, EventKind::SrqLimitReached)];
    assert_eq!(failures(&mut bench.raw.node), fired);
    bench.to(0).plain(Opcode::RC_SEND_LAST, 1, b"x");
    assert_eq!(failures(&mut bench.raw.node), []);
}

/// Whoever takes a request, its entries are of the shared queue's domain.
#[test]
fn entries_are_looked_up_in_the_shared_queues_domain_and_not_in_the_queue_pairs() {
    let mut raw = Raw::new();
    let foreign = raw.node.engine.alloc_pd().unwrap();
    let base = raw.node.address(1 << 20) as *mut u8;
    // SAFETY: the node's memory is never freed, and accessed between calls of the engine alone.
    let mr = unsafe {
        raw.node
            .engine
            .reg_mr(foreign, base, 4096, base as u64, crate::node::all_access())
    }
    .unwrap();
    let srq = create_srq_in(&mut raw.node, foreign, 4);
    let mut bench = Bench::on(raw, srq, 1);
    let mut sge = bench.raw.node.sge(1 << 20, 64);
    sge.lkey = mr.lkey;
    post(&mut bench.raw.node, srq, 1, &[sge]).unwrap();
    bench.to(0).plain(Opcode::RC_SEND_ONLY, 0, b"there");
    assert_eq!(bench.raw.sent_one().ack(), (0, Syndrome::ACK, 1));
    assert_eq!(bench.raw.node.read(1 << 20, 5), b"there");
    // A key of the queue pair's domain is of no use here.
    bench.post(2, 0, 64);
    bench.to(0).plain(Opcode::RC_SEND_ONLY, 1, b"here");
    let nak = Syndrome::Nak(NakCode::RemoteOperational);
    assert_eq!(bench.raw.sent_one().ack(), (1, nak, 1));
    let qpn = bench.qps[0];
    assert_eq!(
        bench.outcomes(),
        [(1, qpn, WcStatus::Success), (2, qpn, WcStatus::LocProtErr)]
    );
    // The domain of the remote keys is the queue pair's as ever.
}

#[test]
fn a_request_without_entries_takes_an_empty_message() {
    let mut bench = Bench::new(1, 4);
    post(&mut bench.raw.node, bench.srq, 1, &[]).unwrap();
    bench.to(0).plain(Opcode::RC_SEND_ONLY, 0, &[]);
    let wc = bench.raw.node.completions().remove(0);
    assert_eq!(
        (wc.wr_id, wc.status, wc.byte_len, wc.opcode),
        (1, WcStatus::Success, 0, WcOpcode::Recv)
    );
}
