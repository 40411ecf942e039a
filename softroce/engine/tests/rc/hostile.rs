//! Garbage, and attackers that do not know the connection.

use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Feth, FlushPlacement, FlushSelectivity, Headers, Ieth, ImmDt, Msn,
    Opcode, PKey, Psn, QKey, Qpn, RKey, Reth, Srqn, Syndrome, XrcEth,
};
use softroce_engine::SendOperation;
use verbs_api::{QpAttr, QpState};

use crate::node::Connection;
use crate::raw::{PEER_QPN, Raw};

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

/// Headers with all fields drawn, most of them near to something that means something.
fn draw(dice: &mut Dice, raw: &Raw) -> Headers {
    let opcode = Opcode::new(if dice.roll(8) == 0 {
        dice.roll(256)
    } else {
        dice.roll(0x20)
    } as u8);
    let psn = match dice.roll(4) {
        0 => dice.roll(1 << 24) as u32,
        1 => (dice.roll(20) as u32).wrapping_sub(5),
        _ => (0xab_cdef + dice.roll(12) as u32).wrapping_sub(3),
    };
    let mut headers = raw.headers(opcode, psn);
    let bth = &mut headers.bth;
    bth.psn = Psn::new(psn);
    bth.pad = dice.roll(4) as u8;
    bth.ack_request = dice.roll(2) == 0;
    bth.solicited = dice.roll(2) == 0;
    if dice.roll(20) == 0 {
        bth.dest_qp = Qpn::new(dice.roll(16) as u32).unwrap();
    }
    if dice.roll(20) == 0 {
        bth.pkey = PKey(dice.roll(1 << 16) as u16);
    }
    let va = raw
        .node
        .address(0)
        .wrapping_add(dice.roll(1 << 23))
        .wrapping_sub(1 << 20);
    let rkey = RKey(if dice.roll(3) == 0 {
        dice.roll(1 << 32) as u32
    } else {
        raw.node.mr.rkey.0
    });
    let dma_length = if dice.roll(4) == 0 {
        dice.roll(1 << 32)
    } else {
        dice.roll(4096)
    } as u32;
    headers.feth = Some(Feth {
        placement: FlushPlacement::new(dice.roll(6) as u8),
        selectivity: FlushSelectivity::new(dice.roll(3) as u8),
    });
    headers.reth = Some(Reth { va, rkey, dma_length });
    headers.atomic_eth = Some(AtomicEth {
        va,
        rkey,
        swap_or_add: dice.roll(99),
        compare: dice.roll(2),
    });
    headers.aeth = Some(Aeth {
        syndrome: Syndrome::new(dice.roll(256) as u8),
        msn: Msn::new(dice.roll(99) as u32),
    });
    headers.atomic_ack = Some(AtomicAckEth {
        original: dice.roll(99),
    });
    headers.immediate = Some(ImmDt([1, 2, 3, 4]));
    headers.invalidate = Some(Ieth(rkey));
    headers.deth = Some(Deth {
        qkey: QKey(1),
        source_qp: Qpn::GSI,
    });
    headers.xrceth = Some(XrcEth {
        srq: Srqn::new(1).unwrap(),
    });
    headers
}

fn payload_len(dice: &mut Dice) -> usize {
    match dice.roll(4) {
        0 => 1024,
        1 => 0,
        _ => dice.roll(1100) as usize,
    }
}

