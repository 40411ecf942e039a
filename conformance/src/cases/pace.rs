//! How fast a device sends, and how much of it is under way. What is said here in microseconds holds in virtual time alone.

use std::collections::BTreeMap;
use std::time::Duration;

use roce_wire::{Bth, Headers, NakCode, Opcode, Psn, Qpn, Syndrome};
use verbs_api::{Mtu, QpCap, QpType, RemoteAddr, WcStatus};

use super::played::{FAR, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Region, Setup, full_access, read, write};
use crate::raw::RawPeer;
use crate::scene::Scene;
use crate::testbed::{Need, Passing, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Network, Need::VirtualTime];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "E43",
            "what is under way to a peer begins small, grows as it is acknowledged, and never overruns a socket",
            &["PACE-1"],
            window,
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::raw_peer(
            "E43-READ",
            "READs ask for no more at once than the own socket holds",
            &["PACE-2"],
            read_budget,
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::raw_peer(
            "E43-UC",
            "what nobody acknowledges leaves at a rate, which congestion notifications halve for a while",
            &["PACE-3", "ECN-3"],
            rate,
        )
        .needing(&[Need::Network, Need::VirtualTime, Need::Uc])
        .of_priority(3),
    ]
}

/// What is under way at most, bytes.
const WINDOW_MAX: usize = 160 << 10;
/// A try, which waits for nothing else.
const SOON: Duration = Duration::from_micros(20);

/// A requester with much to WRITE, and what it has sent that the case has not acknowledged.
struct Flood<B: Testbed> {
    peer: RawPeer<B>,
    own: Region<B::P>,
    posted: u64,
    completed: u64,
    /// The last PSN that came.
    last: Option<Psn>,
}

const DEPTH: u64 = 64;

impl<B: Testbed> Flood<B> {
    fn new(scene: &mut Scene<B>) -> Result<Self, Failure> {
        let peer = scene.raw_peer(&Setup {
            mtu: Mtu::Mtu1024,
            timeout: 0,
            ..setup()
        })?;
        let own = peer.node.region(64 << 10, full_access())?;
        Ok(Flood {
            peer,
            own,
            posted: 0,
            completed: 0,
            last: None,
        })
    }

    /// Keep it busy, let it send, and return what came in the meantime.
    fn burst(&mut self, scene: &mut Scene<B>) -> Result<Vec<Passing>, Failure> {
        while self.posted - self.completed < DEPTH {
            self.peer
                .node
                .send(self.posted, write(FAR), &[self.own.whole()])?;
            self.posted += 1;
        }
        scene.rest(SOON);
        for wc in scene.completions_now(&self.peer.node.send_cq)? {
            same!(
                (wc.wr_id, wc.status),
                (self.completed, WcStatus::Success),
                "next completion"
            );
            self.completed += 1;
        }
        let came = self.peer.drain(scene);
        if let Some(last) = came.last() {
            self.last = Some(last.headers.bth.psn);
        }
        Ok(came)
    }

    fn acknowledge(&self, scene: &mut Scene<B>) {
        if let Some(last) = self.last {
            self.peer.acknowledge(scene, last, Syndrome::ACK, 0);
        }
    }

    /// The first packet of what came last was lost.
    fn complain(&self, scene: &mut Scene<B>, first: Psn) {
        self.peer
            .acknowledge(scene, first, Syndrome::Nak(NakCode::PsnSequence), 0);
    }
}

fn bytes_of(packets: &[Passing]) -> usize {
    packets.iter().map(|packet| packet.bytes.len()).sum()
}

fn window<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut flood = Flood::new(scene)?;
    let first = bytes_of(&flood.burst(scene)?);
    check!(
        (8 << 10..=16 << 10).contains(&first),
        "{first} bytes under way before anything was acknowledged"
    );
    let more = flood.burst(scene)?;
    same!(more.len(), 0, "packets beyond the window");
    let (mut largest, mut passed) = (first, first);
    let mut sizes = Vec::new();
    while passed < 4 << 20 {
        flood.acknowledge(scene);
        let came = flood.burst(scene)?;
        check!(
            !came.is_empty(),
            "nothing came of an acknowledgement of all, after {passed} bytes"
        );
        let asks = came.last().is_some_and(|last| last.headers.bth.ack_request);
        check!(
            asks,
            "the last packet before a full window asks for no acknowledgement"
        );
        asked_often_enough(&came)?;
        let size = bytes_of(&came);
        largest = largest.max(size);
        passed += size;
        sizes.push(size);
    }
    check!(
        (100 << 10..=WINDOW_MAX).contains(&largest),
        "{largest} bytes under way at most, of {passed} that passed"
    );
    // Never by more than a sixteenth at once, and not before a window was acknowledged.
    for pair in sizes.windows(2) {
        check!(
            pair[1] <= pair[0] + pair[0] / 8 + 4096,
            "{} bytes under way, then {}",
            pair[0],
            pair[1]
        );
    }
    shrinks(scene, &mut flood, largest)
}

