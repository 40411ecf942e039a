//! The requester.

use roce_wire::Syndrome;
use softroce_engine::SendOperation;
use verbs_api::{LKey, QpState, Sge, WcStatus};

use crate::node::Connection;
use crate::raw::Raw;

const SEND: SendOperation = SendOperation::Send { imm: None };

/// Charges of the window are lent for a while; a peer that says nothing used to be sent the whole queue, because the
/// loan of each new packet had run out before it was sent.
#[test]
fn a_peer_that_says_nothing_is_sent_little_more_than_a_window() {
    let mut raw = Raw::with(Connection {
        timeout: 20,
        ..Connection::default()
    });
    let sge = raw.node.sge(0, 1 << 20);
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    let first = raw.sent();
    let bytes: usize = first.iter().map(|packet| packet.bytes.len()).sum();
    assert!(bytes <= 64 << 10, "{bytes} bytes at once");
    let later = raw.pass(1_000_000_000);
    let bytes: usize = later.iter().map(|(_, packet)| packet.bytes.len()).sum();
    assert!(bytes <= 110 << 10, "{bytes} bytes more within a second");
    // It goes on as soon as the peer answers.
    raw.acknowledge(first.last().unwrap().psn(), Syndrome::ACK, 0);
    let again: usize = raw.sent().iter().map(|packet| packet.bytes.len()).sum();
    assert!(again > 32 << 10, "{again} bytes after an answer");
}

/// A lent window is as small for READ requests.
#[test]
fn a_peer_that_says_nothing_is_asked_for_little_more_than_the_read_budget() {
    let mut raw = Raw::with(Connection {
        timeout: 20,
        max_rd_atomic: 100,
        ..Connection::default()
    });
    let (sge, remote) = (raw.node.sge(0, 2 << 20), raw.node.remote(2 << 20));
    raw.node
        .post(raw.now, raw.qpn, 1, SendOperation::Read { remote }, &[sge]);
    let at_once = raw.sent().len();
    assert!((1..4).contains(&at_once), "{at_once} requests at once");
    let later = raw.pass(100_000_000).len();
    assert!(later <= 10, "{later} requests more within 100 ms");
}

/// Nothing asks the peer to acknowledge what went before in the same message, so that waiting for it was waiting for
/// a timeout, or for ever.
#[test]
fn a_request_whose_memory_fails_in_the_middle_fails_without_waiting_for_its_own_packets() {
    let mut raw = Raw::with(Connection {
        timeout: 0,
        ..Connection::default()
    });
    let bad = Sge {
        lkey: LKey(0xdead_be00),
        ..raw.node.sge(0, 10)
    };
    let (whole, half) = (raw.node.sge(0, 10), raw.node.sge(0, 2048));
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[whole]);
    raw.node.post(raw.now, raw.qpn, 2, SEND, &[half, bad]);
    raw.node.post(raw.now, raw.qpn, 3, SEND, &[whole]);
    let psns: Vec<u32> = raw.sent().iter().map(|packet| packet.psn()).collect();
    assert_eq!(psns, [0, 1, 2]);
    assert_eq!(raw.node.outcomes(), [], "the first request is not acknowledged");
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(
        raw.node.outcomes(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(raw.state(), QpState::Err);
}

/// Where nothing ever times out, an acknowledgement that was lost must be found out in another way.
#[test]
fn without_a_timeout_a_lost_acknowledgement_does_not_stop_the_queue_for_ever() {
    let mut raw = Raw::with(Connection {
        timeout: 0,
        ..Connection::default()
    });
    let sge = raw.node.sge(0, 1 << 20);
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.sent();
    let later = raw.pass(100_000_000);
    assert!(
        (5..=11).contains(&later.len()),
        "{} packets in 100 ms",
        later.len()
    );
    assert!(later.iter().all(|(_, packet)| packet.headers.bth.ack_request));
}
