//! The responder: requests come in, in order, too early, or again.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use roce_wire::{AtomicEth, NakCode, Opcode, RKey, Reth, RnrTimer, Syndrome};
use verbs_api::{LKey, MemoryRegion, QueuePair, RecvWr, Sge, WcStatus};

use super::bench::{Bench, Ended, MTU, REGION, Sent, Settings, payload, step};

/// READs and atomics that the responder remembers.
const REMEMBERED: usize = 16;
/// The receives' part of the region; each has its own slot.
const SLOT: usize = 512;

/// A request packet, whatever its number.
#[derive(Clone, Debug)]
pub enum Request {
    SendOnly(usize),
    SendFirst,
    SendMiddle,
    SendLast(usize),
    /// Offset and length.
    WriteOnly(usize, usize),
    /// Offset and announced length.
    WriteFirst(usize, usize),
    WriteMiddle,
    WriteLast(usize),
    Read(usize, usize),
    /// Offset (of a word) and addend.
    Add(usize, u64),
    Swap(usize, u64, u64),
}

#[derive(Clone, Debug)]
pub enum Transition {
    /// A receive of so many bytes.
    Receive(usize),
    /// A request so far ahead of what is expected, with the right key or a wrong one.
    Request(u32, Request, bool),
    /// The `n`th last of those that were served, again.
    Again(usize),
}

/// The message that is under way.
#[derive(Clone, Debug)]
enum UnderWay {
    Send {
        id: u64,
        room: usize,
        at: usize,
        length: usize,
    },
    Write {
        at: usize,
        left: usize,
    },
}

#[derive(Clone, Debug)]
enum Served {
    Simple,
    Read(usize, usize),
    Atomic(u64),
}

/// The model.
#[derive(Clone)]
pub struct Responder {
    first_psn: u32,
    expected: u32,
    msn: u32,
    memory: Vec<u8>,
    receives: VecDeque<(u64, usize)>,
    next_receive: u64,
    under_way: Option<UnderWay>,
    /// After a NAK nothing is said until the expected packet comes.
    silent: bool,
    dead: bool,
    /// With their requests and numbers.
    served: Vec<(u32, Request, Served)>,
    sent: Vec<Sent>,
    ended: Vec<Ended>,
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Responder from {}", self.first_psn)
    }
}

fn packets(length: usize) -> u32 {
    length.div_ceil(MTU).max(1) as u32
}

impl Responder {
    fn answer(&mut self, opcode: Opcode, psn: u32, syndrome: Syndrome) {
        self.sent.push(Sent {
            opcode,
            psn,
            aeth: Some((syndrome, self.msn)),
            original: None,
            payload: Vec::new(),
        });
    }

    fn acknowledge(&mut self) {
        let latest = step(self.expected, 0xff_ffff);
        self.answer(Opcode::RC_ACKNOWLEDGE, latest, Syndrome::ACK);
    }

    fn fail(&mut self, code: NakCode) {
        self.answer(Opcode::RC_ACKNOWLEDGE, self.expected, Syndrome::Nak(code));
        self.dead = true;
        // The receive that is in use fails for what its sender did, the others are flushed.
        if let Some(UnderWay::Send { id, .. }) = self.under_way.take() {
            self.ended.push((id, WcStatus::RemInvReqErr));
        }
        while let Some((id, _)) = self.receives.pop_front() {
            self.ended.push((id, WcStatus::WrFlushErr));
        }
    }

    fn done(&mut self) {
        self.msn = step(self.msn, 1);
        self.acknowledge();
    }