/// Bring the queue pair to a state, with work outstanding where the state allows it.
fn bench(state: QpState) -> Raw {
    let connection = Connection {
        retry_cnt: 7,
        rnr_retry: 7,
        ..Connection::default()
    };
    let mut raw = Raw::in_init(&connection);
    let (now, qpn, peer) = (raw.now, raw.qpn, raw.meta.src);
    if state == QpState::Reset {
        raw.node.modify(
            now,
            qpn,
            QpAttr {
                state: Some(QpState::Reset),
                ..QpAttr::default()
            },
        );
    }
    if state == QpState::Reset || state == QpState::Init {
        return raw;
    }
    raw.node.enter_rtr(now, qpn, peer, PEER_QPN, &connection);
    for wr_id in 0..4 {
        let sge = raw.node.sge(65_536, 1500);
        raw.node.recv(now, qpn, wr_id, &[sge]);
    }
    if state == QpState::Rtr {
        return raw;
    }
    raw.node.enter_rts(now, qpn, &connection);
    let sge = raw.node.sge(0, 3000);
    let word = raw.node.sge(0, 8);
    let remote = raw.node.remote(0);
    raw.node
        .post(now, qpn, 1, SendOperation::Send { imm: None }, &[sge]);
    raw.node.post(now, qpn, 2, SendOperation::Read { remote }, &[sge]);
    raw.node
        .post(now, qpn, 3, SendOperation::FetchAdd { remote, add: 1 }, &[word]);
    raw.node
        .post(now, qpn, 4, SendOperation::Write { remote, imm: Some(1) }, &[sge]);
    raw.sent();
    if state != QpState::Rts {
        raw.node.modify(
            now,
            qpn,
            QpAttr {
                state: Some(state),
                ..QpAttr::default()
            },
        );
    }
    raw
}

#[test]
fn drawn_packets_in_all_states_never_panic_and_never_get_more_than_a_bounded_answer() {
    for state in [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Err,
    ] {
        for seed in 1..60 {
            let mut dice = Dice(seed * 0x9e37_79b9 + 7);
            let mut raw = bench(state);
            for _ in 0..60 {
                let headers = draw(&mut dice, &raw);
                let len = payload_len(&mut dice);
                let bytes = raw.packet_as_is(headers, &vec![0xaa; len]);
                raw.inject_bytes(&bytes);
                if dice.roll(3) == 0 {
                    raw.sent();
                }
                if dice.roll(10) == 0 {
                    raw.pass(dice.roll(200_000_000));
                }
            }
            raw.pass(1 << 33);
        }
    }
}

#[test]
fn random_bytes_are_dropped() {
    let mut dice = Dice(99);
    let mut raw = bench(QpState::Rts);
    for _ in 0..20_000 {
        let len = dice.roll(120) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
        raw.inject_bytes(&bytes);
    }
    raw.assert_silent();
    assert_eq!(raw.node.engine.counters().rcvd_pkts, 0);
}

#[test]
fn an_attacker_without_the_peers_address_changes_nothing() {
    let mut dice = Dice(5);
    let mut raw = bench(QpState::Rts);
    raw.node.completions();
    let own = raw.meta;
    raw.meta.src = "10.0.0.66".parse().unwrap();
    for _ in 0..20_000 {
        let headers = draw(&mut dice, &raw);
        let len = payload_len(&mut dice);
        let bytes = raw.packet_as_is(headers, &vec![0xaa; len]);
        raw.inject_bytes(&bytes);
    }
    raw.meta = own;
    raw.assert_silent();
    assert_eq!(raw.node.read(0, 1 << 20), vec![0; 1 << 20]);
    assert_eq!((raw.node.completions(), raw.node.qp_events()), (vec![], vec![]));
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn an_attacker_without_the_psn_gets_at_most_one_answer_a_packet_and_changes_nothing() {
    let mut dice = Dice(6);
    let mut raw = bench(QpState::Rts);
    for round in 0..20_000 {
        let mut headers = draw(&mut dice, &raw);
        headers.bth.pkey = PKey::DEFAULT;
        headers.bth.dest_qp = Qpn::new(raw.qpn).unwrap();
        // Anywhere but at the one PSN that the responder expects and the few that the requester waits for.
        headers.bth.psn = Psn::new(0x10_0000 + dice.roll(0x80_0000) as u32);
        if headers.bth.psn == Psn::new(0xab_cdef) {
            continue;
        }
        let len = payload_len(&mut dice);
        let bytes = raw.packet_as_is(headers, &vec![0xaa; len]);
        raw.inject_bytes(&bytes);
        let answers = raw.sent().len();
        assert!(answers <= 1, "round {round}: {answers} answers");
    }
    assert_eq!(raw.node.read(0, 1 << 20), vec![0; 1 << 20]);
    assert_eq!((raw.node.completions(), raw.node.qp_events()), (vec![], vec![]));
    assert_eq!(raw.state(), QpState::Rts);
}
