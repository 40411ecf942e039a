use std::net::IpAddr;

use roce_wire::Psn;
use roce_wire::cm::ip::IpCm;
use roce_wire::cm::{MessageKind, PathInfo, Rej, RejectReason, RejectedMessage, SidrStatus};

use super::*;
use crate::event::Happened;

mod asked;
mod early;

const SERVICE: ServiceId = ServiceId::of_port(6, 7471);
const OWNER: u64 = 77;
const LISTENER: u64 = 88;

/// Two agents and the way between them, in virtual time.
struct Pair {
    now: Time,
    agents: [Agent; 2],
    /// What happened, by agent.
    events: [Vec<Event>; 2],
    /// Messages that left, by agent, and when.
    sent: [Vec<MessageKind>; 2],
    sent_at: [Vec<Time>; 2],
    /// Asked about every message: from whom, and which. False loses it.
    carries: Box<dyn FnMut(usize, MessageKind) -> bool>,
}

fn address(side: usize) -> IpAddr {
    [192, 0, 2, 1 + side as u8].into()
}

fn peer_of(side: usize) -> Peer {
    Peer {
        own: address(side),
        address: address(1 - side),
        qpn: 1,
        traffic_class: 0,
        hop_limit: 64,
        reach: Reach::Network,
    }
}

impl Pair {
    fn new() -> Pair {
        let mut listener = Agent::new(2, 20, 0x22);
        listener.listen(SERVICE, LISTENER, 16).unwrap();
        Pair {
            now: Time::ZERO,
            agents: [Agent::new(1, 10, 0x11), listener],
            events: Default::default(),
            sent: Default::default(),
            sent_at: Default::default(),
            carries: Box::new(|_, _| true),
        }
    }

    /// Let everything happen that happens now.
    fn settle(&mut self) {
        loop {
            let mut worked = false;
            for side in 0..2 {
                while let Some(event) = self.agents[side].poll_event() {
                    self.events[side].push(event);
                }
                while let Some(out) = self.agents[side].poll_transmit() {
                    worked = true;
                    let (_, message) = Message::parse(&out.mad).expect("a message");
                    self.sent[side].push(message.kind());
                    self.sent_at[side].push(self.now);
                    if (self.carries)(side, message.kind()) {
                        self.agents[1 - side].handle_mad(self.now, &peer_of(1 - side), &out.mad);
                    }
                }
            }
            if !worked {
                return;
            }
        }
    }

    /// Let `seconds` pass.
    fn pass(&mut self, seconds: u64) {
        let until = self.now + seconds * 1_000_000_000;
        self.settle();
        while let Some(next) = self.agents.iter().filter_map(Agent::poll_timeout).min()
            && next <= until
        {
            self.now = next;
            self.agents
                .iter_mut()
                .for_each(|agent| agent.handle_timeout(next));
            self.settle();
        }
        self.now = until;
    }

    fn connect(&mut self) -> u32 {
        let id = self.agents[0].connect(self.now, ask(0x100, 0x11)).unwrap();
        self.settle();
        id
    }

    /// The request that waits at the listener.
    fn request(&self) -> (u32, &Request) {
        self.events[1]
            .iter()
            .rev()
            .find_map(|event| match &event.happened {
                Happened::Requested(request) => Some((event.id, &**request)),
                _ => None,
            })
            .expect("a request waits")
    }

    fn happened(&self, side: usize) -> Vec<&Happened> {
        self.events[side].iter().map(|event| &event.happened).collect()
    }

    /// Both ids of an established connection.
    fn established(&mut self) -> (u32, u32) {
        let active = self.connect();
        let passive = self.request().0;
        self.agents[1].reply(self.now, passive, reply()).unwrap();
        self.settle();
        self.agents[0].ready(self.now, active, &[]).unwrap();
        self.settle();
        assert_eq!(self.agents[0].state(active), State::Established);
        assert_eq!(self.agents[1].state(passive), State::Established);
        (active, passive)
    }
}

