use std::sync::Arc;

use roce_wire::icrc::{self, Verdict};
use roce_wire::{
    Aeth, Bth, Headers, Msn, NakCode, Opcode, Packet, Psn, Qpn, RnrTimer, Syndrome, pad_len, parse,
};

use super::*;
use crate::forge::flow;
use crate::*;

fn way() -> Way {
    Way::between([127, 0, 0, 1].into(), [127, 0, 0, 2].into())
}

fn packet(opcode: Opcode, psn: u32, payload: usize) -> Vec<u8> {
    let mut headers = Headers::new(Bth::new(opcode, Qpn::new(0x11).unwrap(), Psn::new(psn)));
    headers.bth.pad = pad_len(payload);
    headers.aeth = Some(Aeth {
        syndrome: Syndrome::ACK,
        msn: Msn::new(4),
    });
    let payload = vec![7; payload];
    let pad = [0; 3];
    let packet = Packet {
        headers,
        payload: &payload,
        pad: &pad[..usize::from(headers.bth.pad)],
        icrc: [0; 4],
    };
    let mut bytes = vec![0; packet.wire_len()];
    packet.emit(&mut bytes).unwrap();
    crate::forge::seal(&way(), &mut bytes);
    bytes
}

struct Bench {
    injector: Injector,
    now_ns: u64,
}

impl Bench {
    fn new(rules: Rules) -> Bench {
        Bench {
            injector: Injector::new(Arc::new(rules), 1_000),
            now_ns: 1_000,
        }
    }

    fn of(when: When, action: Action) -> Bench {
        Bench::new(Rules::default().packet(Select::default(), when, action))
    }

    /// What goes on of a packet.
    fn pass(&mut self, bytes: &[u8]) -> Vec<Parcel> {
        let passage = Passage {
            now_ns: self.now_ns,
            direction: Direction::Out,
            way: way(),
            bytes,
        };
        let mut out = Vec::new();
        match self.injector.judge(&passage, &mut out) {
            Judgement::Changed => out,
            Judgement::Untouched => vec![Parcel {
                way: way(),
                bytes: bytes.to_vec(),
                delay_ns: 0,
                past: 0,
                overtaken_at_most_ns: 0,
            }],
        }
    }

    fn tally(&self) -> (u64, u64) {
        let tally = &self.injector.tallies()[0];
        (tally.matched, tally.hits)
    }
}

fn verdict(bytes: &[u8]) -> Verdict {
    icrc::verify(&flow(&way()), &[0], bytes)
}

#[test]
fn dropped_and_duplicated_packets_are_counted() {
    let sent = packet(Opcode::RC_SEND_ONLY, 1, 8);
    let mut bench = Bench::of(When::nth(2), Action::Drop);
    let arrived: Vec<usize> = (0..3).map(|_| bench.pass(&sent).len()).collect();
    assert_eq!((arrived, bench.tally()), (vec![1, 0, 1], (3, 1)));
    let mut bench = Bench::of(When::nth(1), Action::Duplicate(2));
    let parcels = bench.pass(&sent);
    assert!(parcels.len() == 3 && parcels.iter().all(|parcel| parcel.bytes == sent));
}

#[test]
fn a_bit_breaks_the_icrc_and_a_repaired_field_does_not() {
    let sent = packet(Opcode::RC_SEND_ONLY, 1, 8);
    for what in [Corruption::Icrc, Corruption::Bit(100), Corruption::AnyBit] {
        let icrc = Icrc::Broken;
        let parcels = Bench::of(When::default(), Action::Corrupt { what, icrc }).pass(&sent);
        assert_eq!(verdict(&parcels[0].bytes), Verdict::Invalid, "{what:?}");
    }
    let action = |icrc| Action::Corrupt {
        what: Corruption::Field(Field::Psn, Change::Add(5)),
        icrc,
    };
    let broken = Bench::of(When::default(), action(Icrc::Broken)).pass(&sent);
    assert_eq!(verdict(&broken[0].bytes), Verdict::Invalid);
    let repaired = Bench::of(When::default(), action(Icrc::Repaired)).pass(&sent);
    assert_eq!(verdict(&repaired[0].bytes), Verdict::Valid);
    assert_eq!(parse(&repaired[0].bytes).unwrap().headers.bth.psn, Psn::new(6));
}

