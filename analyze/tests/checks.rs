//! Each check finds what it is for, names the right end and frame, and says nothing of the same story told well.

use std::net::IpAddr;

use crate::support::*;
use roce_analyze::{Ending, Options, Verdict};
use roce_wire::{Aeth, Msn, Opcode, Syndrome};

const SEND: Opcode = Opcode::RC_SEND_ONLY;
const SEQUENCE_ERROR: u8 = 0x60;
const REMOTE_ACCESS: u8 = 0x62;
/// An RNR NAK with a timer of 640 µs.
const NOT_READY: u8 = 0x20 | 0x0c;

#[track_caller]
fn silent(lines: &[Line]) {
    let report = analyze(lines);
    let findings: Vec<_> = report.findings().collect();
    assert!(findings.is_empty(), "{findings:#?}");
    assert!(
        report.connections.iter().all(|c| c.verdict == Verdict::Conforms),
        "{report}"
    );
}

/// Exactly one kind of finding: this requirement, by this end, decided by this frame.
#[track_caller]
fn finds(lines: &[Line], requirement: &str, by: std::net::Ipv4Addr, frame: u64) {
    let report = analyze(lines);
    let findings: Vec<_> = report.findings().collect();
    let [finding] = findings[..] else {
        panic!("expected one finding, {requirement}: {findings:#?}\n{report}")
    };
    let seen = (finding.requirement, finding.by.address, finding.frames.last());
    assert_eq!(seen, (requirement, IpAddr::V4(by), Some(&frame)), "{finding:#?}");
}

#[track_caller]
fn no_verdict(lines: &[Line], why: &str) {
    let report = analyze(lines);
    assert_eq!(report.findings().count(), 0, "{report}");
    let connection = &report.connections[0];
    assert_eq!(connection.verdict, Verdict::None, "{report}");
    assert!(
        connection.incomplete.iter().any(|reason| reason.contains(why)),
        "{report}"
    );
}

fn full() -> Vec<u8> {
    vec![7; MTU]
}

/// Three SENDs, all acknowledged.
fn story() -> Vec<Line> {
    vec![
        request(0, SEND, 0xff_ffff, b"one"),
        request(1, SEND, 0, b"two"),
        ack(10, 0, 2),
        request(20, SEND, 1, b"three"),
        ack(30, 1, 3),
    ]
}

#[test]
fn a_plain_story_has_no_findings_and_both_ends_by_name() {
    silent(&story());
    let report = analyze(&story());
    let [connection] = &report.connections[..] else {
        panic!("{report}")
    };
    let [forth, back] = &connection.directions;
    assert_eq!(forth.from.to_string(), "192.0.2.1 qp 0x11");
    assert_eq!(forth.to.to_string(), "192.0.2.2 qp 0x22");
    assert_eq!(
        (forth.counts.messages, forth.counts.acks, back.counts.requests),
        (3, 2, 0)
    );
    assert_eq!(forth.counts.answers_after.count(), 2);
}

#[test]
fn a_wrong_icrc_is_counted_and_an_answer_to_that_packet_alone_is_a_finding() {
    let mut lines = story();
    lines.insert(3, request(15, SEND, 1, b"three").spoilt());
    silent(&lines);
    lines.remove(4);
    finds(&lines, "CORRUPT-1", RESPONDER, 5);
}

#[test]
fn a_sender_whose_icrc_is_always_wrong_is_told() {
    let lines: Vec<Line> = (0..5)
        .map(|at| request(at, SEND, at as u32, b"x").spoilt())
        .collect();
    let report = analyze(&lines);
    assert_eq!(report.senders[0].findings[0].requirement, "ICRC-1");
}

#[test]
fn a_sender_that_never_sets_the_migrated_bit_is_told_and_one_that_does_once_is_not() {
    let armed = |at, psn| request_with(at, SEND, psn, b"x", |headers| headers.bth.migrated = false);
    let mut lines = vec![armed(0, 0), armed(1, 1), ack(9, 1, 2)];
    finds(&lines, "WIRE-5", REQUESTER, 1);
    lines.push(request(10, SEND, 2, b"x"));
    silent(&lines);
}