    fn serve(&mut self, request: &Request, right_key: bool) {
        use Request::*;
        let fits = match (&self.under_way, request) {
            (None, SendMiddle | SendLast(_) | WriteMiddle | WriteLast(_)) => false,
            (None, _) => true,
            (Some(UnderWay::Send { .. }), SendMiddle | SendLast(_)) => true,
            (Some(UnderWay::Write { .. }), WriteMiddle | WriteLast(_)) => true,
            (Some(_), _) => false,
        };
        if !fits {
            return self.fail(NakCode::InvalidRequest);
        }
        match *request {
            SendOnly(length) => self.send(length, true, true),
            SendFirst => self.send(MTU, true, false),
            SendMiddle => self.send(MTU, false, false),
            SendLast(length) => self.send(length, false, true),
            WriteOnly(at, length) => self.write_begins(at, length, length, right_key, true),
            WriteFirst(at, total) => self.write_begins(at, total, MTU, right_key, false),
            WriteMiddle => self.write_goes_on(MTU, false),
            WriteLast(length) => self.write_goes_on(length, true),
            Read(at, length) => self.read(at, length, right_key, request),
            Add(..) | Swap(..) => self.atomic(request, right_key),
        }
    }

    /// The packet was good.
    fn advance(&mut self, by: u32) {
        self.expected = step(self.expected, by);
        self.silent = false;
    }

    fn send(&mut self, length: usize, begins: bool, ends: bool) {
        if begins {
            let Some((id, room)) = self.receives.front().copied() else {
                let timer = RnrTimer::new(12).unwrap();
                self.answer(Opcode::RC_ACKNOWLEDGE, self.expected, Syndrome::RnrNak(timer));
                self.silent = true;
                return;
            };
            self.receives.pop_front();
            let at = slot(id);
            self.under_way = Some(UnderWay::Send {
                id,
                room,
                at,
                length: 0,
            });
        }
        let Some(UnderWay::Send {
            id,
            room,
            at,
            length: before,
        }) = self.under_way.take()
        else {
            unreachable!("the order of packets has been checked");
        };
        if before + length > room {
            self.ended.push((id, WcStatus::LocLenErr));
            return self.fail(NakCode::InvalidRequest);
        }
        let bytes = payload(self.expected, length);
        self.memory[at + before..at + before + length].copy_from_slice(&bytes);
        let psn = self.expected;
        self.advance(1);
        if ends {
            self.ended.push((id, WcStatus::Success));
            self.done();
            self.served.push((psn, Request::SendOnly(length), Served::Simple));
        } else {
            self.under_way = Some(UnderWay::Send {
                id,
                room,
                at,
                length: before + length,
            });
        }
    }

    fn allowed(&self, at: usize, length: usize, right_key: bool) -> bool {
        length == 0 || right_key && at + length <= REGION
    }

    fn write_begins(&mut self, at: usize, total: usize, length: usize, right_key: bool, ends: bool) {
        if !self.allowed(at, total, right_key) {
            return self.fail(NakCode::RemoteAccess);
        }
        self.under_way = Some(UnderWay::Write { at, left: total });
        self.write_goes_on(length, ends);
    }

    fn write_goes_on(&mut self, length: usize, ends: bool) {
        let Some(UnderWay::Write { at, left }) = self.under_way.take() else {
            unreachable!("the order of packets has been checked");
        };
        // The last packet brings exactly what is left, others leave something.
        if ends && length != left || !ends && length >= left {
            return self.fail(NakCode::InvalidRequest);
        }
        let bytes = payload(self.expected, length);
        if length > 0 {
            self.memory[at..at + length].copy_from_slice(&bytes);
        }
        let psn = self.expected;
        self.advance(1);
        if ends {
            self.done();
            self.served
                .push((psn, Request::WriteOnly(at, length), Served::Simple));
        } else {
            self.under_way = Some(UnderWay::Write {
                at: at + length,
                left: left - length,
            });
        }
    }

