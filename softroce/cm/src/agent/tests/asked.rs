//! What one address may take of an agent.

use super::super::asked::SHARE_MAX;
use super::*;

fn stranger(last: u8) -> Peer {
    Peer {
        address: [198, 51, 100, last].into(),
        ..peer_of(1)
    }
}

/// A right question about the service, with this number.
fn question_of(from: &Peer, number: u32) -> Message {
    let ip = IpCm {
        source: (from.address, 40_000).into(),
        destination: address(1),
    };
    let mut req = SidrReq {
        request_id: number,
        ..question()
    };
    req.private_data[..36].copy_from_slice(&ip.to_bytes());
    Message::SidrReq(req)
}

fn ask_as(pair: &mut Pair, from: &Peer, number: u32) {
    let question = question_of(from, number);
    pair.agents[1].handle_mad(pair.now, from, &question.to_mad(number.into()));
    while let Some(event) = pair.agents[1].poll_event() {
        // The program answers each at once; the answers are kept for a while.
        pair.agents[1]
            .answer(pair.now, event.id, SidrRep::default())
            .unwrap();
    }
    while pair.agents[1].poll_transmit().is_some() {}
}

#[test]
fn who_asks_without_end_leaves_room_for_others() {
    let mut pair = Pair::new();
    let flooder = stranger(1);
    for number in 1..=SHARE_MAX + 100 {
        ask_as(&mut pair, &flooder, number);
    }
    assert_eq!(pair.agents[1].connection_count(), SHARE_MAX as usize);
    assert_eq!(pair.agents[1].counters().backlog_full, 100);
    // One that it has asked before is still answered, and so is everybody else.
    ask_as(&mut pair, &flooder, 1);
    assert_eq!(pair.agents[1].counters().duplicates, 1);
    ask_as(&mut pair, &stranger(2), 1);
    assert_eq!(pair.agents[1].connection_count(), SHARE_MAX as usize + 1);
    pair.established();
    // When the answers are forgotten, its share is free again.
    pair.pass(20);
    ask_as(&mut pair, &flooder, 1);
    assert_eq!(pair.agents[1].counters().backlog_full, 100);
}