#[test]
fn lengths_padding_and_flags_of_a_single_packet_are_checked() {
    let with = |opcode, payload: &[u8], change: fn(&mut roce_wire::Headers)| {
        vec![request_with(0, opcode, 0, payload, change), ack(9, 0, 0)]
    };
    finds(
        &with(Opcode::RC_SEND_FIRST, &[0; 252], |_| ()),
        "LENGTH-2",
        REQUESTER,
        1,
    );
    finds(
        &with(Opcode::RC_READ_REQUEST, b"load", |h| {
            h.reth.as_mut().unwrap().dma_length = 0
        })[..1],
        "LENGTH-2",
        REQUESTER,
        1,
    );
    finds(&with(SEND, b"abc", |h| h.bth.pad = 0), "LENGTH-5", REQUESTER, 1);
    finds(
        &with(Opcode::RC_WRITE_ONLY, b"abcd", |h| h.bth.solicited = true),
        "WIRE-4",
        REQUESTER,
        1,
    );
    finds(
        &with(Opcode::RC_WRITE_ONLY, b"abcd", |h| {
            h.reth.as_mut().unwrap().dma_length = 5
        }),
        "LENGTH-3",
        REQUESTER,
        1,
    );
    finds(
        &with(Opcode::new(0x18), b"", |_| ())[..1],
        "OPSEQ-2",
        REQUESTER,
        1,
    );
}

#[test]
fn packets_of_a_message_are_checked_against_its_path_mtu_and_its_order() {
    let message = |middle: Opcode, len| {
        vec![
            request(0, Opcode::RC_SEND_FIRST, 0, &full()),
            request(1, middle, 1, &vec![1; len]),
            request(2, Opcode::RC_SEND_LAST, 2, b"end"),
            ack(9, 2, 1),
        ]
    };
    silent(&message(Opcode::RC_SEND_MIDDLE, MTU));
    finds(&message(Opcode::RC_SEND_MIDDLE, 512), "LENGTH-2", REQUESTER, 2);
    finds(
        &message(Opcode::RC_WRITE_MIDDLE, MTU)[..2],
        "OPSEQ-1",
        REQUESTER,
        2,
    );
    let lost_first = [
        request(0, SEND, 0, b"x"),
        request(1, Opcode::RC_SEND_LAST, 1, b"end"),
        ack(9, 1, 2),
    ];
    finds(&lost_first, "OPSEQ-1", REQUESTER, 2);
}

#[test]
fn psns_that_are_left_out_are_a_finding_at_their_sender_and_a_loss_elsewhere() {
    let lines = [
        request(0, SEND, 0, b"x"),
        request(1, SEND, 2, b"x"),
        nak(5, 1, 1, SEQUENCE_ERROR),
        request(9, SEND, 1, b"x"),
        request(9, SEND, 2, b"x"),
        ack(12, 2, 3),
    ];
    silent(&lines);
    let counts = &analyze(&lines).connections[0].directions[0].counts.clone();
    assert_eq!((counts.missing_requests, counts.sequence_naks), (1, 1));
    assert_eq!(counts.nak_generation.min_ns(), Some(4000));
    assert_eq!(counts.nak_reactions.min_ns(), Some(4000));
    finds(&lines.map(Line::sent), "WIRE-2", REQUESTER, 2);
}

#[test]
fn what_is_sent_again_must_be_the_same() {
    let again = |opcode, payload: &[u8]| {
        vec![
            request(0, SEND, 0, b"data"),
            request(500, opcode, 0, payload),
            ack(510, 0, 1),
        ]
    };
    silent(&again(SEND, b"data"));
    finds(&again(SEND, b"dato"), "RETRY-8", REQUESTER, 2);
    finds(&again(Opcode::RC_WRITE_ONLY, b"data"), "RETRY-8", REQUESTER, 2);
}