/// One in sixteen packets asks for an acknowledgement, and each quarter of a window; most do not.
fn asked_often_enough(came: &[Passing]) -> CaseResult {
    let asks: Vec<usize> = (0..came.len())
        .filter(|n| came[*n].headers.bth.ack_request)
        .collect();
    check!(
        came.len() < 32 || asks.len() * 4 <= came.len(),
        "{} of {} packets ask for an acknowledgement",
        asks.len(),
        came.len()
    );
    check!(
        asks.len() >= 3,
        "{} of {} packets ask for an acknowledgement",
        asks.len(),
        came.len()
    );
    check!(
        asks.windows(2).all(|pair| pair[1] - pair[0] <= 16),
        "packets that ask for an acknowledgement: {asks:?}"
    );
    Ok(())
}

/// Every loss halves it, and losses at once are one.
fn shrinks<B: Testbed>(scene: &mut Scene<B>, flood: &mut Flood<B>, largest: usize) -> CaseResult {
    let mut before = largest;
    for round in 0..8 {
        flood.acknowledge(scene);
        let came = flood.burst(scene)?;
        let Some(first) = came.first().map(|packet| packet.headers.bth.psn) else {
            return Err(Failure::new(format!("nothing to lose in round {round}")));
        };
        flood.complain(scene, first);
        let again = flood.burst(scene)?;
        flood.complain(scene, first);
        let third = flood.burst(scene)?;
        let (size, repeated) = (bytes_of(&again), bytes_of(&third));
        same!(
            again.first().map(|packet| packet.headers.bth.psn),
            Some(first),
            "PSN of what is sent again first"
        );
        check!(
            size <= before * 5 / 8 + 2048 && size >= 2048,
            "{before} bytes under way before a loss, {size} after it, in round {round}"
        );
        check!(
            repeated + 2048 >= size && repeated <= size,
            "{size} bytes under way after a loss, {repeated} after another at once, in round {round}"
        );
        before = size.max(8 << 10);
        scene.rest(Duration::from_micros(200));
    }
    // It grows again, with more care.
    let start = before;
    let mut passed = 0;
    let mut size = start;
    while passed < 2 << 20 {
        flood.acknowledge(scene);
        let came = flood.burst(scene)?;
        size = bytes_of(&came);
        passed += size;
    }
    check!(
        size > start && size <= WINDOW_MAX,
        "{start} bytes under way after losses, {size} after 2 MiB without"
    );
    Ok(())
}