    fn respond(&mut self, psn: u32, at: usize, length: usize) {
        let count = packets(length);
        for n in 0..count {
            let (from, to) = (n as usize * MTU, length.min((n as usize + 1) * MTU));
            let (opcode, has_aeth) = match (n == 0, n + 1 == count) {
                (true, true) => (Opcode::RC_READ_RESPONSE_ONLY, true),
                (true, false) => (Opcode::RC_READ_RESPONSE_FIRST, true),
                (false, true) => (Opcode::RC_READ_RESPONSE_LAST, true),
                (false, false) => (Opcode::RC_READ_RESPONSE_MIDDLE, false),
            };
            self.sent.push(Sent {
                opcode,
                psn: step(psn, n),
                aeth: has_aeth.then_some((Syndrome::ACK, self.msn)),
                original: None,
                payload: if length == 0 {
                    Vec::new()
                } else {
                    self.memory[at + from..at + to].to_vec()
                },
            });
        }
    }

    fn read(&mut self, at: usize, length: usize, right_key: bool, request: &Request) {
        if !self.allowed(at, length, right_key) {
            return self.fail(NakCode::RemoteAccess);
        }
        let psn = self.expected;
        self.advance(packets(length));
        self.msn = step(self.msn, 1);
        self.respond(psn, at, length);
        self.served.push((psn, request.clone(), Served::Read(at, length)));
    }

    fn atomic(&mut self, request: &Request, right_key: bool) {
        let (Request::Add(at, _) | Request::Swap(at, ..)) = *request else {
            unreachable!("only atomics come here");
        };
        if !self.allowed(at, 8, right_key) {
            return self.fail(NakCode::RemoteAccess);
        }
        let word: [u8; 8] = self.memory[at..at + 8].try_into().unwrap();
        let old = u64::from_ne_bytes(word);
        let new = match *request {
            Request::Add(_, add) => old.wrapping_add(add),
            Request::Swap(_, compare, swap) if old == compare => swap,
            _ => old,
        };
        self.memory[at..at + 8].copy_from_slice(&new.to_ne_bytes());
        let psn = self.expected;
        self.advance(1);
        self.msn = step(self.msn, 1);
        self.atomic_answer(psn, old);
        self.served.push((psn, request.clone(), Served::Atomic(old)));
    }

    fn atomic_answer(&mut self, psn: u32, old: u64) {
        self.sent.push(Sent {
            opcode: Opcode::RC_ATOMIC_ACKNOWLEDGE,
            psn,
            aeth: Some((Syndrome::ACK, self.msn)),
            original: Some(old),
            payload: Vec::new(),
        });
    }

    fn again(&mut self, back: usize) {
        let at = self.served.len() - 1 - back;
        let (psn, _, served) = self.served[at].clone();
        match served {
            Served::Simple => {
                // A READ or atomic behind it is not acknowledged by it: its answer may have been lost too.
                let is_simple = |(.., served): &&(u32, Request, Served)| matches!(served, Served::Simple);
                let simple = self.served[at..].iter().take_while(is_simple);
                let latest = match simple.clone().count() == self.served.len() - at {
                    true => step(self.expected, 0xff_ffff),
                    false => simple.last().map_or(psn, |(psn, ..)| *psn),
                };
                self.answer(Opcode::RC_ACKNOWLEDGE, latest, Syndrome::ACK);
            }
            Served::Read(at, length) => self.respond(psn, at, length),
            Served::Atomic(old) => self.atomic_answer(psn, old),
        }
    }
}

/// Where the receive of this number has its memory.
fn slot(id: u64) -> usize {
    (id as usize * SLOT) % REGION
}

fn any_request() -> impl Strategy<Value = Request> {
    let length = || prop_oneof![0..=MTU, Just(0), Just(MTU)];
    let offset = || 0..REGION - 64;
    let word = || (0..REGION / 8 - 1).prop_map(|n| n * 8);
    prop_oneof![
        4 => length().prop_map(Request::SendOnly),
        3 => Just(Request::SendFirst),
        1 => Just(Request::SendMiddle),
        2 => (1..=MTU).prop_map(Request::SendLast),
        4 => (offset(), length()).prop_map(|(at, length)| Request::WriteOnly(at, length)),
        2 => (offset(), MTU + 1..3 * MTU).prop_map(|(at, total)| Request::WriteFirst(at, total)),
        1 => Just(Request::WriteMiddle),
        1 => (1..=MTU).prop_map(Request::WriteLast),
        4 => (offset(), 0..4 * MTU).prop_map(|(at, length)| Request::Read(at, length)),
        2 => (word(), any::<u64>()).prop_map(|(at, add)| Request::Add(at, add)),
        2 => (word(), 0..2u64, any::<u64>()).prop_map(|(at, compare, swap)| Request::Swap(at, compare, swap)),
    ]
}

