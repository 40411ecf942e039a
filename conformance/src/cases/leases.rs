//! What a queue pair that hears nothing does with the room that it shares with others, and its timers among many.

use std::collections::BTreeMap;
use std::time::Duration;

use roce_wire::{Aeth, Bth, Headers, Msn, NakCode, Opcode, Psn, Qpn, Syndrome};
use verbs_api::{Mtu, WcStatus};

use super::played::{FAR, SHORT, impatient, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Endpoint, Node, Region, Setup, full_access, send, write};
use crate::raw::PLAYED_QPN;
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Passing, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Network, Need::VirtualTime];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "E44",
            "room that a silent peer's queue pair holds is lent to others, and it knocks",
            &["PACE-4"],
            |scene| lent(scene, 0),
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::raw_peer(
            "E44-TIMED",
            "room that a silent peer's queue pair holds is lent to others, and it waits for its time-out",
            &["PACE-4"],
            |scene| lent(scene, 20),
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::raw_peer(
            "E44-SLEEP",
            "a peer that answers nobody gets single packets until it does",
            &["PACE-4"],
            asleep,
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::raw_peer(
            "E45",
            "an answer that others get and one does not is asked for before the time-out, at no retry's cost",
            &["PACE-5"],
            probes,
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::faults(
            "E3-MANY",
            "among many queue pairs each has its own time-out",
            &["RETRY-2"],
            many_timers,
        )
        .of_priority(2),
        Case::raw_peer(
            "F7-TOGETHER",
            "a request that arrives right behind its successor is served, and the successor asked for",
            &["NAK-1"],
            swapped,
        )
        .of_priority(2),
        Case::raw_peer(
            "E6-TWICE",
            "two sequence NAKs at once cost one retry",
            &["RETRY-3"],
            two_naks,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

/// Queue pairs of the left end that all lead to one played peer; their PSNs tell them apart.
struct Crowd<B: Testbed> {
    nodes: Vec<Node<B::P>>,
    own: Vec<Region<B::P>>,
}

/// PSNs from one queue pair's first to the next one's.
const APART: u32 = 1 << 16;

impl<B: Testbed> Crowd<B> {
    fn new(scene: &mut Scene<B>, timeouts: &[u8]) -> Result<Self, Failure> {
        let played = Endpoint {
            side: Side::Right,
            qpn: PLAYED_QPN,
            gid: scene.gid(Side::Right)?,
        };
        let mut crowd = Crowd {
            nodes: Vec::new(),
            own: Vec::new(),
        };
        for (n, timeout) in timeouts.iter().enumerate() {
            let setup = Setup {
                mtu: Mtu::Mtu1024,
                timeout: *timeout,
                retry_cnt: 0,
                psn: [APART * n as u32, 0],
                ..setup()
            };
            let node = scene.node(Side::Left, &setup)?;
            node.connect(&setup, &played)?;
            crowd.own.push(node.region(16 << 10, full_access())?);
            crowd.nodes.push(node);
        }
        scene.network().take_trace();
        Ok(crowd)
    }

    fn write(&self, n: usize, wr_id: u64, length: usize) -> CaseResult {
        self.nodes[n].send(wr_id, write(FAR), &[self.own[n].sge(0..length)])
    }

    /// What each has sent while time passed.
    fn sent(&self, scene: &mut Scene<B>, time: Duration) -> Vec<Vec<Passing>> {
        scene.rest(time);
        let mut sent: Vec<Vec<Passing>> = self.nodes.iter().map(|_| Vec::new()).collect();
        for packet in scene.network().take_trace() {
            if packet.from == Side::Left {
                sent[(packet.headers.bth.psn.value() / APART) as usize].push(packet);
            }
        }
        sent
    }

    /// Acknowledge the packet with this PSN and all before it.
    fn acknowledge(&self, scene: &mut Scene<B>, n: usize, psn: Psn) -> CaseResult {
        let dest = Qpn::new(self.nodes[n].endpoint.qpn)
            .ok_or_else(|| Failure::new("queue pair numbers have 24 bits"))?;
        let mut headers = Headers::new(Bth::new(Opcode::RC_ACKNOWLEDGE, dest, psn));
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(0),
        });
        scene.network().inject(Side::Left, &headers, &[]);
        Ok(())
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn lent<B: Testbed>(scene: &mut Scene<B>, timeout: u8) -> CaseResult {
    let crowd = Crowd::new(scene, &[timeout, 20])?;
    for wr_id in 0..8 {
        crowd.write(0, wr_id, 16 << 10)?;
    }
    let start = scene.bed.now();
    let [first, _] = &crowd.sent(scene, ms(1))[..] else {
        return Err(Failure::new("two queue pairs"));
    };
    check!(!first.is_empty(), "nothing was sent");
    let last = first[first.len() - 1].headers.bth.psn;
    crowd.write(1, 100, 8)?;
    let early = crowd.sent(scene, ms(7));
    // The peer lives: an acknowledgement of nothing.
    crowd.acknowledge(scene, 1, Psn::new(APART - 1))?;
    same!(
        (early[0].len(), early[1].len()),
        (0, 0),
        "packets in the first 8 ms, after the first queue pair has used up the room"
    );
    let later = crowd.sent(scene, ms(4));
    let came = later[1].first().map(|packet| packet.at - start);
    check!(
        came.is_some_and(|came| (ms(10)..ms(11)).contains(&came)),
        "the second queue pair's packet came after {came:?}; the first one's lease is 10 ms"
    );
    crowd.acknowledge(scene, 1, later[1][0].headers.bth.psn)?;
    scene.ends_with(&crowd.nodes[1].send_cq, 100, WcStatus::Success)?;
    // The first one knocks, or asks once and waits.
    let knocks = crowd.sent(scene, ms(200));
    let count = knocks[0].len() + later[0].len();
    let allowed = if timeout == 0 { 10..=22 } else { 0..=3 };
    check!(
        allowed.contains(&count),
        "{count} packets of a queue pair that hears nothing in 200 ms, must be {allowed:?}"
    );
    if timeout == 0 {
        let times: Vec<Duration> = knocks[0].iter().map(|packet| packet.at).collect();
        check!(
            times.windows(2).all(|pair| pair[1] - pair[0] >= ms(9)),
            "it knocked at {times:?}"
        );
    }
    // It hears again: all goes on.
    let mut last = knocks[0]
        .iter()
        .chain(&later[0])
        .map(|p| p.headers.bth.psn)
        .max_by_key(|p| p.value())
        .unwrap_or(last);
    for round in 0..200 {
        crowd.acknowledge(scene, 0, last)?;
        let more = crowd.sent(scene, Duration::from_micros(20));
        let Some(packet) = more[0].last() else {
            check!(round > 0, "nothing came of an acknowledgement");
            break;
        };
        last = packet.headers.bth.psn;
    }
    for wr_id in 0..8 {
        scene.ends_with(&crowd.nodes[0].send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

fn asleep<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const OTHERS: usize = 12;
    let crowd = Crowd::new(scene, &[20; OTHERS + 1])?;
    crowd.write(0, 0, 8)?;
    crowd.sent(scene, ms(15));
    for n in 1..=OTHERS {
        crowd.write(n, n as u64, 1024)?;
    }
    let sent = crowd.sent(scene, ms(200));
    let count: usize = sent.iter().map(Vec::len).sum();
    check!(
        (2..=9).contains(&count),
        "{count} packets in 200 ms to a peer that answers nobody"
    );
    // It wakes up, and answers what it has got.
    let mut answered = vec![false; OTHERS + 1];
    let mut came = sent;
    for _ in 0..5 {
        for (n, sent) in came.iter().enumerate() {
            if let Some(packet) = sent.last() {
                answered[n] = true;
                crowd.acknowledge(scene, n, packet.headers.bth.psn)?;
            }
        }
        came = crowd.sent(scene, Duration::from_micros(100));
    }
    answered[0] = true;
    check!(
        answered.iter().all(|answered| *answered),
        "queue pairs that have sent within half a millisecond of the first answers: {answered:?}"
    );
    Ok(())
}

fn probes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // The first one's time-out is 2.1 s at least.
    let crowd = Crowd::new(scene, &[18, 18])?;
    crowd.write(0, 0, 8)?;
    let start = scene.bed.now();
    let first = crowd.sent(scene, ms(1));
    let psn = first[0].first().map(|packet| packet.headers.bth.psn);
    let mut again = None;
    // The other one's conversation goes on.
    for wr_id in 0..200 {
        crowd.write(1, wr_id, 8)?;
        let sent = crowd.sent(scene, ms(1));
        if let Some(packet) = sent[1].last() {
            crowd.acknowledge(scene, 1, packet.headers.bth.psn)?;
        }
        scene.ends_with(&crowd.nodes[1].send_cq, wr_id, WcStatus::Success)?;
        if let Some(packet) = sent[0].first() {
            again = Some(packet.clone());
            break;
        }
    }
    let Some(again) = again else {
        return Err(Failure::new(
            "no probe in 200 ms, while the same process answered others",
        ));
    };
    let after = again.at - start;
    check!(
        (ms(19)..ms(120)).contains(&after),
        "the probe came after {after:?}"
    );
    same!(Some(again.headers.bth.psn), psn, "PSN of the probe");
    // Nobody floods: no second one at once.
    let more = crowd.sent(scene, ms(5));
    same!(more[0].len(), 0, "probes within 5 ms of the first");
    crowd.acknowledge(scene, 0, again.headers.bth.psn)?;
    scene.ends_with(&crowd.nodes[0].send_cq, 0, WcStatus::Success)?;
    Ok(())
}

fn many_timers<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const COUNT: usize = 30;
    let mut pairs = Vec::new();
    let codes: Vec<u8> = (0..COUNT).map(|n| scene.timeout(9 + (n * 7 % 5) as u8)).collect();
    for code in &codes {
        pairs.push(scene.pair(&Setup {
            timeout: *code,
            retry_cnt: 1,
            ..Setup::default()
        })?);
    }
    scene.network().set_rule(Box::new(|_| Fate::Drop));
    scene.network().take_trace();
    for n in 0..COUNT {
        pairs[n * 11 % COUNT].left.send_inline(1, send(), b"lost")?;
        scene.rest(Duration::from_micros(37));
    }
    // Of each: when it was sent, and when again.
    let mut seen: BTreeMap<u32, Vec<Duration>> = BTreeMap::new();
    scene.until("all to be sent again", |scene| {
        for packet in scene.network().take_trace() {
            let times = seen.entry(packet.headers.bth.dest_qp.value()).or_default();
            times.push(packet.at);
        }
        Ok((seen.len() == COUNT && seen.values().all(|times| times.len() >= 2)).then_some(()))
    })?;
    let slack = scene.bed.slack();
    for (pair, code) in pairs.iter().zip(&codes) {
        let times = &seen[&pair.right.endpoint.qpn];
        let (after, unit) = (times[1] - times[0], Duration::from_nanos(4096 << code));
        check!(
            after >= unit && after <= 4 * unit + slack,
            "with a time-out of {unit:?} it was sent again after {after:?}"
        );
    }
    Ok(())
}

fn two_naks<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        retry_cnt: 1,
        ..impatient(scene)
    })?;
    peer.node.send_inline(1, send(), b"message")?;
    let psn = peer.own_psn(0);
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    for _ in 0..2 {
        peer.acknowledge(scene, psn, Syndrome::Nak(NakCode::PsnSequence), 0);
    }
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    scene.quiet(&[&peer.node.send_cq], SHORT)?;
    peer.acknowledge(scene, psn, Syndrome::ACK, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    Ok(())
}

fn swapped<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, full_access())?;
    let [first, second] = [0, 1].map(|n| peer.peer_psn(n));
    // At one moment: nobody has said anything yet when the first one comes.
    peer.write_only(scene, second, far.remote(8), b"second");
    peer.write_only(scene, first, far.remote(0), b"first");
    scene.until("an answer to both", |scene| {
        let answers = peer.drain(scene);
        let nak = answers.iter().any(|packet| {
            let is_nak =
                packet.headers.aeth.map(|aeth| aeth.syndrome) == Some(Syndrome::Nak(NakCode::PsnSequence));
            is_nak && packet.headers.bth.psn == second
        });
        Ok((nak || scene.is_real_time() && !answers.is_empty()).then_some(()))
    })?;
    peer.write_only(scene, second, far.remote(8), b"second");
    scene.until("an acknowledgement of the second", |scene| {
        Ok(peer
            .drain(scene)
            .iter()
            .any(|packet| packet.headers.bth.psn == second)
            .then_some(()))
    })?;
    crate::pair::same_bytes(
        "what was written",
        &far.buffer.to_vec(0..14),
        b"first\0\0\0second",
    )?;
    // Both of the missing ones arrive before anything was said: nothing is asked for.
    let [third, fourth] = [2, 3].map(|n| peer.peer_psn(n));
    peer.drain(scene);
    peer.write_only(scene, fourth, far.remote(16), b"fourth");
    peer.write_only(scene, third, far.remote(24), b"third");
    peer.write_only(scene, fourth, far.remote(16), b"fourth");
    scene.rest(SHORT);
    let answers = peer.drain(scene);
    if !scene.is_real_time() {
        let naks = answers.iter().filter(|packet| {
            packet
                .headers
                .aeth
                .is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Nak(_)))
        });
        same!(
            naks.count(),
            0,
            "NAKs for what was there before anything was said"
        );
    }
    let last = answers.last().map(|packet| packet.headers.bth.psn);
    same!(last, Some(fourth), "PSN of the last acknowledgement");
    Ok(())
}