use crate::event::Request;

fn ask(qpn: u32, _salt: u8) -> Connect {
    let ip = IpCm {
        source: (address(0), 40_000).into(),
        destination: address(1),
    };
    let mut req = Req {
        service_id: SERVICE,
        local_qpn: Qpn::new(qpn).unwrap(),
        starting_psn: Psn::new(0x123456),
        responder_resources: 3,
        initiator_depth: 5,
        primary: PathInfo {
            local_gid: mapped(address(0)),
            remote_gid: mapped(address(1)),
            ack_timeout: 17,
            ..PathInfo::default()
        },
        ..Req::default()
    };
    req.private_data[..36].copy_from_slice(&ip.to_bytes());
    req.private_data[36..41].copy_from_slice(b"hello");
    Connect {
        peer: peer_of(0),
        owner: OWNER,
        req,
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn reply() -> Rep {
    let mut rep = Rep {
        local_qpn: Qpn::new(0x200).unwrap(),
        starting_psn: Psn::new(0x654321),
        ..Rep::default()
    };
    rep.private_data[..2].copy_from_slice(b"hi");
    rep
}

fn refuse(private_data: &[u8]) -> Refuse<'_> {
    Refuse {
        reason: RejectReason::CONSUMER,
        info: &[],
        private_data,
    }
}

#[test]
fn a_connection_comes_and_goes_and_nothing_stays() {
    let mut pair = Pair::new();
    let active = pair.connect();
    let (passive, request) = pair.request();
    assert_eq!(request.ip.unwrap().source.port(), 40_000);
    assert_eq!(request.private_data.len(), 56);
    assert_eq!(&request.private_data[..5], b"hello");
    let req = request.req.as_ref().unwrap();
    assert_eq!(
        (req.starting_psn, req.responder_resources),
        (Psn::new(0x123456), 3)
    );
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    let Happened::Replied(rep) = &pair.events[0][0].happened else {
        panic!("a reply");
    };
    assert_eq!(
        (rep.starting_psn, rep.remote_comm_id),
        (Psn::new(0x654321), active)
    );
    pair.agents[0].ready(pair.now, active, b"go").unwrap();
    pair.settle();
    assert!(matches!(pair.happened(1)[1], Happened::Established(data) if &data[..2] == b"go"));
    pair.agents[0].disconnect(pair.now, active, b"bye").unwrap();
    pair.settle();
    assert!(matches!(pair.happened(1)[2], Happened::Disconnected(data) if &data[..3] == b"bye"));
    pair.agents[1].disconnect(pair.now, passive, &[]).unwrap();
    pair.settle();
    assert!(matches!(pair.happened(0)[1], Happened::Disconnected(_)));
    use MessageKind as K;
    assert_eq!(pair.sent, [vec![K::Req, K::Rtu, K::Dreq], vec![K::Rep, K::Drep]]);
    pair.pass(1);
    assert_eq!(pair.happened(0)[2..], [&Happened::TimewaitExit]);
    assert_eq!(pair.happened(1)[3..], [&Happened::TimewaitExit]);
    assert!(
        pair.agents
            .iter()
            .all(|agent| agent.connection_count() == 0 && agent.poll_timeout().is_none())
    );
}

#[test]
fn nobody_at_home_is_asked_sixteen_times_in_74_seconds() {
    let mut pair = Pair::new();
    pair.carries = Box::new(|_, _| false);
    pair.connect();
    pair.pass(73);
    assert!(pair.events[0].is_empty());
    assert_eq!(pair.sent[0].len(), 16);
    pair.pass(1);
    let Happened::Unreachable(handshake) = &pair.events[0][0].happened else {
        panic!("nobody answers");
    };
    assert_eq!((handshake.sent, handshake.waited_ns), (16, 16 * 4_608_000_000));
    assert_eq!(pair.events[0][0].owner, OWNER);
    // 16 · 4608 ms.
    assert_eq!(pair.sent[0].len(), 16);
    assert_eq!(pair.agents[0].connection_count(), 0);
}

#[test]
fn a_handshake_is_told_of_on_both_sides_until_it_is_complete() {
    let mut pair = Pair::new();
    pair.connect();
    pair.pass(1);
    let told = |pair: &Pair, side: usize| -> Vec<(State, u32)> {
        let handshakes = pair.agents[side].handshakes(pair.now).into_iter();
        handshakes
            .map(|handshake| (handshake.state, handshake.sent))
            .collect()
    };
    assert_eq!(told(&pair, 0), [(State::ReqSent, 1)]);
    assert_eq!(told(&pair, 1), [(State::ReqReceived, 0)]);
    // The request comes once more: whoever asks hears that it is there, and since when it waits does not change.
    pair.pass(5);
    assert_eq!(told(&pair, 0), [(State::MraReqReceived, 2)]);
    assert_eq!(told(&pair, 1), [(State::MraReqSent, 0)]);
    let since = pair.agents[1].handshakes(pair.now)[0].waited_ns;
    assert!((5_000_000_000..7_000_000_000).contains(&since), "{since}");
}

#[test]
fn a_service_that_nobody_offers_is_rejected_with_reason_8() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    pair.connect();
    pair.pass(1);
    let Happened::Rejected {
        of_message, reason, ..
    } = &pair.events[0][0].happened
    else {
        panic!("a rejection");
    };
    assert_eq!((of_message.0, *reason), (0, RejectReason::INVALID_SERVICE_ID));
    // At once, and ten times more within 0.2 s.
    assert_eq!(pair.agents[1].counters().no_listener, 11);
    assert_eq!(pair.agents[0].connection_count(), 0);
}