#[test]
fn going_back_behind_what_the_requester_knows_to_be_acknowledged_is_a_finding() {
    let back_to = |psn| {
        vec![
            request(0, SEND, 5, b"x"),
            request(1, SEND, 6, b"x"),
            request(2, SEND, 7, b"x"),
            ack(9, 6, 2).received(),
            request(50_000, SEND, psn, b"x"),
        ]
    };
    silent(&back_to(7));
    finds(&back_to(6), "LOSS-1", REQUESTER, 5);
}

#[test]
fn after_a_nak_all_is_sent_again_from_its_psn_on() {
    let lines = |rest: &[Line]| {
        let mut lines = vec![
            request(0, SEND, 0, b"x"),
            request(1, SEND, 1, b"x"),
            request(2, SEND, 2, b"x"),
            nak(5, 1, 1, SEQUENCE_ERROR),
            request(9, SEND, 1, b"x"),
        ];
        lines.extend_from_slice(rest);
        lines.into_iter().map(Line::sent).collect::<Vec<_>>()
    };
    silent(&lines(&[
        request(9, SEND, 2, b"x"),
        request(9, SEND, 3, b"x"),
        ack(15, 3, 4),
    ]));
    finds(&lines(&[request(9, SEND, 3, b"x")]), "LOSS-1", REQUESTER, 6);
}

#[test]
fn a_gap_is_told_once_with_the_psn_that_is_missing() {
    let lines = |more: Line| {
        vec![
            request(0, SEND, 0, b"x"),
            request(1, SEND, 1, b"x"),
            request(2, SEND, 2, b"x"),
            nak(5, 1, 1, SEQUENCE_ERROR),
            more,
        ]
    };
    silent(&lines(request(9, SEND, 1, b"x")));
    finds(&lines(nak(6, 1, 1, SEQUENCE_ERROR)), "NAK-1", RESPONDER, 5);
    // Nothing is behind the gap; and what is acknowledged is not missing.
    finds(
        &[request(0, SEND, 0, b"x"), nak(5, 0, 0, SEQUENCE_ERROR)],
        "NAK-1",
        RESPONDER,
        2,
    );
    let acknowledged = [
        request(0, SEND, 0, b"x"),
        request(1, SEND, 1, b"x"),
        ack(5, 0, 1),
        nak(6, 0, 1, SEQUENCE_ERROR),
    ];
    finds(&acknowledged, "NAK-1", RESPONDER, 4);
    // The newest came before what precedes it was sent again: the responder misses it, though nothing is behind it.
    silent(&[
        request(0, SEND, 0, b"x"),
        request(1, SEND, 1, b"x"),
        request(2, SEND, 2, b"x"),
        nak(5, 1, 1, SEQUENCE_ERROR),
        request(9, SEND, 1, b"x"),
        nak(12, 2, 2, SEQUENCE_ERROR),
    ]);
}

#[test]
fn acknowledgements_go_forward_and_count_messages() {
    let mut lines = story();
    lines.push(ack(40, 0, 3).sent());
    finds(&lines, "DUP-1", RESPONDER, 6);
    // Elsewhere two packets may have changed places.
    lines[5] = ack(40, 0, 2);
    silent(&lines);
    lines[5] = ack(40, 0, 4);
    finds(&lines, "DUP-1", RESPONDER, 6);
    let mut lines = story();
    lines[4] = ack(30, 1, 2);
    finds(&lines, "MSN-1", RESPONDER, 5);
    lines[4] = ack(30, 1, 4);
    finds(&lines, "MSN-1", RESPONDER, 5);
}

#[test]
fn an_rnr_nak_is_heeded_no_earlier_than_its_timer() {
    let lines = |again_us: u64| {
        vec![
            request(0, SEND, 0, b"x"),
            nak(10, 0, 0, NOT_READY),
            request(again_us, SEND, 0, b"x"),
            ack(again_us + 10, 0, 1),
        ]
    };
    silent(&lines(650));
    let waits = &analyze(&lines(650)).connections[0].directions[0]
        .counts
        .rnr_waits
        .clone();
    assert_eq!(waits.min_ns(), Some(640_000));
    finds(&lines(600), "RNR-2", REQUESTER, 3);
    // Sent before the NAK came.
    silent(&lines(30));
}

