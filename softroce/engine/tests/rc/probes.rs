//! A queue pair that alone is not answered, while its peer's process answers others: it probes long before its timeout.

use roce_wire::Opcode;
use softroce_engine::{SendOperation, Time};
use verbs_api::WcStatus;

use crate::node::Connection;
use crate::pair::{Fate, From, Pair, Passing};

const MS: u64 = 1_000_000;
const ACK_TIMEOUT_CODE: u8 = 16;

/// Two connections between two processes: the first one's packets are subject to `rule`, the second one is busy.
struct Neighbours {
    pair: Pair,
    quiet: (u32, u32),
    busy: (u32, u32),
}

impl Neighbours {
    fn new(mut rule: impl FnMut(&Passing<'_>) -> Fate + 'static) -> Neighbours {
        let connection = Connection {
            timeout: ACK_TIMEOUT_CODE,
            ..Connection::default()
        };
        let mut pair = Pair::with(connection);
        let quiet = (pair.qa, pair.qb);
        let busy = (pair.a.create_qp(&connection), pair.b.create_qp(&connection));
        (pair.qa, pair.qb) = busy;
        pair.connect(&connection);
        pair.rule = Box::new(move |passing| {
            let to = passing.packet.headers.bth.dest_qp.value();
            match to == quiet.0 || to == quiet.1 {
                true => rule(passing),
                false => Fate::Pass,
            }
        });
        Neighbours { pair, quiet, busy }
    }

    /// The quiet one posts, and the busy one writes every millisecond for so long.
    fn run(&mut self, op: SendOperation, length: usize, milliseconds: u64) {
        let pair = &mut self.pair;
        let sge = pair.a.sge(0, length);
        pair.a.post(pair.now, self.quiet.0, 1, op, &[sge]);
        for _ in 0..milliseconds {
            let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(1 << 20));
            let write = SendOperation::Write { remote, imm: None };
            pair.a.post(pair.now, self.busy.0, 2, write, &[sge]);
            let next = pair.now + MS;
            pair.run_until(next);
        }
    }

    /// The quiet one posts, and on the busy one the *peer* writes every millisecond for so long.
    fn run_asked(&mut self, op: SendOperation, length: usize, milliseconds: u64) {
        let pair = &mut self.pair;
        let sge = pair.a.sge(0, length);
        pair.a.post(pair.now, self.quiet.0, 1, op, &[sge]);
        for _ in 0..milliseconds {
            let (sge, remote) = (pair.b.sge(0, 8), pair.a.remote(1 << 20));
            let write = SendOperation::Write { remote, imm: None };
            pair.b.post(pair.now, self.busy.1, 2, write, &[sge]);
            let next = pair.now + MS;
            pair.run_until(next);
        }
    }

    /// What the quiet one has completed.
    fn outcomes(&self) -> Vec<WcStatus> {
        let outcomes = self.pair.a.outcomes().into_iter();
        outcomes
            .filter(|(id, _)| *id == 1)
            .map(|(_, status)| status)
            .collect()
    }

    fn write(&self) -> SendOperation {
        SendOperation::Write {
            remote: self.pair.b.remote(0),
            imm: None,
        }
    }

    fn read(&self) -> SendOperation {
        SendOperation::Read {
            remote: self.pair.b.remote(0),
        }
    }
}

/// Drops the first packet of an opcode.
fn drop_first(opcode: Opcode) -> impl FnMut(&Passing<'_>) -> Fate {
    let mut is_over = false;
    move |passing| {
        if is_over || passing.opcode() != opcode {
            return Fate::Pass;
        }
        is_over = true;
        Fate::Drop
    }
}

#[test]
fn a_lost_acknowledgement_is_found_by_a_probe_before_any_timeout() {
    let mut world = Neighbours::new(drop_first(Opcode::RC_ACKNOWLEDGE));
    world.run(world.write(), 100, 25);
    assert_eq!(world.outcomes(), [WcStatus::Success]);
    let a = world.pair.a.engine.counters();
    assert_eq!((a.probes, a.timeouts, a.completer_retry_err), (1, 0, 0));
    assert_eq!(world.pair.b.engine.counters().duplicate_request, 1);
}

#[test]
fn a_lost_end_of_a_write_is_sent_again_after_a_probe() {
    let mut world = Neighbours::new(drop_first(Opcode::RC_WRITE_LAST));
    world.run(world.write(), 3000, 25);
    assert_eq!(world.outcomes(), [WcStatus::Success]);
    let a = world.pair.a.engine.counters();
    assert_eq!((a.probes, a.timeouts), (1, 0));
    assert_eq!(world.pair.b.read(0, 3000), world.pair.a.read(0, 3000));
}

#[test]
fn a_lost_end_of_a_read_is_asked_for_by_a_probe() {
    let mut world = Neighbours::new(drop_first(Opcode::RC_READ_RESPONSE_LAST));
    let read = world.read();
    world.pair.b.write(0, &crate::node::pattern(3000, 5));
    world.run(read, 3000, 25);
    assert_eq!(world.outcomes(), [WcStatus::Success]);
    let a = world.pair.a.engine.counters();
    assert_eq!((a.probes, a.timeouts), (1, 0));
    assert_eq!(world.pair.a.read(0, 3000), crate::node::pattern(3000, 5));
}

#[test]
fn probes_become_rare_and_put_no_timeout_off() {
    let mut world = Neighbours::new(|_| Fate::Drop);
    let start = world.pair.now;
    let timeout_ms = 2 * (4096 << ACK_TIMEOUT_CODE) / MS;
    world.run(world.write(), 100, timeout_ms);
    let a = world.pair.a.engine.counters();
    assert_eq!((a.probes, a.timeouts), (4, 0));
    let due = start + 2 * (4096 << ACK_TIMEOUT_CODE);
    world.pair.run_until(due + MS);
    assert_eq!(world.pair.a.engine.counters().timeouts, 1);
    world.pair.run_until(Time::MAX);
    assert_eq!(world.outcomes(), [WcStatus::RetryExcErr]);
}

#[test]
fn a_process_that_answers_nobody_is_not_probed() {
    let mut world = Neighbours::new(|_| Fate::Drop);
    world.run(world.write(), 100, 1);
    let soon = world.pair.now + 500 * MS;
    world.pair.run_until(soon);
    assert_eq!(world.pair.a.engine.counters().probes, 0);
    let seen = world.pair.seen.iter();
    assert_eq!(
        seen.filter(|seen| seen.from == From::A && seen.fate == Fate::Drop)
            .count(),
        1
    );
}

/// The kernel's rxe, slow in answering while it sent requests of its own, was taken for one that had lost its answers:
/// everything was sent again, and again for each probe.
#[test]
fn a_process_that_asks_and_answers_nobody_is_not_probed() {
    let mut world = Neighbours::new(|_| Fate::Drop);
    world.run_asked(world.write(), 100, 100);
    let a = world.pair.a.engine.counters();
    assert_eq!((a.probes, a.retransmitted_bytes), (0, 0));
    assert_eq!(a.rdma_recvs, 100);
}