/// Eleven copies of one refusal ended the patience at once; and each of them bought a repetition of a lost message.
#[test]
fn a_refusal_that_comes_many_times_counts_once() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    let id = pair.agents[0].connect(pair.now, ask(0x100, 0x11)).unwrap();
    let refused = Message::Rej(Rej {
        remote_comm_id: id,
        of_message: RejectedMessage::REQ,
        reason: RejectReason::INVALID_SERVICE_ID,
        ..Rej::default()
    });
    for _ in 0..30 {
        pair.agents[0].handle_mad(pair.now, &peer_of(0), &refused.to_mad(1));
    }
    assert_eq!(pair.agents[0].state(id), State::ReqSent);
    // All that is sent from now on is lost.
    pair.carries = Box::new(|_, _| false);
    pair.pass(3600);
    // The first, the one after the refusal, and those for what is lost.
    assert_eq!(pair.sent[0].len(), 1 + 1 + usize::from(RETRIES));
    assert!(matches!(pair.events[0][0].happened, Happened::Unreachable(_)));
}

#[test]
fn a_listener_that_comes_a_little_later_is_found() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    pair.connect();
    assert!(pair.events[0].is_empty());
    pair.agents[1].listen(SERVICE, LISTENER, 16).unwrap();
    pair.pass(1);
    assert!(matches!(pair.events[1][0].happened, Happened::Requested(_)));
    assert_eq!(pair.sent[0], [MessageKind::Req, MessageKind::Req]);
}

#[test]
fn the_programs_refusal_brings_its_data() {
    let mut pair = Pair::new();
    pair.connect();
    let passive = pair.request().0;
    assert!(
        pair.agents[1]
            .reject(pair.now, passive, &refuse(&[0; 149]))
            .is_err()
    );
    pair.agents[1]
        .reject(pair.now, passive, &refuse(b"full"))
        .unwrap();
    pair.settle();
    assert!(matches!(&pair.events[0][0].happened,
        Happened::Rejected { reason: RejectReason::CONSUMER, private_data, .. } if &private_data[..4] == b"full"));
    assert!(pair.agents.iter().all(|agent| agent.connection_count() == 0));
}

