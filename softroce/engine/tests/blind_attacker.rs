//! An attacker who sees nothing guesses in vain.
//!
//! The attacker can send packets with any source address and a valid ICRC, and knows everything about a connection but
//! one thing: the queue pair number, the PSN, or the address of the peer. Keys, memory addresses, lengths, path MTU and
//! what is outstanding he knows. Whatever he sends then, no memory is written, nothing completes, no event is raised,
//! no state changes (neither of the three sequence numbers nor the queue pair's), and at most one ACK or NAK a packet
//! leaves, to the true peer. Afterwards both directions of the connections work as if nothing had been.
//!
//! What an unknown PSN means. A request is executed when its PSN is exactly the one expected: one of 2^24. The half
//! before it are duplicates: they are acknowledged again, and execute nothing; a READ that was answered before is
//! answered again if key, address and length fit, to the true peer. The half after it tells of a loss: one NAK, then
//! silence until the expected one comes. A response counts when its PSN lies between the oldest unanswered and the last
//! one sent; all others are ghosts. So a guess is wrong when it is not the expected PSN (requests), or not within
//! what is outstanding (responses); the test draws uniformly from all wrong ones, and as often from those close by.
//! A PSN drawn blindly from all 2^24 would be right once in 16.8 million packets: this, and no more, is what the PSN
//! protects when all else is known.
//!
//! One million packets of each kind; `SOFTROCE_LONG_TESTS=1` makes it ten.

use std::net::{IpAddr, Ipv4Addr};

use roce_wire::icrc::{self, Flow};
use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Feth, FlushPlacement, FlushSelectivity, Headers, ICRC_LEN, Ieth,
    ImmDt, Msn, NakCode, Opcode, Psn, Qpn, RKey, ROCE_V2_PORT, Reth, RnrTimer, Syndrome, pad_len,
};
use softroce_engine::{Acks, RxMeta, SendOperation, Time};
use verbs_api::{Access, ErrorKind, MwType, QpAttr, RemoteAddr, WcStatus};

use crate::node::{BAD_RKEY, Connection, MEMORY_BYTES, Node};

const PEER: &str = "10.0.0.2";
const MTU_BYTES: usize = 1024;
/// First PSN that the peer sends; four requests follow before the attack.
const PEER_PSN: u32 = 0xff_fff0;
/// First PSN that the victim sends.
const OWN_PSN: u32 = 0x00_1000;
/// Packets of the victim's that have no answer yet, on either queue pair.
const OUTSTANDING_PSNS: u32 = 4;
/// Packets between two looks at the whole memory.
const LOOK_EVERY: usize = 50_000;
/// Where the attacked memory begins; below are the victim's own messages.
const TARGET_OFFSET: usize = 65_536;

/// What the attacker does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    QueuePair,
    Psn,
    PeerAddress,
}

/// Small and reproducible (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

/// A node with three connections: two in RTS with requests outstanding, one in RTR.
struct Victim {
    node: Node,
    now: Time,
    /// With SENDs outstanding, with a READ outstanding, in RTR.
    qpns: [u32; 3],
    /// Attributes, state and sequence numbers of each, as they were before the attack.
    before: [QpAttr; 3],
    memory: Vec<u8>,
    /// Key of a memory window that is bound through the first queue pair: a SEND may invalidate it.
    window: RKey,
}

/// Number that the victim's queue pair `index` sends to.
fn peer_qpn(index: usize) -> u32 {
    0x77_0000 + index as u32
}

impl Victim {
    fn new() -> Victim {
        let mut node = Node::new("10.0.0.1", 1);
        let now = Time::from_nanos(1_000);
        let connection = Connection {
            timeout: 0,
            first_psn: OWN_PSN,
            peer_first_psn: PEER_PSN,
            ..Connection::default()
        };
        let peer: IpAddr = PEER.parse().unwrap();
        let qpns = [0, 1, 2].map(|index| {
            let qpn = node.create_qp(&connection);
            node.enter_init(now, qpn, &connection);
            node.enter_rtr(now, qpn, peer, peer_qpn(index), &connection);
            if index < 2 {
                node.enter_rts(now, qpn, &connection);
            }
            let room = node.sge(32_768, 4 * MTU_BYTES);
            for wr_id in 0..4 {
                node.recv(now, qpn, wr_id, &[room]);
            }
            qpn
        });
        node.write(
            TARGET_OFFSET,
            &crate::node::pattern(MEMORY_BYTES - TARGET_OFFSET, 5),
        );
        let mut victim = Victim {
            node,
            now,
            qpns,
            before: Default::default(),
            memory: Vec::new(),
            window: RKey(0),
        };
        victim.converse();
        victim.bind_window();
        victim.leave_requests_outstanding();
        victim.before = qpns.map(|qpn| victim.node.engine.query_qp(qpn).unwrap());
        victim.memory = victim.node.read(0, MEMORY_BYTES);
        victim
    }