#[test]
fn a_broken_icrc_is_explained_by_no_identification_whatever_the_length() {
    for payload in 0..300 {
        let action = Action::Corrupt {
            what: Corruption::Icrc,
            icrc: Icrc::Broken,
        };
        let sent = packet(Opcode::RC_SEND_ONLY, 1, payload);
        let parcels = Bench::of(When::default(), action).pass(&sent);
        assert_eq!(verdict(&parcels[0].bytes), Verdict::Invalid, "{payload}");
        assert_eq!(parcels[0].bytes[..sent.len() - 4], sent[..sent.len() - 4]);
    }
}

#[test]
fn a_field_that_a_packet_has_not_is_no_match() {
    let action = Action::Corrupt {
        what: Corruption::Field(Field::Syndrome, Change::Set(0x60)),
        icrc: Icrc::Repaired,
    };
    let mut bench = Bench::of(When::default(), action);
    bench.pass(&packet(Opcode::RC_SEND_ONLY, 1, 8));
    assert_eq!(bench.tally(), (0, 0));
    let parcels = bench.pass(&packet(Opcode::RC_ACKNOWLEDGE, 1, 0));
    let aeth = parse(&parcels[0].bytes).unwrap().headers.aeth.unwrap();
    assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(bench.tally(), (1, 1));
}

#[test]
fn a_truncated_packet_keeps_its_beginning() {
    let sent = packet(Opcode::RC_SEND_ONLY, 1, 64);
    for icrc in [Icrc::Broken, Icrc::Repaired] {
        let action = Action::Truncate { to_bytes: 24, icrc };
        let parcels = Bench::of(When::default(), action).pass(&sent);
        assert_eq!(
            (parcels[0].bytes.len(), &parcels[0].bytes[..20]),
            (24, &sent[..20])
        );
        assert_eq!(
            verdict(&parcels[0].bytes) == Verdict::Valid,
            icrc == Icrc::Repaired
        );
    }
    let action = Action::Truncate {
        to_bytes: 1,
        icrc: Icrc::Repaired,
    };
    assert_eq!(Bench::of(When::default(), action).pass(&sent)[0].bytes, sent[..1]);
}

#[test]
fn congestion_is_marked_delays_add_up_and_order_changes() {
    let rules = Rules::default()
        .packet(Select::default(), When::default(), Action::MarkCe)
        .packet(
            Select::default(),
            When::default(),
            Action::Delay {
                nanos: 5,
                jitter_ns: 0,
            },
        )
        .packet(
            Select::default(),
            When::default(),
            Action::Delay {
                nanos: 7,
                jitter_ns: 3,
            },
        )
        .packet(
            Select::default(),
            When::default(),
            Action::Reorder {
                past: 2,
                at_most_ns: 99,
            },
        );
    let parcels = Bench::new(rules).pass(&packet(Opcode::RC_SEND_ONLY, 1, 8));
    assert_eq!(parcels[0].way.traffic_class, 3);
    assert!(
        (12..=15).contains(&parcels[0].delay_ns),
        "{}",
        parcels[0].delay_ns
    );
    assert_eq!((parcels[0].past, parcels[0].overtaken_at_most_ns), (2, 99));
    assert_eq!(verdict(&parcels[0].bytes), Verdict::Valid);
}

#[test]
fn a_black_hole_swallows_all_that_matches_from_its_first_hit_until_its_time_is_over() {
    let sent = packet(Opcode::RC_SEND_ONLY, 1, 8);
    let action = |lasts_ns| Action::Blackhole { lasts_ns };
    let mut bench = Bench::of(When::nth(2), action(Some(100)));
    let mut arrived = Vec::new();
    for now_ns in [1_000, 1_010, 1_050, 1_109, 1_110, 1_111] {
        bench.now_ns = now_ns;
        arrived.push(bench.pass(&sent).len());
    }
    assert_eq!((arrived, bench.tally()), (vec![1, 0, 0, 0, 1, 1], (6, 3)));
    let mut bench = Bench::of(When::default(), action(None));
    assert!((0..5).all(|_| bench.pass(&sent).is_empty()));
}

