//! Random conversations over a bad wire: everything completes in order, once, with the right bytes.

use roce_wire::Psn;
use softroce_engine::{Acks, SendOperation, Time};
use verbs_api::{Mtu, QpState, SendFlags, WcStatus};

use crate::node::{Connection, Node, pattern};
use crate::pair::{Fate, Pair};

/// A small generator (xorshift*), so that a seed tells the whole story.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

const REQUESTS: usize = 24;
/// Memory of each side: words for atomics first, then a place a request, at A and at B.
const PLACE_BYTES: usize = 40 << 10;
const PLACES_AT: usize = 4096;

fn place(request: usize) -> usize {
    PLACES_AT + request * PLACE_BYTES
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    Add,
}

fn converse(seed: u64) {
    let mut dice = Dice::new(seed);
    let connection = Connection {
        mtu: [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096][dice.roll(3) as usize],
        timeout: 8,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1 + dice.roll(8) as u8,
        max_rd_atomic: 1 + dice.roll(4) as u8,
        max_dest_rd_atomic: 4,
        first_psn: (Psn::new(0).value().wrapping_sub(dice.roll(40) as u32)) & 0xff_ffff,
        ..Connection::default()
    };
    let window = [0, 8 << 10, 64 << 10][dice.roll(3) as usize];
    let receive_buffer = [16 << 10, 64 << 10, 212_992][dice.roll(3) as usize];
    let mut pair = Pair::unconnected(
        Node::with_window("10.0.0.1", seed, receive_buffer, window),
        Node::with_window("10.0.0.2", !seed, receive_buffer, window),
        &connection,
    );
    pair.connect(&connection);
    pair.acks = if dice.roll(2) == 0 {
        Acks::Defer
    } else {
        Acks::Flush
    };
    let trouble = [0, 2, 5][dice.roll(3) as usize];
    let mut fate = dice.clone();
    pair.rule = Box::new(move |_| {
        if fate.roll(100) >= trouble * 3 {
            return Fate::Pass;
        }
        match fate.roll(4) {
            0 => Fate::Drop,
            1 => Fate::Twice,
            2 => Fate::Late(fate.roll(40_000)),
            _ => Fate::Late(fate.roll(1_000_000)),
        }
    });
    let mut kinds = Vec::new();
    let (mut posted, mut received, mut sum) = (0, 0, 0u64);
    let mut done = Vec::new();
    let mut lengths = Vec::new();
    while done.len() < REQUESTS {
        while posted < REQUESTS && dice.roll(3) != 0 {
            let kind =
                [Kind::Send, Kind::Write, Kind::WriteImm, Kind::Read, Kind::Add][dice.roll(5) as usize];
            let length = match (kind, dice.roll(3)) {
                (Kind::Add, _) => 8,
                (_, 0) => dice.roll(64) as usize,
                (_, 1) => dice.roll(3 * 1024) as usize,
                _ => dice.roll(PLACE_BYTES as u64) as usize,
            };
            post(&mut pair, &mut dice, posted, kind, length);
            sum += if kind == Kind::Add { posted as u64 + 1 } else { 0 };
            kinds.push(kind);
            lengths.push(length);
            posted += 1;
        }
        // Receives come in time, or late.
        let consuming: Vec<usize> = (0..posted)
            .filter(|request| matches!(kinds[*request], Kind::Send | Kind::WriteImm))
            .collect();
        while received < consuming.len() && dice.roll(2) == 0 {
            let request = consuming[received];
            let room = pair.b.sge(place(request), lengths[request]);
            pair.b.recv(pair.now, pair.qb, request as u64, &[room]);
            received += 1;
        }
        let pause = dice.roll(300_000);
        pair.run_until(pair.now + pause);
        done.extend(pair.a.completions());
        assert!(
            pair.now < Time::from_nanos(20_000_000_000),
            "seed {seed}: stuck with {} of {posted}",
            done.len()
        );
    }
    check(&mut pair, seed, &done, &kinds, &lengths, sum);
}

fn post(pair: &mut Pair, dice: &mut Dice, request: usize, kind: Kind, length: usize) {
    let at = place(request);
    let bytes = pattern(length, request + 1);
    let remote = pair.b.remote(at);
    let word = pair.b.remote(0);
    let op = match kind {
        Kind::Send => SendOperation::Send { imm: None },
        Kind::Write => SendOperation::Write { remote, imm: None },
        Kind::WriteImm => SendOperation::Write {
            remote,
            imm: Some(request as u32),
        },
        Kind::Read => SendOperation::Read { remote },
        Kind::Add => SendOperation::FetchAdd {
            remote: word,
            add: request as u64 + 1,
        },
    };
    match kind {
        Kind::Send | Kind::Write | Kind::WriteImm => pair.a.write(at, &bytes),
        Kind::Read => pair.b.write(at, &bytes),
        Kind::Add => {}
    }
    let mut flags = SendFlags::SIGNALED;
    if dice.roll(4) == 0 {
        flags |= SendFlags::FENCE;
    }
    let sge = pair.a.sge(at, length);
    pair.a
        .post_with(pair.now, pair.qa, request as u64, op, &[sge], flags);
}

fn check(pair: &mut Pair, seed: u64, done: &[verbs_api::Wc], kinds: &[Kind], lengths: &[usize], sum: u64) {
    let mut before = 0;
    for (request, wc) in done.iter().enumerate() {
        assert_eq!(
            (wc.wr_id, wc.status),
            (request as u64, WcStatus::Success),
            "seed {seed}"
        );
        let (at, length) = (place(request), lengths[request]);
        let expected = pattern(length, request + 1);
        match kinds[request] {
            Kind::Send | Kind::Write | Kind::WriteImm => {
                assert!(
                    pair.b.read(at, length) == expected,
                    "seed {seed}: bytes of request {request}"
                );
            }
            Kind::Read => {
                assert!(
                    pair.a.read(at, length) == expected,
                    "seed {seed}: bytes of READ {request}"
                );
            }
            Kind::Add => {
                let original = u64::from_ne_bytes(pair.a.read(at, 8).try_into().unwrap());
                assert_eq!(original, before, "seed {seed}: atomic {request}");
                before += request as u64 + 1;
            }
        }
    }
    let word = u64::from_ne_bytes(pair.b.read(0, 8).try_into().unwrap());
    assert_eq!(word, sum, "seed {seed}: atomics ran once");
    let receives: Vec<u64> = pair.b.completions().iter().map(|wc| wc.wr_id).collect();
    let consuming: Vec<u64> = (0..REQUESTS as u64)
        .filter(|request| matches!(kinds[*request as usize], Kind::Send | Kind::WriteImm))
        .collect();
    assert_eq!(receives, consuming, "seed {seed}");
    assert_eq!(pair.a.state(pair.qa), QpState::Rts);
    // Nothing is left on the way, and nothing stays charged.
    pair.rule = Box::new(|_| Fate::Pass);
    pair.run();
    let peer = pair.b.ip;
    assert_eq!(
        pair.a.engine.window(peer).map(|(in_flight, _)| in_flight),
        Some(0),
        "seed {seed}"
    );
}

#[test]
fn random_conversations_over_a_bad_wire_end_well() {
    let seeds = std::env::var("SWARM_SEEDS").map_or(120, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        converse(seed);
    }
}