impl ReferenceStateMachine for Responder {
    type State = Responder;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Responder> {
        prop_oneof![Just(0), Just(0xff_fffc), Just(0x7f_fffe), 0..0x100_0000u32]
            .prop_map(|psn| Responder {
                first_psn: psn,
                expected: psn,
                msn: 0,
                memory: vec![0; REGION],
                receives: VecDeque::new(),
                next_receive: 0,
                under_way: None,
                silent: false,
                dead: false,
                served: Vec::new(),
                sent: Vec::new(),
                ended: Vec::new(),
            })
            .boxed()
    }

    fn transitions(state: &Responder) -> BoxedStrategy<Transition> {
        // What goes on with the message that is under way is likelier than chance would have it.
        let next = match &state.under_way {
            None => any_request().boxed(),
            Some(UnderWay::Send { .. }) => {
                prop_oneof![Just(Request::SendMiddle), (1..=MTU).prop_map(Request::SendLast)].boxed()
            }
            Some(UnderWay::Write { left, .. }) if *left > MTU => Just(Request::WriteMiddle).boxed(),
            Some(UnderWay::Write { left, .. }) => Just(Request::WriteLast(*left)).boxed(),
        };
        let right_key = || prop_oneof![40 => Just(true), 1 => Just(false)];
        prop_oneof![
            4 => prop_oneof![Just(64usize), Just(300), Just(SLOT)].prop_map(Transition::Receive),
            12 => (next, right_key()).prop_map(|(request, key)| Transition::Request(0, request, key)),
            1 => (any_request(), right_key()).prop_map(|(request, key)| Transition::Request(0, request, key)),
            3 => (1..5u32, any_request()).prop_map(|(ahead, request)| Transition::Request(ahead, request, true)),
            4 => (0..8usize).prop_map(Transition::Again),
        ]
        .boxed()
    }

    fn preconditions(state: &Responder, transition: &Transition) -> bool {
        match transition {
            Transition::Receive(_) => !state.dead && state.receives.len() < 6,
            Transition::Request(..) => true,
            Transition::Again(back) => {
                let newer = state.served.iter().rev().take(back + 1);
                let remembered = newer
                    .filter(|(.., served)| !matches!(served, Served::Simple))
                    .count();
                *back < state.served.len() && remembered < REMEMBERED
            }
        }
    }

    fn apply(mut state: Responder, transition: &Transition) -> Responder {
        state.sent.clear();
        state.ended.clear();
        match transition {
            _ if state.dead => {}
            Transition::Receive(room) => {
                let id = state.next_receive;
                state.next_receive += 1;
                state.receives.push_back((id, *room));
            }
            Transition::Request(0, request, right_key) => state.serve(request, *right_key),
            Transition::Request(..) => {
                if !state.silent {
                    state.silent = true;
                    let gap = Syndrome::Nak(NakCode::PsnSequence);
                    state.answer(Opcode::RC_ACKNOWLEDGE, state.expected, gap);
                }
            }
            Transition::Again(back) => state.again(*back),
        }
        state
    }
}

struct Engine {
    bench: Bench,
    /// The expected number before the step, which the injected packet counts from.
    expected: u32,
    served: Vec<(u32, Request)>,
}