#[test]
fn a_line_of_limited_rate_delays_and_then_drops() {
    let sent = packet(Opcode::RC_SEND_ONLY, 1, 18);
    // With the line's own headers 38 + 66 = 104 bytes: 832 ns at 1 Gbit/s.
    let mut bench = Bench::of(
        When::default(),
        Action::RateLimit {
            bits_per_second: 1_000_000_000,
            queue_bytes: 210,
        },
    );
    let delays: Vec<Option<u64>> = (0..4)
        .map(|_| bench.pass(&sent).first().map(|parcel| parcel.delay_ns))
        .collect();
    let taken = delays[0].unwrap();
    assert_eq!(sent.len(), 36);
    assert_eq!(taken, 8 * (36 + 66));
    assert_eq!(delays, [Some(taken), Some(2 * taken), Some(3 * taken), None]);
}

#[test]
fn injected_packets_answer_for_the_packet_that_is_hit() {
    let sent = packet(Opcode::RC_ACKNOWLEDGE, 9, 0);
    let inject = |packet, place, qpn| {
        let action = Action::Inject { packet, place, qpn };
        Bench::of(When::default(), action).pass(&sent)
    };
    let timer = RnrTimer::new(14).unwrap();
    for (forgery, psn, syndrome) in [
        (
            Forgery::Nak(NakCode::RemoteAccess),
            9,
            Syndrome::Nak(NakCode::RemoteAccess),
        ),
        (
            Forgery::Nak(NakCode::Reserved(30)),
            9,
            Syndrome::Nak(NakCode::Reserved(30)),
        ),
        (Forgery::Rnr(timer), 9, Syndrome::RnrNak(timer)),
        (Forgery::GhostAck { ahead: 50 }, 59, Syndrome::ACK),
    ] {
        let parcels = inject(forgery, Place::Before, None);
        assert_eq!(parcels.len(), 2);
        assert_eq!(parcels[1].bytes, sent);
        assert_eq!(verdict(&parcels[0].bytes), Verdict::Valid);
        let headers = parse(&parcels[0].bytes).unwrap().headers;
        let aeth = headers.aeth.unwrap();
        assert_eq!((headers.bth.psn, aeth.syndrome), (Psn::new(psn), syndrome));
        assert_eq!((headers.bth.dest_qp.value(), aeth.msn), (0x11, Msn::new(4)));
    }
    let parcels = inject(Forgery::Cnp, Place::Instead, Some(0x99));
    assert_eq!(parcels.len(), 1);
    let headers = parse(&parcels[0].bytes).unwrap().headers;
    assert_eq!(
        (headers.bth.opcode, headers.bth.dest_qp.value()),
        (Opcode::CNP, 0x99)
    );
    assert!(headers.bth.becn);
}

#[test]
fn a_stale_duplicate_is_what_matched_so_long_ago() {
    let mut bench = Bench::of(
        When::default(),
        Action::Inject {
            packet: Forgery::StaleDuplicate { age: 2 },
            place: Place::After,
            qpn: None,
        },
    );
    let psns: Vec<Vec<u32>> = (0..4)
        .map(|psn| {
            let parcels = bench.pass(&packet(Opcode::RC_SEND_ONLY, psn, 8));
            let psn = |parcel: &Parcel| parse(&parcel.bytes).unwrap().headers.bth.psn.value();
            parcels.iter().map(psn).collect()
        })
        .collect();
    assert_eq!(psns, [vec![0], vec![1], vec![2, 0], vec![3, 1]]);
    assert_eq!(bench.tally(), (2, 2));
}

#[test]
fn retransmissions_and_places_in_a_message_are_told_apart() {
    let select = |text: &str| {
        let text = format!("[[packet]]\n{text}\ndo = \"drop\"");
        Bench::new(Rules::parse(&text).unwrap())
    };
    let sent = [
        (Opcode::RC_SEND_FIRST, 5),
        (Opcode::RC_SEND_MIDDLE, 6),
        (Opcode::RC_SEND_LAST, 7),
        (Opcode::RC_SEND_MIDDLE, 6),
        (Opcode::RC_SEND_LAST, 7),
        (Opcode::RC_SEND_ONLY, 8),
    ];
    for (condition, lost) in [
        ("psn_in_message = 1", vec![1, 3]),
        ("transmission = 2", vec![3, 4]),
        ("psn_from_start = 2\ntransmission = 1", vec![2]),
        ("psn = 8", vec![5]),
        ("opcode = \"last\"\nnth = 2", vec![4]),
        ("direction = \"in\"", vec![]),
        ("peer = \"127.0.0.2\"\nopcode = \"first\"", vec![0]),
        ("peer = \"127.0.0.1\"", vec![]),
        ("qpn = 0x12", vec![]),
        ("size = \"-10\"", vec![]),
    ] {
        let mut bench = select(condition);
        let found: Vec<usize> = sent
            .iter()
            .enumerate()
            .filter(|(_, (opcode, psn))| bench.pass(&packet(*opcode, *psn, 16)).is_empty())
            .map(|(at, _)| at)
            .collect();
        assert_eq!(found, lost, "{condition}");
    }
}

