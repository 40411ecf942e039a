//! Packets in flight between devices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use roce_wire::Headers;
use roce_wire::icrc::{self, Flow};
use softroce::Faults;
use softroce_engine::{Path, RxMeta, Time};
use softroce_faults::Held;

use crate::link::{Fate, Link, Rule, Transit};
use crate::trace::{Sent, Trace};
use softroce_faults::Random;

mod faults;

use faults::Stop;

/// Transmissions are counted for so many different PSNs; then counting starts anew.
const COUNTED_PSNS: usize = 1 << 20;
/// Datagrams that wait for a device at most.
const INBOX_PACKETS: usize = 1 << 16;

/// What the network has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Packets that devices sent.
    pub sent: u64,
    /// Packets that arrived, duplicates included.
    pub delivered: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets that were held back.
    pub held_back: u64,
    /// Packets of which a bit flipped.
    pub corrupted: u64,
}

/// A datagram that has arrived.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) meta: RxMeta,
    pub(crate) bytes: Arc<[u8]>,
}

/// What a device finds at its end.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: VecDeque<Datagram>,
    pub(crate) overflows: u64,
    pub(crate) capacity_bytes: Option<u64>,
    waiting_bytes: u64,
}

impl Inbox {
    fn push(&mut self, datagram: Datagram) {
        let size = datagram.bytes.len() as u64;
        let full = self
            .capacity_bytes
            .is_some_and(|capacity| self.waiting_bytes + size > capacity);
        if full || self.waiting.len() >= INBOX_PACKETS {
            self.overflows += 1;
            return;
        }
        self.waiting_bytes += size;
        self.waiting.push_back(datagram);
    }

    pub(crate) fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.waiting.pop_front()?;
        self.waiting_bytes -= datagram.bytes.len() as u64;
        Some(datagram)
    }

    /// Whether more than half of the capacity is taken.
    pub(crate) fn pressed(&self) -> bool {
        self.capacity_bytes
            .is_some_and(|capacity| self.waiting_bytes * 2 > capacity)
    }
}

#[derive(Debug)]
struct Flight {
    to: usize,
    datagram: Datagram,
}

/// When, and a number that keeps the order of what arrives at the same time.
type Due = (Time, u64);

/// One direction's state.
#[derive(Debug)]
struct Lane {
    link: Link,
    /// When the last packet that keeps the order arrives.
    last_arrival: Time,
    /// When the sender's wire is free again.
    free_at: Time,
}

/// A PSN in one direction: from, to, queue pair, PSN, whether a response.
type PsnKey = (usize, usize, u32, u32, bool);