    /// The true peer sends a SEND, a READ and an atomic on each connection, so that there are answers to repeat.
    fn converse(&mut self) {
        for index in 0..self.qpns.len() {
            for (psn, opcode, payload_len) in [
                (0, Opcode::RC_SEND_ONLY, 16),
                (1, Opcode::RC_READ_REQUEST, 0),
                (3, Opcode::RC_FETCH_ADD, 0),
            ] {
                let mut forged = self.right_request(index, opcode, payload_len);
                forged.headers.bth.psn = Psn::new(PEER_PSN) + psn;
                if let Some(reth) = &mut forged.headers.reth {
                    reth.dma_length = 2 * MTU_BYTES as u32;
                }
                self.deliver(&forged);
                self.node.transmit(self.now, Acks::Flush);
            }
        }
        assert_eq!(self.node.completions().len(), self.qpns.len());
        while self.node.engine.poll_event().is_some() {}
    }

    fn bind_window(&mut self) {
        let (mw, rkey) = self.node.engine.alloc_mw(self.node.pd, MwType::Type2).unwrap();
        let bind = SendOperation::BindMw {
            mw,
            rkey,
            mr: self.node.mr.id,
            addr: self.node.address(TARGET_OFFSET),
            length: 4096,
            access: Access::REMOTE_WRITE,
        };
        self.node.post(self.now, self.qpns[0], 69, bind, &[]);
        assert!(self.node.transmit(self.now, Acks::Flush).is_empty());
        assert_eq!(self.node.outcomes(), [(69, WcStatus::Success)]);
        self.window = RKey(rkey.0);
    }

    fn leave_requests_outstanding(&mut self) {
        let len = OUTSTANDING_PSNS as usize * MTU_BYTES;
        let sge = self.node.sge(0, len);
        let remote = RemoteAddr {
            addr: 0x7000_0000,
            rkey: BAD_RKEY,
        };
        let [sender, reader, _] = self.qpns;
        self.node
            .post(self.now, sender, 70, SendOperation::Send { imm: None }, &[sge]);
        self.node
            .post(self.now, reader, 71, SendOperation::Read { remote }, &[sge]);
        assert_eq!(
            self.node.transmit(self.now, Acks::Flush).len(),
            OUTSTANDING_PSNS as usize + 1
        );
    }

    /// A request as the true peer would send it next.
    fn right_request(&self, index: usize, opcode: Opcode, payload_len: usize) -> Forged {
        let expected = self
            .node
            .engine
            .query_qp(self.qpns[index])
            .unwrap()
            .rq_psn
            .unwrap();
        self.right_packet(index, opcode, Psn::new(expected), payload_len)
    }

