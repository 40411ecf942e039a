//! The requester: requests are posted, answers come, and packets are reported missing.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use roce_wire::{AtomicAckEth, NakCode, Opcode, Syndrome};
use verbs_api::{MemoryRegion, QueuePair, RKey, RemoteAddr, SendOp, SendWr, Sge, WcStatus};

use super::bench::{Bench, Ended, MTU, REGION, Sent, Settings, aeth, payload, step};

/// READs and atomics that the requester may have outstanding.
const DEPTH: usize = 3;
/// Packets outstanding: well below what a peer of which nothing is known yet may be sent at once.
const PACKETS: u32 = 12;
/// And after a loss, which makes the requester cautious.
const PACKETS_AFTER_LOSS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Post {
    Send(usize),
    Write(usize),
    /// Its length; the answer goes to the start of the region.
    Read(usize),
    Add(u64),
}

#[derive(Clone, Debug)]
pub enum Transition {
    Post(Post),
    /// The `n`th unanswered message, and all before it, is acknowledged.
    Acknowledge(usize),
    /// So many packets of those outstanding arrived, and the next did not.
    Missing(u32),
    /// The oldest unanswered READ or atomic, if nothing is before it, is answered whole.
    Answer,
    /// What was acknowledged before is acknowledged again.
    Stale,
    /// The `n`th unanswered message is refused.
    Refuse(usize, NakCode),
}

#[derive(Clone, Debug)]
struct Message {
    id: u64,
    post: Post,
    first: u32,
    packets: u32,
    /// Whether its packets have left.
    sent: bool,
}

impl Message {
    fn waits_for_answer(&self) -> bool {
        matches!(self.post, Post::Read(_) | Post::Add(_))
    }
}

#[derive(Clone, Debug)]
pub struct Requester {
    first_psn: u32,
    next_psn: u32,
    next_id: u64,
    messages: VecDeque<Message>,
    /// Packets of the oldest message that have arrived.
    arrived: u32,
    /// Sequence NAKs without progress.
    naks: u32,
    lost: bool,
    dead: bool,
    sent: Vec<Sent>,
    ended: Vec<Ended>,
}

impl Requester {
    /// Sends what may be sent: everything, but not past a READ or atomic that finds no room.
    fn send_more(&mut self) {
        let mut answers = self
            .messages
            .iter()
            .filter(|m| m.sent && m.waits_for_answer())
            .count();
        let mut packets = Vec::new();
        for message in self.messages.iter_mut().filter(|message| !message.sent) {
            if message.waits_for_answer() {
                if answers == DEPTH {
                    break;
                }
                answers += 1;
            }
            message.sent = true;
            packets.extend(packets_of(message, 0));
        }
        self.sent.extend(packets);
    }

    /// Completes the messages up to the `n`th, this one included.
    fn complete(&mut self, n: usize) {
        for message in self.messages.drain(..=n) {
            self.ended.push((message.id, WcStatus::Success));
        }
        self.arrived = 0;
        self.naks = 0;
    }

    /// How many messages from the front may be acknowledged by an ACK.
    fn acknowledgeable(&self) -> usize {
        let plain = self
            .messages
            .iter()
            .take_while(|m| m.sent && !m.waits_for_answer());
        plain.count()
    }

    /// Packets outstanding before the first READ or atomic: those that may be reported missing, with that request.
    fn reportable(&self) -> u32 {
        let plain: u32 = self
            .messages
            .iter()
            .take(self.acknowledgeable())
            .map(|m| m.packets)
            .sum();
        let next = self.messages.get(self.acknowledgeable()).is_some_and(|m| m.sent);
        plain + u32::from(next) - self.arrived
    }
}

/// How many packet numbers a request takes.
fn packets(post: &Post) -> u32 {
    match post {
        Post::Add(_) => 1,
        Post::Send(length) | Post::Write(length) | Post::Read(length) => length.div_ceil(MTU).max(1) as u32,
    }
}

/// The request packets of a message from its `from`th on.
fn packets_of(message: &Message, from: u32) -> Vec<Sent> {
    let plain = |opcode, psn, payload| Sent {
        opcode,
        psn,
        aeth: None,
        original: None,
        payload,
    };
    let (length, opcodes) = match message.post {
        Post::Read(_) => return vec![plain(Opcode::RC_READ_REQUEST, message.first, Vec::new())],
        Post::Add(_) => return vec![plain(Opcode::RC_FETCH_ADD, message.first, Vec::new())],
        Post::Send(length) => (
            length,
            [
                Opcode::RC_SEND_ONLY,
                Opcode::RC_SEND_FIRST,
                Opcode::RC_SEND_MIDDLE,
                Opcode::RC_SEND_LAST,
            ],
        ),
        Post::Write(length) => (
            length,
            [
                Opcode::RC_WRITE_ONLY,
                Opcode::RC_WRITE_FIRST,
                Opcode::RC_WRITE_MIDDLE,
                Opcode::RC_WRITE_LAST,
            ],
        ),
    };
    let bytes = payload(7, length);
    let last = message.packets - 1;
    (from..message.packets)
        .map(|n| {
            let opcode = match (n == 0, n == last) {
                (true, true) => opcodes[0],
                (true, false) => opcodes[1],
                (false, false) => opcodes[2],
                (false, true) => opcodes[3],
            };
            let (start, end) = (n as usize * MTU, length.min((n as usize + 1) * MTU));
            plain(opcode, step(message.first, n), bytes[start..end].to_vec())
        })
        .collect()
}