/// Loses the first `count` messages of a kind.
fn losing(kind: MessageKind, mut count: u32) -> Box<dyn FnMut(usize, MessageKind) -> bool> {
    Box::new(move |_, of| {
        let loses = of == kind && count > 0;
        count -= u32::from(loses);
        !loses
    })
}

#[test]
fn a_lost_reply_is_repeated_and_the_repeated_request_means_nothing() {
    let mut pair = Pair::new();
    pair.carries = losing(MessageKind::Rep, 1);
    pair.connect();
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.pass(6);
    assert_eq!(pair.happened(1).len(), 1, "one request");
    assert!(matches!(pair.happened(0)[..], [Happened::Replied(_)]));
}

#[test]
fn a_lost_last_message_is_repeated_for_the_repeated_reply() {
    let mut pair = Pair::new();
    pair.carries = losing(MessageKind::Rtu, 2);
    let active = pair.connect();
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    pair.agents[0].ready(pair.now, active, &[]).unwrap();
    pair.pass(9);
    assert_eq!(pair.agents[1].state(passive), State::Established);
    assert_eq!(pair.happened(0).len(), 1, "one reply");
}

#[test]
fn data_before_the_last_message_establishes() {
    let mut pair = Pair::new();
    pair.carries = losing(MessageKind::Rtu, u32::MAX);
    let active = pair.connect();
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    pair.agents[0].ready(pair.now, active, &[]).unwrap();
    pair.agents[1].establish(pair.now, passive).unwrap();
    pair.settle();
    assert!(matches!(pair.happened(1)[1], Happened::Established(_)));
    pair.pass(100);
    assert_eq!(pair.agents[1].state(passive), State::Established);
}

#[test]
fn a_slow_program_makes_the_peer_patient() {
    let mut pair = Pair::new();
    pair.connect();
    // The request is repeated once, and then the peer has 65 s.
    pair.pass(60);
    use MessageKind as K;
    assert_eq!(pair.sent, [vec![K::Req, K::Req], vec![K::Mra]]);
    let passive = pair.request().0;
    pair.agents[1].reply(pair.now, passive, reply()).unwrap();
    pair.settle();
    assert!(matches!(pair.happened(0)[..], [Happened::Replied(_)]));
}

#[test]
fn crossing_disconnections_end_both_sides_once() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established();
    let before = [pair.events[0].len(), pair.events[1].len()];
    pair.agents[0].disconnect(pair.now, active, &[]).unwrap();
    pair.agents[1].disconnect(pair.now, passive, &[]).unwrap();
    pair.settle();
    pair.pass(2);
    for (side, before) in before.into_iter().enumerate() {
        assert!(
            matches!(
                pair.happened(side)[before..],
                [Happened::Disconnected(_), Happened::TimewaitExit]
            ),
            "{:?}",
            pair.events[side]
        );
        assert_eq!(pair.agents[side].connection_count(), 0);
    }
}

#[test]
fn a_disconnection_to_nobody_ends_by_the_clock() {
    let mut pair = Pair::new();
    let (active, _) = pair.established();
    pair.carries = Box::new(|_, _| false);
    pair.agents[0].disconnect(pair.now, active, &[]).unwrap();
    pair.pass(80);
    assert!(matches!(
        pair.happened(0)[1..],
        [Happened::Disconnected(_), Happened::TimewaitExit]
    ));
    assert_eq!(pair.agents[0].connection_count(), 0);
}

#[test]
fn a_queue_pair_that_is_connected_anew_is_refused_and_its_old_connection_ends() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established();
    // The peer has forgotten everything, and uses the same queue pair.
    pair.agents[0] = Agent::new(99, 10, 0x11);
    pair.events[0].clear();
    pair.connect();
    assert!(matches!(
        pair.happened(0)[..],
        [Happened::Rejected {
            reason: RejectReason::STALE_CONNECTION,
            ..
        }]
    ));
    // The old one asked to disconnect, and was answered, by one who knows nothing.
    assert!(matches!(pair.happened(1)[2..], [Happened::Disconnected(_)]));
    assert_eq!(pair.agents[1].state(passive), State::Timewait);
    let _ = active;
    pair.pass(2);
    assert!(pair.agents.iter().all(|agent| agent.connection_count() == 0));
}