fn read_budget<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const DEPTH: u8 = 64;
    let mut peer = scene.raw_peer(&Setup {
        mtu: Mtu::Mtu1024,
        timeout: 0,
        rd_atomic: DEPTH,
        ..setup()
    })?;
    let own = peer.node.region(1 << 20, full_access())?;
    for wr_id in 0..4 {
        peer.node.send(wr_id, read(FAR), &[own.whole()])?;
    }
    // What was asked for and has not come: first PSN and bytes.
    let mut asked: BTreeMap<u64, u32> = BTreeMap::new();
    let mut total = 0usize;
    let mut largest = 0;
    let mut answered = 0;
    while total < 4 << 20 {
        scene.rest(SOON);
        for packet in peer.drain(scene) {
            let Some(reth) = packet.headers.reth else { continue };
            let remote = RemoteAddr { ..FAR };
            check!(reth.va >= remote.addr, "a READ request for {:#x}", reth.va);
            asked.insert(packet.headers.bth.psn.value().into(), reth.dma_length);
            check!(
                reth.dma_length <= 100 << 10,
                "one request asks for {} bytes",
                reth.dma_length
            );
        }
        let under_way: u32 = asked.values().sum();
        largest = largest.max(under_way);
        let Some((psn, length)) = asked.pop_first() else {
            return Err(Failure::new(format!("no READ request after {total} bytes")));
        };
        answered += 1;
        let packets = length.div_ceil(1024);
        for n in 0..packets {
            let opcode = match (n == 0, n + 1 == packets) {
                (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
                (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
                (false, true) => Opcode::RC_READ_RESPONSE_LAST,
                (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
            };
            let bytes = vec![7; 1024.min(length - 1024 * n) as usize];
            peer.read_response(scene, opcode, Psn::new(psn as u32) + n, answered, &bytes);
        }
        total += length as usize;
    }
    check!(
        (32 << 10..=200 << 10).contains(&largest),
        "{largest} bytes of answers under way at most"
    );
    for wr_id in 0..4 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

/// Bytes as a receiving socket counts them: a lone packet twice and 768 more, one behind another of its size 64 more.
fn charged(packets: &[Passing]) -> u64 {
    let mut last = None;
    let costs = packets.iter().map(|packet| {
        let len = packet.bytes.len() as u64;
        let cost = if last == Some((packet.at, len)) {
            len + 64
        } else {
            2 * len + 768
        };
        last = Some((packet.at, len));
        cost.max(500)
    });
    costs.sum()
}

fn rate<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        mtu: Mtu::Mtu1024,
        cap: QpCap {
            max_send_wr: 1024,
            ..Setup::default().cap
        },
        cqe: 4096,
        ..setup().with_type(QpType::Uc)
    };
    let mut peer = scene.raw_peer(&setup)?;
    let own = peer.node.region(1024, full_access())?;
    let mut busy = 0u64;
    // Bytes a microsecond in so many microseconds of work without a pause.
    let mut measure = |scene: &mut Scene<B>, peer: &mut RawPeer<B>, us: u64| -> Result<u64, Failure> {
        peer.drain(scene);
        let start = scene.bed.now();
        let end = start + Duration::from_micros(us);
        let mut sent = Vec::new();
        while scene.bed.now() < end {
            while busy < 900 {
                peer.node.send(1, write(FAR), &[own.whole()])?;
                busy += 1;
            }
            scene.rest(Duration::from_micros(20));
            busy -= scene.completions_now(&peer.node.send_cq)?.len() as u64;
            sent.extend(peer.drain(scene));
        }
        let took = (scene.bed.now() - start).as_micros() as u64;
        Ok(charged(&sent) / took.max(1))
    };
    // The first burst is free.
    let first = measure(scene, &mut peer, 50)?;
    check!(first >= 1200, "{first} bytes a microsecond in the first 50");
    let notify = |scene: &mut Scene<B>, peer: &RawPeer<B>| -> CaseResult {
        let dest = Qpn::new(peer.node.endpoint.qpn).ok_or_else(|| Failure::new("24 bits"))?;
        let mut headers = Headers::new(Bth::new(Opcode::CNP, dest, Psn::new(0)));
        headers.bth.becn = true;
        scene.network().inject(Side::Left, &headers, &[0; 16]);
        Ok(())
    };
    let mut expect =
        |scene: &mut Scene<B>, peer: &mut RawPeer<B>, us, range: std::ops::Range<u64>, when: &str| {
            let seen = measure(scene, peer, us)?;
            check!(
                range.contains(&seen),
                "{seen} bytes a microsecond {when}, must be {range:?}"
            );
            Ok(())
        };
    expect(scene, &mut peer, 1000, 900..1100, "without congestion")?;
    notify(scene, &peer)?;
    notify(scene, &peer)?;
    expect(scene, &mut peer, 500, 420..580, "after two notifications at once")?;
    notify(scene, &peer)?;
    expect(scene, &mut peer, 500, 200..310, "after another one")?;
    for _ in 0..8 {
        scene.rest(Duration::from_micros(150));
        notify(scene, &peer)?;
    }
    expect(scene, &mut peer, 800, 30..110, "after many")?;
    expect(
        scene,
        &mut peer,
        3000,
        50..90,
        "3 ms later, an eighth a millisecond",
    )?;
    expect(scene, &mut peer, 30_000, 100..900, "in the 30 ms after that")?;
    expect(scene, &mut peer, 1000, 900..1100, "in the end")
}