impl ReferenceStateMachine for Requester {
    type State = Requester;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Requester> {
        prop_oneof![Just(0), Just(0xff_fffa), Just(0x7f_fffe), 0..0x100_0000u32]
            .prop_map(|psn| Requester {
                first_psn: psn,
                next_psn: psn,
                next_id: 0,
                messages: VecDeque::new(),
                arrived: 0,
                naks: 0,
                lost: false,
                dead: false,
                sent: Vec::new(),
                ended: Vec::new(),
            })
            .boxed()
    }

    fn transitions(_state: &Requester) -> BoxedStrategy<Transition> {
        let length = || prop_oneof![0..4 * MTU, Just(0), Just(MTU), Just(2 * MTU)];
        let post = prop_oneof![
            3 => length().prop_map(Post::Send),
            3 => length().prop_map(Post::Write),
            2 => length().prop_map(Post::Read),
            1 => any::<u64>().prop_map(Post::Add),
        ];
        let code = prop_oneof![
            Just(NakCode::InvalidRequest),
            Just(NakCode::RemoteAccess),
            Just(NakCode::RemoteOperational)
        ];
        prop_oneof![
            12 => post.prop_map(Transition::Post),
            6 => (0..6usize).prop_map(Transition::Acknowledge),
            5 => (0..10u32).prop_map(Transition::Missing),
            8 => Just(Transition::Answer),
            2 => Just(Transition::Stale),
            1 => (0..4usize, code).prop_map(|(n, code)| Transition::Refuse(n, code)),
        ]
        .boxed()
    }

    fn preconditions(state: &Requester, transition: &Transition) -> bool {
        if state.dead {
            return matches!(transition, Transition::Post(_) | Transition::Stale);
        }
        match transition {
            Transition::Post(post) => {
                let outstanding: u32 = state.messages.iter().map(|message| message.packets).sum();
                let most = if state.lost { PACKETS_AFTER_LOSS } else { PACKETS };
                outstanding + packets(post) <= most
            }
            Transition::Acknowledge(n) => *n < state.acknowledgeable(),
            Transition::Missing(n) => {
                let outstanding: u32 = state.messages.iter().map(|message| message.packets).sum();
                // A responder tells of a gap once, so that the same number comes twice only by the network's doing.
                let again = *n == 0 && state.naks > 0;
                !again && *n < state.reportable() && outstanding <= PACKETS_AFTER_LOSS
            }
            Transition::Answer => state
                .messages
                .front()
                .is_some_and(|m| m.sent && m.waits_for_answer()),
            Transition::Stale => state.next_id > state.messages.len() as u64,
            Transition::Refuse(n, _) => *n < state.acknowledgeable(),
        }
    }

    fn apply(mut state: Requester, transition: &Transition) -> Requester {
        state.sent.clear();
        state.ended.clear();
        match transition {
            Transition::Post(post) => {
                let id = state.next_id;
                state.next_id += 1;
                if state.dead {
                    state.ended.push((id, WcStatus::WrFlushErr));
                    return state;
                }
                let packets = packets(post);
                state.messages.push_back(Message {
                    id,
                    post: post.clone(),
                    first: state.next_psn,
                    packets,
                    sent: false,
                });
                state.next_psn = step(state.next_psn, packets);
                state.send_more();
            }
            Transition::Acknowledge(n) => {
                state.complete(*n);
                state.send_more();
            }
            Transition::Answer => {
                state.complete(0);
                state.send_more();
            }
            Transition::Missing(n) => {
                state.lost = true;
                // Whole messages before the gap are done; the message with the gap goes on from there.
                let (mut left, mut whole) = (state.arrived + *n, 0);
                while state.messages[whole].packets <= left {
                    left -= state.messages[whole].packets;
                    whole += 1;
                }
                if whole > 0 {
                    state.complete(whole - 1);
                }
                if *n > 0 {
                    state.naks = 0;
                }
                state.arrived = left;
                state.naks += 1;
                let again: Vec<Sent> = state
                    .messages
                    .iter()
                    .filter(|message| message.sent)
                    .enumerate()
                    .flat_map(|(n, message)| packets_of(message, if n == 0 { left } else { 0 }))
                    .collect();
                state.sent = again;
                state.send_more();
            }
            Transition::Stale => {}
            Transition::Refuse(n, code) => {
                if *n > 0 {
                    state.complete(*n - 1);
                }
                let status = match code {
                    NakCode::InvalidRequest => WcStatus::RemInvReqErr,
                    NakCode::RemoteAccess => WcStatus::RemAccessErr,
                    _ => WcStatus::RemOpErr,
                };
                for (n, message) in state.messages.drain(..).enumerate() {
                    let status = if n == 0 { status } else { WcStatus::WrFlushErr };
                    state.ended.push((message.id, status));
                }
                state.dead = true;
            }
        }
        state
    }
}