#[test]
fn while_a_receiver_is_not_ready_nothing_new_is_sent_and_nothing_else_answered() {
    let lines = |more: Line| vec![request(0, SEND, 0, b"x"), nak(10, 0, 0, NOT_READY), more];
    silent(&lines(request(12, SEND, 1, b"x")));
    finds(&lines(request(500, SEND, 1, b"x")), "RNR-6", REQUESTER, 3);
    finds(&lines(nak(12, 0, 0, NOT_READY)), "RNR-5", RESPONDER, 3);
    finds(&lines(nak(12, 0, 0, SEQUENCE_ERROR)), "RNR-5", RESPONDER, 3);
    let write = [
        request(0, Opcode::RC_WRITE_ONLY, 0, b"abcd"),
        nak(10, 0, 0, NOT_READY),
    ];
    finds(&write, "RNR-3", RESPONDER, 2);
}

#[test]
fn after_a_fatal_nak_there_is_silence() {
    let lines = |more: &[Line]| {
        let mut lines = vec![
            request(0, SEND, 0, b"x"),
            request(0, SEND, 1, b"x"),
            nak(10, 0, 0, REMOTE_ACCESS),
        ];
        lines.extend_from_slice(more);
        lines
    };
    silent(&lines(&[]));
    finds(&lines(&[ack(12, 1, 2)]), "NAK-4", RESPONDER, 4);
    // Another life of the queue pairs.
    silent(&lines(&[
        request(5000, SEND, 0x80_0000, b"x"),
        ack(5010, 0x80_0000, 1),
    ]));
}

fn read_answer(at_us: u64) -> [Line; 3] {
    [
        answer(at_us, Opcode::RC_READ_RESPONSE_FIRST, 8, 1, &full()),
        answer(at_us, Opcode::RC_READ_RESPONSE_MIDDLE, 9, 1, &full()),
        answer(at_us, Opcode::RC_READ_RESPONSE_LAST, 10, 1, b"end."),
    ]
}

#[test]
fn a_read_is_answered_by_exactly_what_it_asks_for() {
    let lines = |answers: Vec<Line>| [vec![read(0, 8, 0x1000, 516)], answers].concat();
    silent(&lines(read_answer(9).to_vec()));
    let [first, middle, last] = read_answer(9);
    let short = answer(9, Opcode::RC_READ_RESPONSE_LAST, 10, 1, b"en");
    finds(
        &lines(vec![first.clone(), middle.clone(), short]),
        "READ-1",
        RESPONDER,
        4,
    );
    let early = answer(9, Opcode::RC_READ_RESPONSE_LAST, 9, 1, b"end.");
    finds(&lines(vec![first.clone(), early]), "READ-2", RESPONDER, 3);
    // Only at its sender a missing response is one that was left out.
    silent(&lines(vec![first.clone(), last.clone()]));
    finds(&lines(vec![first.sent(), last.sent()]), "READ-2", RESPONDER, 3);
    finds(&lines(vec![ack(9, 8, 1), middle])[..2], "RESP-2", RESPONDER, 2);
}

#[test]
fn a_read_is_asked_for_again_from_the_first_missing_response_on() {
    let lines = |again: Line| {
        let [first, middle, last] = read_answer(9);
        vec![
            read(0, 8, 0x1000, 516),
            first.received(),
            again,
            middle.received(),
            last.received(),
        ]
    };
    silent(&lines(read(50_000, 9, 0x1100, 260)));
    finds(&lines(read(50_000, 9, 0x1000, 260))[..3], "LOSS-3", REQUESTER, 3);
    finds(&lines(read(50_000, 9, 0x1100, 261))[..3], "LOSS-3", REQUESTER, 3);
    // It has the first one.
    finds(&lines(read(50_000, 8, 0x1000, 516))[..3], "LOSS-3", REQUESTER, 3);
}

