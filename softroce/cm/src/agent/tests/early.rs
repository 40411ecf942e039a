//! Requests on one machine, where a stopped process may keep them.

use super::*;

const MS: u64 = 1_000_000;

/// Ask somebody on this machine, and give the number.
fn ask_here(pair: &mut Pair) -> u32 {
    let mut connect = ask(0x100, 0x11);
    connect.peer.reach = Reach::Machine;
    let id = pair.agents[0].connect(pair.now, connect).unwrap();
    pair.settle();
    id
}

fn question_here(pair: &mut Pair) -> u32 {
    let peer = Peer {
        reach: Reach::Machine,
        ..peer_of(0)
    };
    let id = pair.agents[0].resolve(pair.now, peer, OWNER, question()).unwrap();
    pair.settle();
    id
}

fn sent_at_ms(pair: &Pair, side: usize) -> Vec<u64> {
    pair.sent_at[side].iter().map(|at| at.as_nanos() / MS).collect()
}

#[test]
fn requests_that_are_kept_are_sent_again_each_50_ms_and_no_time_moves() {
    let mut pair = Pair::new();
    pair.carries = Box::new(|_, _| false);
    ask_here(&mut pair);
    pair.pass(10);
    let early: Vec<u64> = (0..=20).map(|step| step * 50).collect();
    assert_eq!(sent_at_ms(&pair, 0), [&early[..], &[4608, 9216]].concat());
    // Those that the protocol counts are as many as ever, and end when they always did.
    pair.pass(63);
    assert!(pair.events[0].is_empty());
    pair.pass(1);
    assert!(matches!(pair.events[0][0].happened, Happened::Unreachable(_)));
    assert_eq!(pair.sent[0].len(), 20 + 16);
    assert_eq!(pair.agents[0].counters().retries, 15);
}

#[test]
fn a_request_to_another_machine_is_not_repeated_early() {
    let mut pair = Pair::new();
    pair.carries = Box::new(|_, _| false);
    pair.connect();
    pair.pass(10);
    assert_eq!(sent_at_ms(&pair, 0), [0, 4608, 9216]);
}

#[test]
fn after_some_that_were_kept_the_next_request_connects() {
    let mut pair = Pair::new();
    pair.carries = losing(MessageKind::Req, 3);
    let active = ask_here(&mut pair);
    pair.pass(1);
    assert_eq!(sent_at_ms(&pair, 0)[..4], [0, 50, 100, 150]);
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    pair.agents[0].ready(pair.now, active, &[]).unwrap();
    pair.settle();
    assert_eq!(pair.agents[1].state(passive), State::Established);
}

#[test]
fn a_slow_program_gets_one_request_and_its_peer_hears_that_it_is_there() {
    let mut pair = Pair::new();
    ask_here(&mut pair);
    pair.pass(4);
    use MessageKind as K;
    assert_eq!(pair.sent, [vec![K::Req, K::Req], vec![K::Mra]]);
    assert_eq!(pair.events[1].len(), 1);
    assert_eq!(pair.agents[1].counters().duplicates, 1);
    // Nothing is repeated before its time: 4608 ms, from the word that it is there, and a millisecond.
    pair.pass(2);
    assert_eq!(sent_at_ms(&pair, 0), [0, 50, 50 + 4608 + 1]);
    // That repetition is a late one: now the peer gets 65 s.
    pair.pass(60);
    assert_eq!(pair.sent, [vec![K::Req; 3], vec![K::Mra; 2]]);
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    assert!(matches!(pair.happened(0)[..], [Happened::Replied(_)]));
}

#[test]
fn copies_of_a_request_after_its_answer_mean_nothing() {
    let mut pair = Pair::new();
    let active = ask_here(&mut pair);
    pair.pass(0);
    pair.now = pair.now + 50 * MS;
    pair.agents[0].handle_timeout(pair.now);
    let copy = pair.agents[0].poll_transmit().expect("a repetition").mad;
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.agents[0].ready(pair.now, active, &[]).unwrap();
    pair.settle();
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.pass(1);
    use MessageKind as K;
    assert_eq!(pair.sent, [vec![K::Req, K::Rtu], vec![K::Rep]]);
    assert_eq!(pair.agents[1].state(passive), State::Established);
    assert_eq!(pair.agents[1].counters().duplicates, 2);
}

#[test]
fn a_refusal_is_believed_as_late_as_ever_though_requests_are_kept_between() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    let mut number = 0;
    // Every second request is kept.
    pair.carries = Box::new(move |_, kind| {
        number += u32::from(kind == MessageKind::Req);
        kind != MessageKind::Req || number % 2 == 0
    });
    ask_here(&mut pair);
    pair.pass(1);
    assert!(matches!(
        pair.happened(0)[..],
        [Happened::Rejected {
            reason: RejectReason::INVALID_SERVICE_ID,
            ..
        }]
    ));
    assert_eq!(pair.agents[1].counters().no_listener, 11);
}