#[test]
fn a_stranger_who_names_anothers_queue_pair_does_not_end_its_connection() {
    let stranger: IpAddr = [192, 0, 2, 9].into();
    let mut pair = Pair::new();
    let (_, passive) = pair.established();
    // The same GUID and number, in a request that is right in all else.
    let ip = IpCm {
        source: (stranger, 40_000).into(),
        destination: address(1),
    };
    let mut req = ask(0x100, 0).req;
    req.local_comm_id = 0x0a00_0001;
    req.local_ca_guid = 0x11;
    req.primary.local_gid = mapped(stranger);
    req.private_data[..36].copy_from_slice(&ip.to_bytes());
    let from = Peer {
        address: stranger,
        ..peer_of(1)
    };
    pair.agents[1].handle_mad(pair.now, &from, &Message::Req(req).to_mad(1));
    pair.settle();
    assert_eq!(pair.agents[1].state(passive), State::Established);
    assert_eq!(pair.agents[1].counters().stale, 0);
    // To the listener he is a peer like any other.
    assert_ne!(pair.request().0, passive);
}

#[test]
fn a_full_backlog_makes_peers_ask_again_later() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    pair.agents[1].listen(SERVICE, LISTENER, 2).unwrap();
    for qpn in 0..3 {
        pair.agents[0].connect(pair.now, ask(0x100 + qpn, 0)).unwrap();
    }
    pair.settle();
    assert_eq!(pair.events[1].len(), 2);
    assert_eq!(pair.agents[1].counters().backlog_full, 1);
    let first = pair.events[1][0].id;
    pair.agents[1].reply(pair.now, first, reply()).unwrap();
    pair.pass(5);
    assert_eq!(pair.events[1].len(), 3);
}

#[test]
fn who_lets_go_says_so_to_the_peer() {
    // In each state that a connection can be left in.
    let mut pair = Pair::new();
    let active = pair.connect();
    pair.agents[0].destroy(pair.now, active);
    pair.settle();
    assert!(matches!(
        pair.happened(1)[1..],
        [Happened::Rejected {
            reason: RejectReason::TIMEOUT,
            ..
        }]
    ));
    assert!(pair.agents.iter().all(|agent| agent.connection_count() == 0));

    let mut pair = Pair::new();
    pair.connect();
    let passive = pair.request().0;
    pair.agents[1].destroy(pair.now, passive);
    pair.settle();
    assert!(matches!(
        pair.happened(0)[..],
        [Happened::Rejected {
            reason: RejectReason::CONSUMER,
            ..
        }]
    ));

    let mut pair = Pair::new();
    let (active, passive) = pair.established();
    pair.agents[0].destroy(pair.now, active);
    pair.settle();
    assert!(matches!(pair.happened(1)[2..], [Happened::Disconnected(_)]));
    pair.agents[1].destroy(pair.now, passive);
    pair.pass(2);
    assert!(pair.agents.iter().all(|agent| agent.connection_count() == 0));
}

#[test]
fn who_does_not_know_a_connection_answers_a_disconnection_all_the_same() {
    let mut pair = Pair::new();
    let (active, _) = pair.established();
    pair.agents[1] = Agent::new(5, 20, 0x22);
    pair.agents[0].disconnect(pair.now, active, &[]).unwrap();
    pair.settle();
    assert_eq!(pair.agents[0].state(active), State::Timewait);
}