#[test]
fn an_atomic_that_comes_again_gets_the_same_answer() {
    let lines = |second| {
        let add = |at| request(at, Opcode::RC_FETCH_ADD, 3, &[]);
        vec![
            add(0),
            atomic_answer(9, 3, 1, 41),
            add(5000),
            atomic_answer(5009, 3, 1, second),
        ]
    };
    silent(&lines(41));
    finds(&lines(42), "DUP-3", RESPONDER, 4);
    let crooked = request_with(0, Opcode::RC_FETCH_ADD, 3, &[], |h| {
        h.atomic_eth.as_mut().unwrap().va = 0x1004
    });
    finds(&[crooked, atomic_answer(9, 3, 1, 41)], "ATOMIC-4", RESPONDER, 2);
}

#[test]
fn answers_come_in_order_and_fit_their_requests() {
    let overtaken = [read(0, 0, 0x1000, 4), request(0, SEND, 1, b"x"), ack(9, 1, 2)];
    silent(&overtaken);
    finds(&overtaken.map(Line::sent), "ORDER-2", RESPONDER, 3);
    finds(
        &[request(0, SEND, 0, b"x"), atomic_answer(9, 0, 1, 1)],
        "RESP-2",
        RESPONDER,
        2,
    );
    // A SEND that the network repeats is acknowledged with all that is done by then.
    silent(&[
        request(0, SEND, 0, b"x"),
        read(1, 1, 0x1000, 4),
        ack(8, 0, 1),
        answer(9, Opcode::RC_READ_RESPONSE_ONLY, 1, 2, b"data"),
        ack(12, 1, 2),
    ]);
    let ahead = [request(0, SEND, 0, b"x"), ack(8, 0, 1), ack(9, 1, 1)];
    finds(&ahead.map(Line::sent), "ACK-1", RESPONDER, 3);
}

#[test]
fn a_capture_that_lacks_packets_gives_no_verdict_and_the_reason() {
    let mut gap = story();
    gap.remove(1);
    no_verdict(&gap, "(gap)");
    no_verdict(&[request(0, SEND, 0, b"x")], "one direction only");
    no_verdict(&[ack(0, 0, 1)], "one direction only");
    let mut cut = story();
    cut[1] = cut[1].clone().cut_to(30);
    no_verdict(&cut, "snap length");
    let report = analyze_with(
        Options::default(),
        &story(),
        Ending {
            dropped: 3,
            damage: None,
        },
    );
    assert_eq!(report.connections[0].verdict, Verdict::None);
    assert!(
        report.connections[0].incomplete[0].contains("lost 3 packets"),
        "{report}"
    );
}

#[test]
fn a_cut_payload_leaves_all_other_checks() {
    let cut = |line: Line| line.cut_to(20 + 8 + 12 + 4);
    let mut lines = vec![cut(request(0, SEND, 0, &[1; 100])), ack(9, 0, 1)];
    silent(&lines);
    assert_eq!(analyze(&lines).connections[0].icrc_unknown, 1);
    lines.push(ack(10, 0, 2));
    finds(&lines, "MSN-1", RESPONDER, 3);
}

#[test]
fn a_finding_of_one_packet_holds_whatever_is_missing_and_one_of_a_sequence_does_not() {
    let mut lines = story();
    lines.remove(1);
    lines[2] = request_with(20, SEND, 1, b"abc", |headers| headers.bth.pad = 0);
    lines[3] = ack(30, 1, 9);
    let report = analyze(&lines);
    let findings: Vec<_> = report.findings().map(|finding| finding.requirement).collect();
    assert_eq!(findings, ["LENGTH-5"], "{report}");
    assert!(!report.connections[0].incomplete.is_empty());
}

#[test]
fn the_copy_of_a_packet_as_received_is_no_second_transmission() {
    let lines: Vec<Line> = story()
        .into_iter()
        .flat_map(|line| [line.clone().sent(), line.received()])
        .collect();
    silent(&lines);
    let report = analyze(&lines);
    assert_eq!((report.roce, report.copies), (10, 5));
    assert_eq!(report.connections[0].directions[0].counts.repeats, 0);
}

