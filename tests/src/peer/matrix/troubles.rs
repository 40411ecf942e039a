//! What a network or a slow receiver does to reliable messages: they arrive all the same, and the counters of both ends
//! show that trouble and no other.

use anyhow::{Result, ensure};
use verbs_api::{Provider, QpType, SendOp, WcOpcode};

use super::area::{Area, Seed};
use super::bench::{Bench, Kind};
use super::link::{Link, Terms};
use super::talk::Ending;
use super::tally::{self, Expected};
use super::transfers::check_receive;
use crate::peer::Role;
use crate::peer::loss::{Rule, Way};

/// 81.92 ms: the receive is posted before the first repetition.
const RNR_TIMER: u8 = 26;

/// What is lost on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The second packet of a SEND.
    SendPacket,
    /// The acknowledgement of a SEND.
    Acknowledgement,
    /// The request of a READ.
    ReadRequest,
    /// The second packet of a READ's answer.
    ReadAnswer,
}

impl Lost {
    pub const ALL: [Lost; 4] = [
        Lost::SendPacket,
        Lost::Acknowledgement,
        Lost::ReadRequest,
        Lost::ReadAnswer,
    ];

    /// As in a case's name.
    pub fn name(self) -> &'static str {
        match self {
            Lost::SendPacket => "a lost packet of a SEND",
            Lost::Acknowledgement => "a lost acknowledgement",
            Lost::ReadRequest => "a lost READ request",
            Lost::ReadAnswer => "a lost packet of a READ's answer",
        }
    }

    /// A message of four packets, or of one, so that there is no other acknowledgement.
    fn size(self, mtu: usize) -> usize {
        match self {
            Lost::Acknowledgement => mtu,
            Lost::SendPacket | Lost::ReadRequest | Lost::ReadAnswer => 3 * mtu + 5,
        }
    }

    fn is_read(self) -> bool {
        matches!(self, Lost::ReadRequest | Lost::ReadAnswer)
    }

    /// In the words of fault rules.
    fn packets(self) -> &'static str {
        match self {
            Lost::SendPacket => "rc send middle",
            Lost::Acknowledgement => "rc acknowledge",
            Lost::ReadRequest => "rc read-request",
            Lost::ReadAnswer => "rc read-response middle",
        }
    }

    fn comes_from_the_requester(self) -> bool {
        matches!(self, Lost::SendPacket | Lost::ReadRequest)
    }

    /// What the counters of an end show.
    fn expected(self, is_requester: bool, kind: Kind) -> Expected {
        match (self, is_requester, kind) {
            // A gap in the requests: the responder says so at once.
            (Lost::SendPacket, true, Kind::Softroce) => Expected {
                once: &["rcvd_seq_err", "completer_retry_err"],
                some: &["retransmitted_bytes"],
                any: &[],
            },
            (Lost::SendPacket, true, Kind::Rxe) => Expected {
                once: &["rcvd_seq_err", "completer_retry_err"],
                ..Expected::default()
            },
            (Lost::SendPacket, false, _) => Expected {
                some: &["out_of_seq_request"],
                any: &["dropped_after_nak"],
                ..Expected::default()
            },
            // Nothing but the requester's timer tells.
            (Lost::Acknowledgement | Lost::ReadRequest, true, Kind::Softroce) => Expected {
                once: &["timeouts"],
                some: &["retransmitted_bytes"],
                any: &["dropped_ghost_ack"],
            },
            (Lost::Acknowledgement | Lost::ReadRequest, true, Kind::Rxe) => Expected {
                once: &["completer_retry_err"],
                ..Expected::default()
            },
            (Lost::Acknowledgement, false, _) => Expected {
                some: &["duplicate_request"],
                ..Expected::default()
            },
            (Lost::ReadRequest, false, _) => Expected::default(),
            // A gap in the answer: the requester asks again for what is missing.
            (Lost::ReadAnswer, true, Kind::Softroce) => Expected {
                once: &["completer_retry_err"],
                some: &["retransmitted_bytes"],
                any: &["dropped_ghost_ack"],
            },
            (Lost::ReadAnswer, true, Kind::Rxe) => Expected {
                once: &["completer_retry_err"],
                ..Expected::default()
            },
            (Lost::ReadAnswer, false, _) => Expected {
                once: &["duplicate_request"],
                ..Expected::default()
            },
        }
    }
}

