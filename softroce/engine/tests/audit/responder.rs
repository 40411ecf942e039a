//! The responder and its memory.

use std::collections::BTreeSet;

use roce_wire::{Opcode, Syndrome};
use softroce_engine::Acks;

use crate::node::{Connection, MEMORY_BYTES};
use crate::raw::Raw;

const PSN: u32 = 0xab_cdef;

/// The answer that was dropped for the new READ used to be counted as owed for ever, and no acknowledgement may go
/// before one that is owed.
#[test]
fn a_read_that_displaces_a_repeated_one_leaves_later_acknowledgements_alone() {
    let mut raw = Raw::with(Connection {
        max_dest_rd_atomic: 1,
        ..Connection::default()
    });
    let (source, room) = (raw.node.remote(0), raw.node.sge(4096, 64));
    raw.node.recv(raw.now, raw.qpn, 1, &[room]);
    raw.read_request(PSN, source, 8);
    assert_eq!(raw.sent_one().psn(), PSN);
    // The copy and the next one arrive together.
    raw.read_request(PSN, source, 8);
    raw.read_request(PSN + 1, source, 8);
    let answer = raw.sent_one();
    assert_eq!(
        (answer.opcode(), answer.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN + 1)
    );
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 2, &[7; 64]);
    assert_eq!(raw.sent_one().ack(), (PSN + 2, Syndrome::ACK, 3));
}

/// The acknowledgement of the copy stays before the READ, and used to be taken for that of everything.
#[test]
fn a_late_copy_does_not_swallow_the_acknowledgement_of_what_came_since() {
    let mut raw = Raw::new();
    let (source, room) = (raw.node.remote(0), raw.node.sge(4096, 64));
    for wr_id in 0..2 {
        raw.node.recv(raw.now, raw.qpn, wr_id, &[room]);
    }
    raw.plain(Opcode::RC_SEND_ONLY, PSN, &[1; 64]);
    raw.read_request(PSN + 1, source, 8);
    raw.sent();
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 2, &[2; 64]);
    assert_eq!(raw.sent_with(Acks::Defer), []);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, &[1; 64]);
    let mut sent = raw.sent_with(Acks::Defer);
    sent.extend(raw.pass(100_000).into_iter().map(|(_, packet)| packet));
    let acks: Vec<u32> = sent.iter().map(|packet| packet.ack().0).collect();
    assert_eq!(acks.last(), Some(&(PSN + 2)), "{acks:x?}");
}

/// Sixty-four re-registrations used to bring a region's first key back.
#[test]
fn no_key_comes_back_within_a_thousand_re_registrations() {
    let mut raw = Raw::new();
    let mut info = raw.node.mr;
    let mut keys = BTreeSet::from([info.rkey.0]);
    for round in 0..1000 {
        let start = raw.node.address(0);
        let place = (start as *mut u8, MEMORY_BYTES, start);
        // SAFETY: the memory stays as it was registered, and so do the rights.
        info = unsafe { raw.node.engine.rereg_mr(info.id, None, Some(place), None) }.unwrap();
        assert!(keys.insert(info.rkey.0), "a key came back in round {round}");
    }
}