#[test]
fn an_address_says_at_which_end_a_capture_was_taken() {
    let lines = [request(0, SEND, 0, b"x"), request(1, SEND, 2, b"x")];
    let at_requester = Options {
        taken_at: vec![REQUESTER.into()],
    };
    let report = analyze_with(at_requester, &lines, Ending::default());
    assert_eq!(report.connections[0].withheld, 1, "{report}");
}

/// A congestion notification from the responder.
fn notification(at_us: u64) -> Line {
    packet(
        at_us,
        (RESPONDER, REQUESTER, REQUESTER_QP),
        Opcode::new(0x81),
        0,
        &[0; 16],
        |headers| {
            headers.bth.becn = true;
        },
    )
}

#[test]
fn a_congestion_notification_needs_a_packet_that_has_met_congestion() {
    let mut lines = story();
    lines.insert(1, notification(1));
    // Where the capture was taken nobody knows: the mark may have been made behind it.
    silent(&lines);
    let at_sender: Vec<Line> = lines.iter().cloned().map(Line::sent).collect();
    silent(&at_sender);
    let mut at_responder = vec![story()[0].clone().received(), notification(1).sent()];
    at_responder.extend(story().into_iter().skip(1).map(Line::sent));
    finds(&at_responder, "ECN-1", RESPONDER, 2);
    // One that was caused, and the next, which the same mark may have caused.
    let mut caused = vec![story()[0].clone().marked().received(), notification(1).sent()];
    caused.extend(story().into_iter().skip(1).map(Line::sent));
    caused.push(notification(60).sent());
    let report = analyze(&caused);
    assert_eq!(report.findings().count(), 0, "{report}");
    let counts = &report.connections[0].directions[0].counts;
    assert_eq!(
        (counts.congestion_marks, counts.notifications),
        (1, 2),
        "{report}"
    );
    assert_eq!(counts.notification_gaps.count(), 1, "{report}");
}

#[test]
fn an_unreliable_connection_is_checked_without_answers() {
    let lines = |ask: bool| {
        [request_with(0, Opcode::UC_SEND_ONLY, 0, b"x", |headers| {
            headers.bth.ack_request = ask
        })]
    };
    silent(&lines(false));
    finds(&lines(true), "UC-2", REQUESTER, 1);
    let loss = [
        request_with(0, Opcode::UC_SEND_FIRST, 0, &full(), |h| {
            h.bth.ack_request = false
        }),
        request_with(0, Opcode::UC_SEND_ONLY, 5, b"x", |h| h.bth.ack_request = false),
    ];
    silent(&loss);
}

#[test]
fn two_connections_with_the_same_psns_are_told_apart_by_who_asked_last() {
    let qp = |line: u32| (REQUESTER, RESPONDER, RESPONDER_QP + line);
    let back = |line: u32| (RESPONDER, REQUESTER, REQUESTER_QP + line);
    let mut lines = Vec::new();
    for round in 0..4_u32 {
        for line in 0..2 {
            let at = u64::from(round * 100 + line * 50);
            lines.push(packet(at, qp(line), SEND, round, b"x", |h| {
                h.bth.ack_request = true
            }));
            lines.push(packet(
                at + 10,
                back(line),
                Opcode::RC_ACKNOWLEDGE,
                round,
                &[],
                |h| {
                    h.aeth = Some(Aeth {
                        syndrome: Syndrome::ACK,
                        msn: Msn::new(round + 1),
                    });
                },
            ));
        }
    }
    silent(&lines);
    let report = analyze(&lines);
    let pairs: Vec<_> = report
        .connections
        .iter()
        .map(|c| (c.directions[0].from.qpn, c.directions[0].to.qpn))
        .collect();
    assert_eq!(pairs, [(Some(0x11), Some(0x22)), (Some(0x12), Some(0x23))]);
}