pub(crate) struct Network {
    addresses: Vec<IpAddr>,
    /// Multicast groups, with the ends that joined them.
    pub(crate) groups: BTreeSet<(IpAddr, usize)>,
    pub(crate) inboxes: Vec<Inbox>,
    lanes: BTreeMap<(usize, usize), Lane>,
    default_link: Link,
    flights: BTreeMap<Due, Flight>,
    next_number: u64,
    rule: Option<Rule>,
    faults: Option<Arc<Faults>>,
    /// What fault rules hold back: at its sender, or in front of its receiver.
    held: Held<Stop>,
    transmissions: BTreeMap<PsnKey, u32>,
    random: Random,
    pub(crate) trace: Trace,
    pub(crate) counters: NetworkCounters,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Network {
            addresses: Vec::new(),
            groups: BTreeSet::new(),
            inboxes: Vec::new(),
            lanes: BTreeMap::new(),
            default_link: Link::default(),
            flights: BTreeMap::new(),
            next_number: 0,
            rule: None,
            faults: None,
            held: Held::default(),
            transmissions: BTreeMap::new(),
            random: Random::new(seed),
            trace: Trace::default(),
            counters: NetworkCounters::default(),
        }
    }

    /// A new end; its index.
    pub(crate) fn attach(&mut self, address: IpAddr) -> usize {
        self.addresses.push(address);
        self.inboxes.push(Inbox::default());
        self.addresses.len() - 1
    }

    pub(crate) fn address(&self, index: usize) -> IpAddr {
        self.addresses[index]
    }

    pub(crate) fn set_rule(&mut self, rule: Option<Rule>) {
        self.rule = rule;
    }

    fn lane(&mut self, from: usize, to: usize) -> &mut Lane {
        let link = self.default_link;
        self.lanes.entry((from, to)).or_insert(Lane {
            link,
            last_arrival: Time::ZERO,
            free_at: Time::ZERO,
        })
    }

    pub(crate) fn set_link(&mut self, from: usize, to: usize, link: Link) {
        self.lane(from, to).link = link;
    }

    pub(crate) fn set_all_links(&mut self, link: Link) {
        self.default_link = link;
        self.lanes.values_mut().for_each(|lane| lane.link = link);
    }

    pub(crate) fn link(&mut self, from: usize, to: usize) -> Link {
        self.lane(from, to).link
    }

    /// A device sends a packet, sealed here.
    pub(crate) fn send(&mut self, now: Time, from: usize, path: &Path, packet: &[u8]) {
        let mut bytes = packet.to_vec();
        icrc::seal(&flow(path), 0, &mut bytes);
        self.counters.sent += 1;
        if path.dst.is_multicast() {
            // Each member gets a copy, over a link of its own; the sender, too, when it is one.
            for to in 0..self.addresses.len() {
                if self.groups.contains(&(path.dst, to)) {
                    self.carry(now, (from, to), path, bytes.clone());
                }
            }
            return;
        }
        match self.addresses.iter().position(|address| *address == path.dst) {
            Some(to) => self.carry(now, (from, to), path, bytes),
            None => self.counters.lost += 1, // Nobody has this address.
        }
    }

    /// Out of the hands of the rules, through chance and onto the record.
    fn set_out(&mut self, now: Time, (from, to): (usize, usize), path: &Path, bytes: Vec<u8>) {
        let headers = roce_wire::parse(&bytes).ok().map(|p| p.headers);
        let transmission = headers.map_or(1, |headers| self.count_transmission(from, to, &headers));
        let ruled = match self.rule.as_mut() {
            Some(rule) => {
                let transit = Transit {
                    at: now,
                    from,
                    to,
                    path,
                    headers: headers.as_ref(),
                    transmission,
                    bytes: &bytes,
                };
                rule(&transit)
            }
            None => Fate::Deliver,
        };
        let bytes: Arc<[u8]> = bytes.into();
        let lost = !self.travel(now, from, to, path, &bytes, ruled);
        self.counters.lost += u64::from(lost);
        self.trace.push(Sent {
            at: now,
            from,
            to,
            path: *path,
            transmission,
            lost,
            forged: false,
            bytes,
        });
    }

    fn count_transmission(&mut self, from: usize, to: usize, headers: &Headers) -> u32 {
        if self.transmissions.len() >= COUNTED_PSNS {
            self.transmissions.clear();
        }
        let bth = &headers.bth;
        let is_response = bth.opcode.info().is_some_and(|info| info.is_response());
        let count = self
            .transmissions
            .entry((from, to, bth.dest_qp.value(), bth.psn.value(), is_response))
            .or_insert(0);
        *count += 1;
        *count
    }

    /// Put a packet on its way; whether it will arrive.
    fn travel(
        &mut self,
        now: Time,
        from: usize,
        to: usize,
        path: &Path,
        bytes: &Arc<[u8]>,
        ruled: Fate,
    ) -> bool {
        let link = self.link(from, to);
        // All draws are made for every packet, so that a change of one probability leaves the others' draws alone.
        let random = &mut self.random;
        let [lost, doubled, held, corrupted] = [
            random.chance(link.loss_per_mille),
            random.chance(link.duplication_per_mille),
            random.chance(link.reordering_per_mille),
            random.chance(link.corruption_per_mille),
        ];
        let (jitter, hold, bit) = (
            random.below(link.jitter_ns + 1),
            random.below(link.hold_ns + 1),
            random.next_u64() as u32,
        );
        if ruled == Fate::Drop || lost || !link.up {
            return false;
        }
        let Some(sent_at) = self.serialise(now, from, to, bytes.len()) else {
            return false;
        };
        let mut bytes = bytes.clone();
        let flip = match ruled {
            Fate::Corrupt(bit) => Some(bit),
            _ => corrupted.then_some(bit),
        };
        if let Some(bit) = flip {
            bytes = flipped(&bytes, bit);
            self.counters.corrupted += 1;
            if looks_renumbered(path, &bytes) {
                return false;
            }
        }
        let arrival = sent_at + link.latency_ns + jitter;
        let arrival = match ruled {
            Fate::Delay(nanos) => {
                self.counters.held_back += 1;
                arrival + nanos
            }
            _ if held => {
                self.counters.held_back += 1;
                arrival + hold
            }
            _ => {
                let lane = self.lane(from, to);
                lane.last_arrival = lane.last_arrival.max(arrival);
                lane.last_arrival
            }
        };
        self.schedule(arrival, to, meta(path), bytes.clone());
        if ruled == Fate::Duplicate || doubled {
            self.counters.duplicated += 1;
            self.schedule(arrival, to, meta(path), bytes);
        }
        true
    }

    /// When the last bit has left, or `None` when the sender's queue is full.
    fn serialise(&mut self, now: Time, from: usize, to: usize, length: usize) -> Option<Time> {
        /// Ethernet with its gap, IP, UDP.
        const OVERHEAD_BYTES: u64 = 38 + 20 + 8;
        let lane = self.lane(from, to);
        let Some(rate_bps) = lane.link.rate_bps else {
            return Some(now);
        };
        let start = lane.free_at.max(now);
        let waiting_bytes = u128::from(start.since(now)) * u128::from(rate_bps) / 8_000_000_000;
        if waiting_bytes > u128::from(lane.link.queue_bytes) {
            return None;
        }
        let bits = 8 * (length as u64 + OVERHEAD_BYTES);
        lane.free_at = start + (u128::from(bits) * 1_000_000_000 / u128::from(rate_bps.max(1))) as u64;
        Some(lane.free_at)
    }

    /// A packet that nobody sent arrives a link's latency from now.
    pub(crate) fn inject(&mut self, now: Time, from: usize, to: usize, path: &Path, bytes: Arc<[u8]>) {
        let arrival = now + self.link(from, to).latency_ns;
        self.trace.push(Sent {
            at: now,
            from,
            to,
            path: *path,
            transmission: 1,
            lost: false,
            forged: true,
            bytes: bytes.clone(),
        });
        self.schedule(arrival, to, meta(path), bytes);
    }

    fn schedule(&mut self, at: Time, to: usize, meta: RxMeta, bytes: Arc<[u8]>) {
        self.flights.insert(
            (at, self.next_number),
            Flight {
                to,
                datagram: Datagram { meta, bytes },
            },
        );
        self.next_number += 1;
    }

    /// When the next packet arrives.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
        let held = self.held.deadline_ns().map(Time::from_nanos);
        flight.into_iter().chain(held).min()
    }

    /// Hand over what has arrived by `now`.
    pub(crate) fn deliver(&mut self, now: Time) {
        while let Some(flight) = self.flights.first_entry().filter(|flight| flight.key().0 <= now) {
            let Flight { to, datagram } = flight.remove();
            self.arrive(now, to, datagram);
        }
        self.release_held(now);
    }
}

/// What the ICRC needs to know of a path.
pub(crate) fn flow(path: &Path) -> Flow {
    Flow {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        dest_port: roce_wire::ROCE_V2_PORT,
    }
}

fn meta(path: &Path) -> RxMeta {
    RxMeta {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        segment: 0,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    }
}

/// Whether a damaged packet looks as if it only had another IPv4 identification, which a receiver that does not see
/// the identification cannot tell. Such a one does not arrive: the UDP checksum, which is not simulated, finds every
/// single flipped bit. The others do arrive, so that the ICRC is tried.
fn looks_renumbered(path: &Path, bytes: &[u8]) -> bool {
    let flow = Flow {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        dest_port: roce_wire::ROCE_V2_PORT,
    };
    matches!(icrc::verify(&flow, &[0], bytes), icrc::Verdict::ValidWithIpId(_))
}

fn flipped(bytes: &[u8], bit: u32) -> Arc<[u8]> {
    let mut bytes = bytes.to_vec();
    let bit = bit as usize % (8 * bytes.len().max(1));
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 0x80 >> (bit % 8);
    }
    bytes.into()
}