#[test]
fn questions_about_datagrams_are_sent_again_likewise() {
    let mut pair = Pair::new();
    pair.carries = losing(MessageKind::SidrReq, 2);
    question_here(&mut pair);
    pair.pass(1);
    assert_eq!(sent_at_ms(&pair, 0)[..3], [0, 50, 100]);
    let passive = pair.request().0;
    pair.agents[1]
        .answer(pair.now, passive, SidrRep::default())
        .unwrap();
    pair.settle();
    assert!(matches!(pair.happened(0)[..], [Happened::Resolved(_)]));
    assert_eq!(pair.events[1].len(), 1, "the question was asked once");
}

/// The request as it leaves, and the peer's number for the connection it asks for.
fn request_and_copy(pair: &mut Pair) -> (u32, Vec<u8>) {
    let mut connect = ask(0x100, 0x11);
    connect.peer.reach = Reach::Machine;
    let id = pair.agents[0].connect(pair.now, connect).unwrap();
    let copy = pair.agents[0].poll_transmit().expect("the request").mad;
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.settle();
    (id, copy.to_vec())
}

fn refuse_as_program(pair: &mut Pair) {
    let passive = pair.request().0;
    let refuse = Refuse {
        reason: RejectReason::CONSUMER,
        info: &[],
        private_data: b"no",
    };
    pair.agents[1].reject(pair.now, passive, &refuse).unwrap();
    pair.settle();
}

#[test]
fn a_late_copy_of_a_refused_request_gets_the_same_refusal_and_no_event() {
    let mut pair = Pair::new();
    let (_, copy) = request_and_copy(&mut pair);
    let mut refusals = Vec::new();
    refuse_as_program(&mut pair);
    for _ in 0..2 {
        pair.pass(4);
        pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
        let again = pair.agents[1].poll_transmit().expect("a refusal").mad;
        refusals.push(Message::parse(&again).unwrap());
    }
    let [(transaction, Message::Rej(rej)), second] = &refusals[..] else {
        panic!("{refusals:?}");
    };
    assert_eq!((*transaction, Message::Rej(*rej)), *second);
    assert_eq!(*transaction, Message::parse(&copy).unwrap().0);
    assert_eq!(rej.reason, RejectReason::CONSUMER);
    assert_eq!(&rej.private_data[..2], b"no");
    pair.settle();
    assert_eq!(pair.events[1].len(), 1, "the program heard of it once");
    assert_eq!(pair.agents[1].counters().duplicates, 2);
    assert_eq!(pair.agents[1].connection_count(), 0);
    // The same number in another transaction is another request.
    let (_, message) = Message::parse(&copy).unwrap();
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &message.to_mad(*transaction + 1));
    pair.settle();
    assert_eq!(pair.events[1].len(), 2);
}

#[test]
fn a_late_copy_of_a_request_whose_connection_has_ended_means_nothing() {
    let mut pair = Pair::new();
    let (active, copy) = request_and_copy(&mut pair);
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    pair.agents[0].ready(pair.now, active, &[]).unwrap();
    pair.settle();
    pair.agents[0].disconnect(pair.now, active, &[]).unwrap();
    pair.settle();
    pair.agents[1].disconnect(pair.now, passive, &[]).unwrap();
    pair.pass(3);
    assert_eq!(pair.agents[1].connection_count(), 0);
    let before = (pair.events[1].len(), pair.sent[1].len());
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.settle();
    assert_eq!((pair.events[1].len(), pair.sent[1].len()), before);
    assert_eq!(pair.agents[1].connection_count(), 0);
}

#[test]
fn a_late_copy_does_not_end_the_connection_that_the_same_queue_pair_has_since() {
    let mut pair = Pair::new();
    let (_, copy) = request_and_copy(&mut pair);
    refuse_as_program(&mut pair);
    let (_, passive) = pair.established();
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.pass(1);
    assert_eq!(pair.agents[1].state(passive), State::Established);
    assert_eq!(pair.agents[1].counters().stale, 0);
}

#[test]
fn a_late_copy_from_before_there_was_a_listener_does_not_end_a_connection_either() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    let (active, copy) = request_and_copy(&mut pair);
    pair.agents[0].destroy(pair.now, active);
    pair.agents[1].listen(SERVICE, LISTENER, 16).unwrap();
    let (_, passive) = pair.established();
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.pass(1);
    assert_eq!(pair.agents[1].state(passive), State::Established);
    assert_eq!(pair.agents[1].counters().stale, 0);
}

#[test]
fn requests_that_are_over_are_forgotten_after_a_while() {
    let mut pair = Pair::new();
    let (_, copy) = request_and_copy(&mut pair);
    refuse_as_program(&mut pair);
    pair.pass(11);
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &copy);
    pair.settle();
    assert_eq!(pair.events[1].len(), 2);
}