fn inject(bench: &mut Bench, psn: u32, request: &Request, right_key: bool) {
    use Request::*;
    let (base, rkey) = (bench.mr.addr(), bench.mr.rkey().0);
    let rkey = RKey(if right_key { rkey } else { rkey ^ 0x5500 });
    let reth = |at: usize, length: usize| {
        Some(Reth {
            va: base + at as u64,
            rkey,
            dma_length: length as u32,
        })
    };
    let atomic = |at: usize, swap_or_add: u64, compare: u64| {
        Some(AtomicEth {
            va: base + at as u64,
            rkey,
            swap_or_add,
            compare,
        })
    };
    let bytes = |length| payload(psn, length);
    match *request {
        SendOnly(length) => bench.inject(Opcode::RC_SEND_ONLY, psn, &bytes(length), |_| {}),
        SendFirst => bench.inject(Opcode::RC_SEND_FIRST, psn, &bytes(MTU), |_| {}),
        SendMiddle => bench.inject(Opcode::RC_SEND_MIDDLE, psn, &bytes(MTU), |_| {}),
        SendLast(length) => bench.inject(Opcode::RC_SEND_LAST, psn, &bytes(length), |_| {}),
        WriteOnly(at, length) => bench.inject(Opcode::RC_WRITE_ONLY, psn, &bytes(length), |headers| {
            headers.reth = reth(at, length);
        }),
        WriteFirst(at, total) => bench.inject(Opcode::RC_WRITE_FIRST, psn, &bytes(MTU), |headers| {
            headers.reth = reth(at, total);
        }),
        WriteMiddle => bench.inject(Opcode::RC_WRITE_MIDDLE, psn, &bytes(MTU), |_| {}),
        WriteLast(length) => bench.inject(Opcode::RC_WRITE_LAST, psn, &bytes(length), |_| {}),
        Read(at, length) => bench.inject(Opcode::RC_READ_REQUEST, psn, &[], |headers| {
            headers.reth = reth(at, length);
        }),
        Add(at, add) => bench.inject(Opcode::RC_FETCH_ADD, psn, &[], |headers| {
            headers.atomic_eth = atomic(at, add, 0);
        }),
        Swap(at, compare, swap) => bench.inject(Opcode::RC_COMPARE_SWAP, psn, &[], |headers| {
            headers.atomic_eth = atomic(at, swap, compare);
        }),
    }
}

struct Test;

impl StateMachineTest for Test {
    type SystemUnderTest = Engine;
    type Reference = Responder;

    fn init_test(state: &Responder) -> Engine {
        let settings = Settings {
            sq_psn: 0,
            rq_psn: state.first_psn,
            rd_atomic: REMEMBERED as u8,
        };
        Engine {
            bench: Bench::new(&settings),
            expected: state.first_psn,
            served: Vec::new(),
        }
    }

    fn apply(mut engine: Engine, state: &Responder, transition: Transition) -> Engine {
        let bench = &mut engine.bench;
        match &transition {
            Transition::Receive(room) => {
                let id = state.next_receive - 1;
                let sge = Sge {
                    addr: bench.mr.addr() + slot(id) as u64,
                    length: *room as u32,
                    lkey: LKey(bench.mr.lkey().0),
                };
                bench
                    .qp
                    .post_recv(&[RecvWr {
                        wr_id: id,
                        sges: &[sge],
                    }])
                    .unwrap();
            }
            Transition::Request(ahead, request, right_key) => {
                inject(bench, step(engine.expected, *ahead), request, *right_key);
            }
            Transition::Again(back) => {
                let (psn, request) = engine.served[engine.served.len() - 1 - back].clone();
                inject(bench, psn, &request, true);
            }
        }
        let (sent, ended) = bench.settle();
        assert_eq!(sent, state.sent, "packets after {transition:?}");
        assert_eq!(ended, state.ended, "completions after {transition:?}");
        assert!(
            bench.buffer.to_vec(0..REGION) == state.memory,
            "memory after {transition:?}"
        );
        engine.expected = state.expected;
        engine.served = state
            .served
            .iter()
            .map(|(psn, request, _)| (*psn, request.clone()))
            .collect();
        engine
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_local_rejects: u32::MAX, ..ProptestConfig::default() })]

    #[test]
    fn the_responder_answers_as_its_model_does(sequential 1..60 => Test);
}