    /// Everything but the ICRC, right in each field.
    fn right_packet(&self, index: usize, opcode: Opcode, psn: Psn, payload_len: usize) -> Forged {
        let mut bth = Bth::new(opcode, Qpn::new(self.qpns[index]).unwrap(), psn);
        bth.ack_request = true;
        bth.pad = pad_len(payload_len);
        let mut headers = Headers::new(bth);
        let target = self.node.remote(TARGET_OFFSET);
        let rkey = RKey(target.rkey.0);
        headers.reth = Some(Reth {
            va: target.addr,
            rkey,
            dma_length: payload_len.max(8) as u32,
        });
        headers.atomic_eth = Some(AtomicEth {
            va: target.addr,
            rkey,
            swap_or_add: 1,
            compare: 0,
        });
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(1),
        });
        headers.atomic_ack = Some(AtomicAckEth {
            original: 0x6666_6666_6666_6666,
        });
        headers.immediate = Some(ImmDt([1, 2, 3, 4]));
        headers.invalidate = Some(Ieth(self.window));
        headers.feth = Some(Feth {
            placement: FlushPlacement::GLOBAL,
            selectivity: FlushSelectivity::RANGE,
        });
        // Only what the opcode has.
        let mut bytes = [0; roce_wire::MAX_HEADERS_LEN];
        let len = headers.emit(&mut bytes).unwrap();
        headers = Headers::parse(&bytes[..len]).unwrap().0;
        Forged {
            src: PEER.parse().unwrap(),
            headers,
            payload_len,
        }
    }

    fn deliver(&mut self, forged: &Forged) {
        self.now = self.now + 1_000;
        let mut bytes = [0x66; roce_wire::MAX_HEADERS_LEN + MTU_BYTES + 3 + ICRC_LEN];
        let headers_len = forged.headers.emit(&mut bytes).unwrap();
        let len = headers_len + forged.payload_len + usize::from(forged.headers.bth.pad) + ICRC_LEN;
        let bytes = &mut bytes[..len];
        let flow = Flow {
            src: forged.src,
            dst: self.node.ip,
            source_port: 0xc123,
            dest_port: ROCE_V2_PORT,
        };
        icrc::seal(&flow, 0, bytes);
        let meta = RxMeta {
            src: flow.src,
            dst: flow.dst,
            source_port: flow.source_port,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        self.node.engine.handle_datagram(self.now, &meta, bytes);
        if self.node.engine.poll_timeout().is_some_and(|due| due <= self.now) {
            self.node.engine.handle_timeout(self.now);
        }
    }

    /// Nothing has changed but what was answered. How many packets left.
    fn check_unharmed(&mut self, forged: &Forged, unknown: Unknown) -> usize {
        let answers = self.node.transmit(self.now, Acks::Flush);
        let mut acknowledgements = 0;
        for (meta, bytes) in &answers {
            let packet = roce_wire::parse(bytes).unwrap();
            let info = packet.headers.bth.opcode.info().unwrap();
            assert!(info.is_response(), "{packet} after {forged:?}");
            assert_eq!(
                meta.dst,
                PEER.parse::<IpAddr>().unwrap(),
                "{packet} after {forged:?}"
            );
            acknowledgements += usize::from(packet.headers.bth.opcode == Opcode::RC_ACKNOWLEDGE);
        }
        assert!(acknowledgements <= 1, "after {forged:?}");
        if unknown != Unknown::Psn {
            assert!(answers.is_empty(), "an answer to {forged:?}");
        }
        assert_eq!(self.node.ring.len(), 0, "a completion after {forged:?}");
        assert_eq!(self.node.engine.poll_event(), None, "an event after {forged:?}");
        for (qpn, before) in self.qpns.iter().zip(&self.before) {
            assert_eq!(
                self.node.engine.query_qp(*qpn).unwrap(),
                *before,
                "after {forged:?}"
            );
        }
        answers.len()
    }

    fn check_memory(&self) {
        assert!(
            self.node.read(0, MEMORY_BYTES) == self.memory,
            "memory was written"
        );
    }

    /// The true peer goes on, in both directions.
    fn check_alive(&mut self) {
        for index in 0..self.qpns.len() {
            let next = self.right_request(index, Opcode::RC_SEND_ONLY, 64);
            self.deliver(&next);
        }
        let next = Psn::new(OWN_PSN);
        let ack = self.right_packet(0, Opcode::RC_ACKNOWLEDGE, next + (OUTSTANDING_PSNS - 1), 0);
        self.deliver(&ack);
        for (at, opcode) in [
            Opcode::RC_READ_RESPONSE_FIRST,
            Opcode::RC_READ_RESPONSE_MIDDLE,
            Opcode::RC_READ_RESPONSE_MIDDLE,
            Opcode::RC_READ_RESPONSE_LAST,
        ]
        .into_iter()
        .enumerate()
        {
            let response = self.right_packet(1, opcode, next + at as u32, MTU_BYTES);
            self.deliver(&response);
        }
        let outcomes = self.node.outcomes();
        assert_eq!(outcomes.len(), 5, "{outcomes:?}");
        assert!(
            outcomes.iter().all(|(_, status)| *status == WcStatus::Success),
            "{outcomes:?}"
        );
        let busy = self.node.engine.dereg_mr(self.node.mr.id).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "the window was invalidated");
    }
}

/// A packet of the attacker's.
#[derive(Clone, Copy, Debug)]
struct Forged {
    src: IpAddr,
    headers: Headers,
    payload_len: usize,
}

/// The PSNs that are right for an opcode: the expected one, or those that are outstanding. First and count.
fn right_psns(attr: &QpAttr, opcode: Opcode) -> (Psn, u32) {
    if opcode.info().is_some_and(|info| info.is_response()) {
        (Psn::new(OWN_PSN), OUTSTANDING_PSNS)
    } else {
        (Psn::new(attr.rq_psn.unwrap()), 1)
    }
}