#[test]
fn messages_of_strangers_about_a_connection_mean_nothing() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established();
    let stranger = Peer {
        address: [198, 51, 100, 9].into(),
        ..peer_of(1)
    };
    let dreq = |local, remote, qpn: u32| {
        Message::Dreq(roce_wire::cm::Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            remote_qpn: Qpn::new(qpn).unwrap(),
            ..Default::default()
        })
        .to_mad(1)
    };
    let before = pair.events[1].len();
    // Another address, a guessed number of ours or of the peer's, another queue pair.
    pair.agents[1].handle_mad(pair.now, &stranger, &dreq(active, passive, 0x200));
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &dreq(active, passive ^ 1, 0x200));
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &dreq(active ^ 1, passive, 0x200));
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &dreq(active, passive, 0x201));
    pair.settle();
    assert_eq!(pair.events[1].len(), before);
    assert_eq!(pair.agents[1].state(passive), State::Established);
    assert_eq!(pair.agents[1].counters().unknown_id, 3);
    pair.agents[1].handle_mad(pair.now, &peer_of(1), &dreq(active, passive, 0x200));
    pair.settle();
    assert_eq!(pair.agents[1].state(passive), State::DreqReceived);
}

#[test]
fn requests_that_lie_about_addresses_are_refused() {
    for break_it in [
        (|req: &mut Req| req.private_data[0] = 0x10) as fn(&mut Req),
        |req| req.private_data[1] = 0x50,
        |req| req.private_data[19] ^= 1,
        |req| req.private_data[35] ^= 1,
        |req| req.primary.local_gid[15] ^= 1,
    ] {
        let mut pair = Pair::new();
        let mut connect = ask(0x100, 0);
        break_it(&mut connect.req);
        pair.agents[0].connect(pair.now, connect).unwrap();
        pair.settle();
        assert!(matches!(pair.happened(0)[..], [Happened::Rejected { .. }]));
        assert!(pair.events[1].is_empty() && pair.agents[1].connection_count() == 0);
    }
}

fn question() -> SidrReq {
    let mut req = SidrReq {
        service_id: SERVICE,
        ..SidrReq::default()
    };
    req.private_data[..36].copy_from_slice(&ask(1, 0).req.private_data[..36]);
    req
}

#[test]
fn a_service_of_datagrams_is_found_and_a_lost_answer_is_repeated() {
    let mut pair = Pair::new();
    pair.carries = losing(MessageKind::SidrRep, 1);
    pair.agents[0]
        .resolve(pair.now, peer_of(0), OWNER, question())
        .unwrap();
    pair.settle();
    let passive = pair.request().0;
    let rep = SidrRep {
        qpn: Qpn::new(0x300).unwrap(),
        qkey: 0x0123_4567,
        ..SidrRep::default()
    };
    pair.agents[1].answer(pair.now, passive, rep).unwrap();
    pair.pass(5);
    let Happened::Resolved(rep) = &pair.events[0][0].happened else {
        panic!("an answer");
    };
    assert_eq!(
        (rep.status, rep.qpn.value(), rep.service_id),
        (SidrStatus::VALID, 0x300, SERVICE)
    );
    assert_eq!(pair.events[1].len(), 1, "the question was asked once");
    pair.pass(20);
    assert!(pair.agents.iter().all(|agent| agent.connection_count() == 0));
}

#[test]
fn a_service_of_datagrams_that_nobody_offers_is_told_so() {
    let mut pair = Pair::new();
    pair.agents[1].unlisten(SERVICE);
    pair.agents[0]
        .resolve(pair.now, peer_of(0), OWNER, question())
        .unwrap();
    pair.settle();
    pair.pass(1);
    assert!(matches!(&pair.happened(0)[..],
        [Happened::Resolved(rep)] if rep.status == SidrStatus::UNSUPPORTED));
}

#[test]
fn a_command_that_does_not_fit_the_state_is_an_error() {
    let mut pair = Pair::new();
    let active = pair.connect();
    assert!(pair.agents[0].ready(pair.now, active, &[]).is_err());
    assert!(pair.agents[0].disconnect(pair.now, active, &[]).is_err());
    assert!(pair.agents[0].establish(pair.now, active).is_err());
    assert!(pair.agents[0].reply(pair.now, 12345, reply()).is_err());
    assert!(pair.agents[1].listen(SERVICE, 1, 1).is_err());
}
