//! Captures of programs on the kernel's rxe: the messages of communication management in them have their names.

use std::path::Path;

use roce_wire::describe;
use roce_wire::pcap::Reader;

/// The lines of a capture's messages, from the payload on.
fn messages(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/pcaps/tools")
        .join(name);
    let file = std::fs::read(path).expect("a capture");
    let mut reader = Reader::new(&file[..]).expect("a capture");
    let mut lines = Vec::new();
    while let Some(record) = reader.next_record().expect("a sound capture") {
        let line = describe(record.link_type, record.data).to_string();
        if let Some((_, rest)) = line.split_once(" from qp 0x1, ") {
            lines.push(rest.to_owned());
        }
    }
    lines
}

#[test]
fn the_handshake_of_rping_is_named() {
    assert_eq!(
        messages("rping.pcap"),
        [
            "payload 256 (CM REQ tcp:7174 from 203.0.113.1), icrc valid",
            "payload 256 (CM REP), icrc valid",
            "payload 256 (CM RTU), icrc valid",
            "payload 256 (CM DREQ), icrc valid",
            "payload 256 (CM DREP), icrc valid",
        ]
    );
}

#[test]
fn the_question_of_udaddy_and_its_answer_are_named() {
    assert_eq!(
        messages("udaddy.pcap"),
        [
            "payload 256 (CM SIDR_REQ udp:7174 from 203.0.113.1), icrc valid",
            "payload 256 (CM SIDR_REP qp 0x25), icrc valid",
        ]
    );
}