struct Engine {
    bench: Bench,
    /// The model's messages before the step.
    before: Requester,
}

struct Test;

fn post(bench: &Bench, id: u64, post: &Post) {
    let remote = RemoteAddr {
        addr: 0x1_0000,
        rkey: RKey(0x42),
    };
    let (op, length) = match *post {
        Post::Send(length) => (SendOp::Send { imm: None }, length),
        Post::Write(length) => (SendOp::Write { remote, imm: None }, length),
        Post::Read(length) => (SendOp::Read { remote }, length),
        Post::Add(add) => (SendOp::FetchAdd { remote, add }, 8),
    };
    let is_answer = matches!(post, Post::Read(_) | Post::Add(_));
    // What is sent stands in the upper half, what is fetched goes to the lower one.
    let at = if is_answer { 0 } else { REGION / 2 };
    let sge = Sge {
        addr: bench.mr.addr() + at as u64,
        length: length as u32,
        lkey: bench.mr.lkey(),
    };
    bench.qp.post_send(&[SendWr::new(id, op, &[sge])]).unwrap();
}

fn acknowledge(bench: &mut Bench, psn: u32, syndrome: Syndrome) {
    bench.inject(Opcode::RC_ACKNOWLEDGE, psn, &[], |headers| {
        headers.aeth = aeth(syndrome, 0);
    });
}

fn answer(bench: &mut Bench, message: &Message) {
    let Post::Read(length) = message.post else {
        return bench.inject(Opcode::RC_ATOMIC_ACKNOWLEDGE, message.first, &[], |headers| {
            headers.aeth = aeth(Syndrome::ACK, 0);
            headers.atomic_ack = Some(AtomicAckEth { original: message.id });
        });
    };
    let bytes = payload(message.first, length);
    for n in 0..message.packets {
        let opcode = match (n == 0, n + 1 == message.packets) {
            (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
            (false, true) => Opcode::RC_READ_RESPONSE_LAST,
        };
        let (start, end) = (n as usize * MTU, length.min((n as usize + 1) * MTU));
        bench.inject(opcode, step(message.first, n), &bytes[start..end], |headers| {
            if opcode != Opcode::RC_READ_RESPONSE_MIDDLE {
                headers.aeth = aeth(Syndrome::ACK, 0);
            }
        });
    }
}

impl StateMachineTest for Test {
    type SystemUnderTest = Engine;
    type Reference = Requester;

    fn init_test(state: &Requester) -> Engine {
        let settings = Settings {
            sq_psn: state.first_psn,
            rq_psn: 0,
            rd_atomic: DEPTH as u8,
        };
        let bench = Bench::new(&settings);
        bench.buffer.write(REGION / 2, &payload(7, REGION / 2));
        Engine {
            bench,
            before: state.clone(),
        }
    }

    fn apply(mut engine: Engine, state: &Requester, transition: Transition) -> Engine {
        let (bench, before) = (&mut engine.bench, &engine.before);
        let last_of = |message: &Message| step(message.first, message.packets - 1);
        match &transition {
            Transition::Post(request) => post(bench, before.next_id, request),
            Transition::Acknowledge(n) => {
                acknowledge(bench, last_of(&before.messages[*n]), Syndrome::ACK);
            }
            Transition::Missing(n) => {
                let oldest = step(before.messages[0].first, before.arrived);
                acknowledge(bench, step(oldest, *n), Syndrome::Nak(NakCode::PsnSequence));
            }
            Transition::Answer => answer(bench, &before.messages[0]),
            Transition::Stale => {
                let oldest = before.messages.front().map_or(before.next_psn, |m| m.first);
                acknowledge(bench, step(oldest, 0xff_ffff), Syndrome::ACK);
            }
            Transition::Refuse(n, code) => {
                let arrived = if *n == 0 { before.arrived } else { 0 };
                let psn = step(before.messages[*n].first, arrived);
                acknowledge(bench, psn, Syndrome::Nak(*code));
            }
        }
        let (sent, ended) = bench.settle();
        assert_eq!(sent, state.sent, "packets after {transition:?}");
        assert_eq!(ended, state.ended, "completions after {transition:?}");
        if let (Transition::Answer, Some(message)) = (&transition, before.messages.front()) {
            match message.post {
                Post::Read(length) => {
                    let seen = bench.buffer.to_vec(0..length);
                    assert!(seen == payload(message.first, length), "bytes of {message:?}");
                }
                _ => assert_eq!(bench.buffer.load_u64(0), message.id, "old value of {message:?}"),
            }
        }
        engine.before = state.clone();
        engine
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_local_rejects: u32::MAX, ..ProptestConfig::default() })]

    #[test]
    fn the_requester_sends_as_its_model_does(sequential 1..60 => Test);
}