/// A length that the opcode permits.
fn right_payload_len(opcode: Opcode) -> usize {
    match opcode.info() {
        Some(info) if info.payload.allows(8, MTU_BYTES) => 8,
        Some(info) if info.payload.allows(MTU_BYTES, MTU_BYTES) => MTU_BYTES,
        Some(_) | None => 0,
    }
}

/// A packet that is right in all but what the attacker does not know.
fn forge(victim: &Victim, unknown: Unknown, random: &mut Random) -> Forged {
    let index = random.below(3) as usize;
    let opcode = Opcode::new(random.below(0x20) as u8);
    let (first_right, right_count) = right_psns(&victim.before[index], opcode);
    let right = first_right + random.below(right_count);
    let mut forged = victim.right_packet(index, opcode, right, right_payload_len(opcode));
    if let Some(aeth) = &mut forged.headers.aeth {
        aeth.syndrome = match random.below(6) {
            0 => Syndrome::Nak(NakCode::PsnSequence),
            1 => Syndrome::Nak(NakCode::RemoteAccess),
            2 => Syndrome::RnrNak(RnrTimer::new(random.below(32) as u8).unwrap()),
            _ => Syndrome::ACK,
        };
    }
    match unknown {
        Unknown::QueuePair => {
            let guess = random.below(1 << 24);
            let is_wrong = !victim.qpns.contains(&guess);
            forged.headers.bth.dest_qp = Qpn::new(if is_wrong { guess } else { 0 }).unwrap();
        }
        Unknown::Psn => forged.headers.bth.psn = wrong_psn(first_right, right_count, random),
        Unknown::PeerAddress => forged.src = wrong_address(victim, random),
    }
    forged
}

fn wrong_address(victim: &Victim, random: &mut Random) -> IpAddr {
    let guess = Ipv4Addr::from(random.next() as u32);
    let address = match random.below(4) {
        0 => Ipv4Addr::new(10, 0, 0, 3).into(),
        1 => victim.node.ip,
        2 => IpAddr::V6(guess.to_ipv6_compatible()),
        _ => IpAddr::V4(guess),
    };
    if address == PEER.parse::<IpAddr>().unwrap() {
        return Ipv4Addr::new(10, 0, 0, 4).into();
    }
    address
}

/// Anything but the `count` PSNs from `first` on: half of them close by.
fn wrong_psn(first: Psn, count: u32, random: &mut Random) -> Psn {
    let wrong = (1 << 24) - count;
    let offset = match random.below(4) {
        0 => random.below(64),
        1 => wrong - 1 - random.below(64),
        _ => random.below(wrong),
    };
    first + count + offset
}

fn attack(unknown: Unknown) {
    let packets = match std::env::var_os("SOFTROCE_LONG_TESTS") {
        Some(_) => 10_000_000,
        None => 1_000_000,
    };
    let mut victim = Victim::new();
    let mut random = Random(unknown as u64);
    let mut answers = 0;
    for number in 0..packets {
        let forged = forge(&victim, unknown, &mut random);
        victim.deliver(&forged);
        answers += victim.check_unharmed(&forged, unknown);
        if number % LOOK_EVERY == 0 {
            victim.check_memory();
        }
    }
    victim.check_memory();
    victim.check_alive();
    println!("{packets} packets with a wrong {unknown:?}: {answers} packets in answer");
}

/// So that the other tests mean something: only what is unknown protects.
#[test]
fn a_packet_with_nothing_wrong_has_an_effect_whatever_its_opcode() {
    for opcode in (0..0x20).map(Opcode::new) {
        let mut victim = Victim::new();
        let (psn, _) = right_psns(&victim.before[0], opcode);
        let forged = victim.right_packet(0, opcode, psn, right_payload_len(opcode));
        victim.deliver(&forged);
        victim.node.transmit(victim.now, Acks::Flush);
        let after = victim.node.engine.query_qp(victim.qpns[0]).unwrap();
        let is_acknowledgement = opcode == Opcode::RC_ACKNOWLEDGE;
        assert!(after != victim.before[0] || is_acknowledgement, "{opcode}");
    }
}

#[test]
fn a_packet_to_a_guessed_queue_pair_changes_nothing() {
    attack(Unknown::QueuePair);
}

#[test]
fn a_packet_with_a_guessed_psn_changes_nothing() {
    attack(Unknown::Psn);
}

#[test]
fn a_packet_from_a_guessed_address_changes_nothing() {
    attack(Unknown::PeerAddress);
}