/// One message; the listener loses one of its packets.
pub fn lost<P: Provider>(bench: &mut Bench<'_, P>, lost: Lost, requester: Role) -> Result<Ending> {
    if !bench.loses {
        return Ok(Ending::Skipped("the listener cannot lose packets on demand"));
    }
    let before = (bench.instruments.counters)();
    let link = Link::connect(bench, QpType::Rc, Terms::default())?;
    let size = [lost.size(bench.mtu.bytes())];
    let loss = bench.instruments.loss.filter(|_| bench.role == Role::Listener);
    if let Some(loss) = loss {
        let is_mine = (requester == Role::Listener) == lost.comes_from_the_requester();
        loss.arm(Rule {
            way: if is_mine { Way::Out } else { Way::In },
            packets: lost.packets(),
        })?;
    }
    let seed = Seed::new(requester, 200, 0);
    if bench.role == requester {
        ask(bench, &link, lost, size, seed)?;
    } else {
        serve(bench, &link, lost, size, seed)?;
    }
    if let Some(loss) = loss {
        ensure!(loss.disarm()?, "the packet to be lost was never seen");
    }
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    let expected = lost.expected(bench.role == requester, bench.instruments.kind);
    tally::check(&troubles, expected)?;
    Ok(Ending::Passed)
}

fn ask<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    lost: Lost,
    size: [usize; 1],
    seed: Seed,
) -> Result<()> {
    let area = if lost.is_read() { Area::Fetched } else { Area::Out };
    area.wipe(&bench.buffer);
    let slot = area.slots(&size)[0].clone();
    let op = if lost.is_read() {
        let theirs = Area::Out.slots(&size)[0].start;
        SendOp::Read {
            remote: bench.remote(theirs),
        }
    } else {
        area.write(&bench.buffer, &size, seed);
        SendOp::Send { imm: None }
    };
    bench.talk.hear("prepared")?;
    link.post(bench, 0, op, (slot.start, slot.len()))?;
    link.successes(1)?;
    if lost.is_read() {
        area.check(&bench.buffer, &size, seed)?;
    }
    bench.talk.tell("executed")?;
    bench.talk.hear("checked")?;
    Ok(())
}

fn serve<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    lost: Lost,
    size: [usize; 1],
    seed: Seed,
) -> Result<()> {
    let area = if lost.is_read() { Area::Out } else { Area::Received };
    area.wipe(&bench.buffer);
    if lost.is_read() {
        area.write(&bench.buffer, &size, seed);
    } else {
        link.post_recv(bench, 0, area.slots(&size)[0].start, size[0])?;
    }
    bench.talk.tell("prepared")?;
    if !lost.is_read() {
        check_receive(&link.successes(1)?[0], WcOpcode::Recv, (0, size[0]))?;
    }
    bench.talk.hear("executed")?;
    area.check(&bench.buffer, &size, seed)?;
    bench.talk.tell("checked")
}

/// A SEND that finds no receive at first.
pub fn not_ready<P: Provider>(bench: &mut Bench<'_, P>, requester: Role) -> Result<Ending> {
    let terms = Terms {
        min_rnr_timer: RNR_TIMER,
        ..Terms::default()
    };
    let before = (bench.instruments.counters)();
    let link = Link::connect(bench, QpType::Rc, terms)?;
    let (size, seed) = ([bench.mtu.bytes()], Seed::new(requester, 201, 0));
    let expected = if bench.role == requester {
        Area::Out.write(&bench.buffer, &size, seed);
        let slot = Area::Out.slots(&size)[0].clone();
        bench.talk.hear("prepared")?;
        link.post(bench, 0, SendOp::Send { imm: None }, (slot.start, slot.len()))?;
        link.successes(1)?;
        bench.talk.tell("executed")?;
        bench.talk.hear("checked")?;
        Expected {
            once: &["rcvd_rnr_err"],
            any: &["retransmitted_bytes", "completer_retry_err"],
            ..Expected::default()
        }
    } else {
        Area::Received.wipe(&bench.buffer);
        bench.talk.tell("prepared")?;
        bench.wait_for_counter("send_rnr_err", &before)?;
        link.post_recv(bench, 0, Area::Received.slots(&size)[0].start, size[0])?;
        check_receive(&link.successes(1)?[0], WcOpcode::Recv, (0, size[0]))?;
        bench.talk.hear("executed")?;
        Area::Received.check(&bench.buffer, &size, seed)?;
        bench.talk.tell("checked")?;
        Expected {
            once: &["send_rnr_err"],
            ..Expected::default()
        }
    };
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    tally::check(&troubles, expected)?;
    Ok(Ending::Passed)
}