#[test]
fn bytes_that_are_no_packet_match_only_what_asks_for_no_header() {
    for noise in [&[][..], &[0; 3], &[0xff; 60]] {
        assert!(Bench::of(When::default(), Action::Drop).pass(noise).is_empty());
        let select = Select::opcode(OpcodeSet::named("send").unwrap());
        let rules = Rules::default().packet(select, When::default(), Action::Drop);
        assert_eq!(Bench::new(rules).pass(noise).len(), 1);
        for action in [
            Action::Corrupt {
                what: Corruption::AnyBit,
                icrc: Icrc::Repaired,
            },
            Action::Corrupt {
                what: Corruption::Icrc,
                icrc: Icrc::Broken,
            },
        ] {
            Bench::of(When::default(), action).pass(noise);
        }
    }
}

#[test]
fn a_verb_fails_by_the_first_rule_that_hits_and_a_completion_too() {
    let rules = Rules::parse(
        "[[verb]]\ncall = \"reg_mr\"\nnth = 2\nerrno = \"ENOMEM\"\n\
         [[verb]]\ncall = \"any\"\nnth = 3\nerrno = \"EIO\"\n\
         [[completion]]\nof = \"receive\"\nqpn = 5\nnth = 2\nstatus = \"LOC_PROT_ERR\"\n",
    );
    let mut injector = Injector::new(Arc::new(rules.unwrap()), 0);
    let mut call = |verb| injector.verb(0, verb).map(|(errno, _)| errno);
    assert_eq!(call(Verb::RegMr), None);
    assert_eq!(call(Verb::CreateCq), None);
    assert_eq!(call(Verb::RegMr), Some(12));
    assert_eq!(call(Verb::RegMr), Some(5));
    assert_eq!(call(Verb::RegMr), None);
    assert_eq!(injector.completion(0, 5, Work::Receive), None);
    assert_eq!(injector.completion(0, 6, Work::Receive), None);
    assert_eq!(injector.completion(0, 5, Work::Send), None);
    assert_eq!(
        injector.completion(0, 5, Work::Receive),
        Some((WcStatus::LocProtErr, "completion 1"))
    );
    let hits: Vec<u64> = injector.tallies().iter().map(|tally| tally.hits).collect();
    assert_eq!(hits, [1, 1, 1]);
}

#[test]
fn events_come_at_their_times_and_end() {
    let rules = Rules::parse(
        "[[event]]\nat = \"2us\"\ndo = \"device-fatal\"\n\
         [[event]]\nat = \"1us\"\ndo = \"port-down\"\nfor = \"500ns\"\n",
    );
    let mut injector = Injector::new(Arc::new(rules.unwrap()), 100);
    assert_eq!(injector.next_event_ns(), Some(1_100));
    assert_eq!(injector.poll_event(1_099), None);
    assert_eq!(injector.due_rule(1_099), None);
    assert_eq!(injector.due_rule(1_100), Some("event 2"));
    let mut events = |now_ns| {
        std::iter::from_fn(|| injector.poll_event(now_ns))
            .map(|(event, _)| event)
            .collect::<Vec<_>>()
    };
    assert_eq!(events(1_100), [Event::PortDown]);
    assert_eq!(events(9_999), [Event::PortUp, Event::DeviceFatal]);
    assert_eq!(injector.next_event_ns(), None);
    let hits: Vec<u64> = injector.tallies().iter().map(|tally| tally.hits).collect();
    assert_eq!(hits, [1, 1]);
}
