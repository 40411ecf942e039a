//! An initiator and a target with a wire between them.

use std::cell::RefCell;
use std::rc::Rc;

use roce_wire::{Opcode, Transport};
use softroce_engine::SendOperation;
use verbs_api::{Access, QpType, RemoteAddr, WcOpcode, WcStatus};

use super::bench::{Srq, connect, connection, initiator_config, post, target_config};
use crate::node::{Connection, Node, all_access, pattern};
use crate::pair::{Fate, From, Pair, Passing};

/// The initiator is `qa`, the target `qb`.
struct Xrc {
    pair: Pair,
    srqs: [Srq; 2],
}

impl Xrc {
    fn new() -> Xrc {
        let (mut a, mut b) = (Node::new("10.0.0.1", 1), Node::new("10.0.0.2", 2));
        let domain = b.engine.alloc_xrc_domain().unwrap();
        let (initiator, target) = (initiator_config(&a), target_config(&b, domain));
        let qa = a.engine.create_qp(&initiator).unwrap().qpn;
        let qb = b.engine.create_qp(&target).unwrap().qpn;
        let srqs = [Srq::new(&mut b, domain), Srq::new(&mut b, domain)];
        let mut pair = Pair::unconnected(a, b, &Connection::default());
        (pair.qa, pair.qb) = (qa, qb);
        let c = Connection {
            first_psn: 0xff_fffe,
            peer_first_psn: 0xff_fffe,
            access: all_access() | Access::FLUSH_GLOBAL,
            ..connection()
        };
        let now = pair.now;
        let (at_a, at_b) = ((pair.a.ip, qa), (pair.b.ip, qb));
        connect(&mut pair.a, now, qa, QpType::XrcInitiator, at_b, &c);
        connect(&mut pair.b, now, qb, QpType::XrcTarget, at_a, &c);
        Xrc { pair, srqs }
    }

    /// Post to the queue at `index`.
    fn post(&mut self, index: usize, wr_id: u64, op: SendOperation, offset: usize, length: usize) {
        let sge = self.pair.a.sge(offset, length);
        let srqn = Some(self.srqs[index].handle.srqn);
        let (now, qa) = (self.pair.now, self.pair.qa);
        post(&mut self.pair.a, now, qa, (wr_id, srqn), op, &[sge]).unwrap();
    }

    fn receive(&mut self, index: usize, wr_id: u64, offset: usize, length: usize) {
        let sge = self.pair.b.sge(offset, length);
        self.srqs[index].post(&mut self.pair.b, wr_id, &[sge]);
    }

    /// Every kind of request once, and what it should do.
    fn post_all(&mut self) {
        self.pair.a.write(0, &pattern(1000, 1));
        self.pair.b.write(0x4000, &pattern(1000, 2));
        self.receive(0, 1, 0, 1000);
        self.receive(1, 2, 0x1000, 1000);
        self.receive(1, 3, 0x1000, 0);
        let (target, source, word) = (
            self.pair.b.remote(0x3000),
            self.pair.b.remote(0x4000),
            self.pair.b.remote(0x5000),
        );
        let send = SendOperation::Send { imm: None };
        let write = SendOperation::Write {
            remote: target,
            imm: Some(5),
        };
        self.post(0, 10, send, 0, 1000);
        self.post(1, 11, send, 0, 10);
        self.post(1, 12, write, 0, 1000);
        self.post(0, 13, SendOperation::Read { remote: source }, 0x8000, 1000);
        self.post(1, 14, SendOperation::FetchAdd { remote: word, add: 4 }, 0x9000, 8);
        self.post(
            0,
            15,
            SendOperation::CompareSwap {
                remote: word,
                compare: 4,
                swap: 9,
            },
            0x9008,
            8,
        );
    }

    fn assert_all_done(&self) {
        let outcomes: Vec<_> = self
            .pair
            .a
            .completions()
            .iter()
            .map(|wc| (wc.wr_id, wc.status, wc.opcode))
            .collect();
        let expected = [
            (10, WcOpcode::Send),
            (11, WcOpcode::Send),
            (12, WcOpcode::RdmaWrite),
            (13, WcOpcode::RdmaRead),
            (14, WcOpcode::FetchAdd),
            (15, WcOpcode::CompSwap),
        ]
        .map(|(wr_id, opcode)| (wr_id, WcStatus::Success, opcode));
        assert_eq!(outcomes, expected);
        let qb = self.pair.qb;
        let received = [
            vec![(1, qb, WcStatus::Success)],
            vec![(2, qb, WcStatus::Success), (3, qb, WcStatus::Success)],
        ];
        for (srq, expected) in self.srqs.iter().zip(received) {
            assert_eq!(srq.outcomes(), expected);
        }
        let (a, b) = (&self.pair.a, &self.pair.b);
        assert_eq!(b.read(0, 1000), pattern(1000, 1));
        assert_eq!(b.read(0x1000, 10), pattern(10, 1));
        assert_eq!(b.read(0x3000, 1000), pattern(1000, 1));
        assert_eq!(a.read(0x8000, 1000), pattern(1000, 2));
        assert_eq!(a.read(0x9000, 1), [0]);
        assert_eq!(a.read(0x9008, 1), [4]);
        assert_eq!(b.read(0x5000, 1), [9]);
    }
}

/// Watch what passes; all of it passes.
fn watch(
    xrc: &mut Xrc,
    note: impl Fn(&Passing<'_>) -> Option<u32> + 'static,
) -> Rc<RefCell<Vec<Option<u32>>>> {
    let noted = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&noted);
    xrc.pair.rule = Box::new(move |passing| {
        if passing.from == From::A {
            into.borrow_mut().push(note(passing));
        } else {
            assert_eq!(passing.packet.headers.xrceth, None);
        }
        assert_eq!(passing.opcode().transport(), Transport::Xrc);
        Fate::Pass
    });
    noted
}

#[test]
fn every_kind_of_request_works_and_every_packet_of_it_names_its_queue() {
    let mut xrc = Xrc::new();
    let numbers = watch(&mut xrc, |passing| {
        Some(passing.packet.headers.xrceth.unwrap().srq.value())
    });
    xrc.post_all();
    xrc.pair.run();
    xrc.assert_all_done();
    let [x, y] = [0, 1].map(|index| Some(xrc.srqs[index].handle.srqn));
    // 1000 bytes in 4 packets, 10 in one, 1000 in 4, and one each.
    let mut expected = vec![x; 4];
    expected.extend([y; 5]);
    expected.extend([x, y, x]);
    assert_eq!(*numbers.borrow(), expected);
}

#[test]
fn whichever_packet_is_lost_everything_is_done_once() {
    let (mut dropped, mut index) = (true, 0);
    while dropped {
        for from in [From::A, From::B] {
            let mut xrc = Xrc::new();
            let seen = Rc::new(RefCell::new(false));
            let into = Rc::clone(&seen);
            xrc.pair.rule = Box::new(move |passing| {
                if passing.from == from && passing.index == index {
                    *into.borrow_mut() = true;
                    return Fate::Drop;
                }
                Fate::Pass
            });
            xrc.post_all();
            xrc.pair.run();
            xrc.assert_all_done();
            dropped = from == From::A && *seen.borrow() || from == From::B && dropped;
        }
        index += 1;
    }
    assert!(index > 12, "{index}");
}

#[test]
fn an_initiator_waits_for_the_queue_that_it_names() {
    let mut xrc = Xrc::new();
    xrc.receive(0, 1, 0, 64);
    xrc.post(1, 10, SendOperation::Send { imm: None }, 0, 8);
    let soon = xrc.pair.now + 100_000;
    xrc.pair.run_until(soon);
    assert_eq!(xrc.pair.a.completions(), []);
    xrc.receive(1, 2, 0, 64);
    xrc.pair.run();
    assert_eq!(xrc.pair.a.outcomes(), [(10, WcStatus::Success)]);
    assert_eq!(xrc.srqs[1].outcomes(), [(2, xrc.pair.qb, WcStatus::Success)]);
    let naks = xrc.pair.b.engine.counters().send_rnr_err;
    assert!(naks > 0);
}

#[test]
fn an_initiator_that_names_nothing_learns_that_it_has_no_access() {
    let mut xrc = Xrc::new();
    let (now, qa) = (xrc.pair.now, xrc.pair.qa);
    let send = SendOperation::Send { imm: None };
    post(&mut xrc.pair.a, now, qa, (10, Some(0xff_fffe)), send, &[]).unwrap();
    xrc.post(0, 11, send, 0, 8);
    xrc.pair.run();
    assert_eq!(
        xrc.pair.a.outcomes(),
        [(10, WcStatus::RemAccessErr), (11, WcStatus::WrFlushErr)]
    );
    assert_eq!(xrc.pair.psns(From::B, Opcode::XRC_ACKNOWLEDGE), [0xff_fffe]);
}

#[test]
fn atomic_writes_and_flushes_name_their_queue_too() {
    let mut xrc = Xrc::new();
    let numbers = watch(&mut xrc, |passing| {
        Some(passing.packet.headers.xrceth.unwrap().srq.value())
    });
    let b = &mut xrc.pair.b;
    let (pd, base) = (b.pd, b.address(0x10_0000));
    let access = all_access() | Access::FLUSH_GLOBAL;
    // SAFETY: the node's memory is never freed, and accessed between calls of the engine alone.
    let mr = unsafe { b.engine.reg_mr(pd, base as *mut u8, 4096, base, access) }.unwrap();
    let remote = RemoteAddr {
        addr: base,
        rkey: mr.rkey,
    };
    xrc.pair.a.write(0, b"8 bytes!");
    xrc.post(0, 1, SendOperation::AtomicWrite { remote }, 0, 8);
    let flush = SendOperation::Flush {
        remote,
        length: 8,
        placement: 1,
        whole_mr: false,
    };
    xrc.post(1, 2, flush, 0, 0);
    xrc.pair.run();
    assert_eq!(
        xrc.pair.a.outcomes(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(xrc.pair.b.read(0x10_0000, 8), b"8 bytes!");
    let expected = [0, 1].map(|index| Some(xrc.srqs[index].handle.srqn));
    assert_eq!(*numbers.borrow(), expected);
}
