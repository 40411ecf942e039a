//! How many bytes may be on their way: toward each peer's socket, and as READ responses toward us.
//!
//! The peer's socket buffer is the tightest place of the path, and it is shared by everything that we send there. So
//! all queue pairs toward one socket share a window. Processes on one address have a socket each, and the upper eight
//! bits of their QPNs tell them apart. Bytes are charged as the kernel charges a receiving socket: a
//! lone packet costs about twice its size, a packet that rides in a train little more than its own bytes.
//!
//! Charges are lent, not owed: a queue pair without progress for [`LEASE_NS`] gives its own back and sends no more for
//! now, so that one whose far end is gone never starves others. When no queue pair at all hears from a socket, its
//! process sleeps: then only single packets go there, lest it finds its buffer overrun when it wakes.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::Time;

mod reads;

pub(crate) use reads::ReadBudget;

/// The smallest window, bytes.
const MIN_WINDOW_BYTES: u32 = 8 << 10;
/// The largest window, bytes: below the default socket buffer, with room for somebody else's packets.
const MAX_WINDOW_BYTES: u32 = 160 << 10;
/// What the longest train costs. Who waits for room goes on when one fits, or half of a small window.
const TRAIN_BYTES: u32 = 67 << 10;
/// First window when the configuration does not say, bytes.
const DEFAULT_WINDOW_BYTES: u32 = 16 << 10;
/// Kernel overhead of a packet that travels alone, bytes, besides its size twice.
const LONE_OVERHEAD_BYTES: u32 = 768;
/// Overhead of one more packet of the same size behind another, bytes.
const TRAIN_OVERHEAD_BYTES: u32 = 64;
/// Losses closer together than this are one loss, ns.
const ONE_LOSS_NS: u64 = 100_000;
/// How long a charge outlives the last progress of its holder, ns.
pub(crate) const LEASE_NS: u64 = 10_000_000;
/// Time between two packets to a peer that sleeps, ns.
const SLEEP_PROBE_NS: u64 = 40_000_000;

/// A process that answers others so long after a packet went out, ns, has seen that packet.
const ANSWERED_WITHIN_NS: u64 = 1_000_000;
/// Time between probes of queue pairs that are not answered while others are, ns: they have no room in the window.
const PROBE_INTERVAL_NS: u64 = 2_000_000;

/// What a packet of `len` bytes costs the receiving socket, bytes; `in_train` when it follows one of the same size and path.
pub fn packet_cost(len: usize, in_train: bool) -> u32 {
    let len = len as u32;
    if in_train {
        len + TRAIN_OVERHEAD_BYTES
    } else {
        2 * len + LONE_OVERHEAD_BYTES
    }
}

/// Where a queue pair stands before a budget. Who was woken goes first, so that one that never waits cannot starve
/// those that do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Claim {
    #[default]
    None,
    Waiting,
    /// Woken: it may use what is free although others still wait.
    Granted,
    /// Woken, and has used some of it.
    Spent,
}

impl Claim {
    fn is_woken(self) -> bool {
        match self {
            Claim::Granted | Claim::Spent => true,
            Claim::None | Claim::Waiting => false,
        }
    }

    /// Stand in `line`: at its head after a turn in which nothing could be had, else at its end.
    fn enter(&mut self, line: &mut VecDeque<u32>, slot: u32) {
        match std::mem::replace(self, Claim::Waiting) {
            Claim::Waiting => {}
            Claim::Granted => line.push_front(slot),
            Claim::None | Claim::Spent => line.push_back(slot),
        }
    }

    fn spend(&mut self) {
        if *self == Claim::Granted {
            *self = Claim::Spent;
        }
    }

    fn end_turn(&mut self) {
        if self.is_woken() {
            *self = Claim::None;
        }
    }

    /// The turn ended for want of something else: what was granted and not used yet stays granted.
    fn suspend_turn(&mut self) {
        if *self == Claim::Spent {
            *self = Claim::None;
        }
    }
}

/// Whether the process behind a socket shows life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wakefulness {
    Awake,
    /// Nothing came for a lease. At `probed_at` so many packets were granted to find out whether it woke up.
    Asleep {
        probed_at: Time,
        probes: u8,
    },
}

/// What becomes of a charge whose lease has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// It comes back.
    Release,
    /// Nobody could use it: the peer sleeps.
    Keep,
}

/// A peer's socket: its address, and which of the processes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    slice: u32,
}

/// QPN bits below those that tell the processes of one address apart.
const SLICE_BITS: u32 = 16;

/// The window toward one peer's socket.
#[derive(Debug)]
pub(crate) struct Peer {
    socket: Socket,
    wakefulness: Wakefulness,
    /// When the first queue pair came that leads there.
    joined_at: Time,
    /// When something last came from there.
    heard_at: Time,
    /// How many queue pairs lead there.
    users: u32,
    window: u32,
    in_flight: u32,
    /// How many packets that is.
    packets_in_flight: u32,
    /// Bytes acknowledged toward the next growth.
    credit: u64,
    /// Somebody had to wait since the last growth: a window that nobody fills needs none.
    is_limiting: bool,
    last_loss: Option<Time>,
    /// When a queue pair last probed, because only it was not answered.
    probed_at: Option<Time>,
    /// Slots of queue pairs that wait for room, in the order in which they came.
    waiting: VecDeque<u32>,
    /// The transmit call that last carried data to this peer.
    pub(crate) last_batch: u64,
}

impl Peer {
    /// Bytes on their way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes that may be on their way.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Whether `cost` more fits. An empty path takes anything: nothing is too big for ever.
    fn has_room(&self, cost: u32) -> bool {
        match self.wakefulness {
            Wakefulness::Awake => self.in_flight == 0 || self.in_flight + cost <= self.window,
            Wakefulness::Asleep { probes, .. } => self.in_flight == 0 || probes > 0,
        }
    }

    /// Something came from there.
    pub(crate) fn note_heard(&mut self, now: Time) {
        self.heard_at = now;
        self.wakefulness = Wakefulness::Awake;
    }

    /// When something last came from there, if anything did.
    pub(crate) fn heard_at(&self) -> Option<Time> {
        (self.heard_at != self.joined_at).then_some(self.heard_at)
    }

    /// Whether a queue pair that has sent nothing and heard nothing since `quiet_since` may probe: something came from
    /// there for others clearly later, so that its packet was seen or lost, and nobody else has just probed.
    pub(crate) fn admits_probe(&self, quiet_since: Time, now: Time) -> bool {
        self.heard_at > quiet_since + ANSWERED_WITHIN_NS
            && self
                .probed_at
                .is_none_or(|probed_at| now.since(probed_at) >= PROBE_INTERVAL_NS)
    }

    /// A queue pair probes.
    pub(crate) fn note_probe(&mut self, now: Time) {
        self.probed_at = Some(now);
    }

    /// A queue pair has made no progress for a lease.
    pub(crate) fn end_lease(&mut self, now: Time) -> Lease {
        match self.wakefulness {
            Wakefulness::Awake if now.since(self.heard_at) < LEASE_NS => Lease::Release,
            Wakefulness::Awake => {
                self.wakefulness = Wakefulness::Asleep {
                    probed_at: now,
                    probes: 0,
                };
                Lease::Release
            }
            Wakefulness::Asleep { probed_at, .. } => {
                if now.since(probed_at) >= SLEEP_PROBE_NS {
                    self.wakefulness = Wakefulness::Asleep {
                        probed_at: now,
                        probes: 1,
                    };
                }
                Lease::Keep
            }
        }
    }

    /// Packets on their way.
    pub(crate) fn packets_in_flight(&self) -> u32 {
        self.packets_in_flight
    }

    /// Give `cost` back, for `packets` that were charged.
    pub(crate) fn refund(&mut self, cost: u32, packets: u32) {
        debug_assert!(
            cost <= self.in_flight && packets <= self.packets_in_flight,
            "refund of {cost} for {packets} packets with {} for {} in flight",
            self.in_flight,
            self.packets_in_flight
        );
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.packets_in_flight = self.packets_in_flight.saturating_sub(packets);
    }

    /// `bytes` of charge came back acknowledged: grow by a sixteenth of what came, up to the limit. Slow on
    /// purpose: other processes may share the socket at the far end, and a loss costs a whole window again.
    pub(crate) fn grow(&mut self, bytes: u32) {
        if !self.is_limiting {
            return;
        }
        self.credit += u64::from(bytes);
        // Having met the limit once, approach it with care.
        let step = self.window / if self.last_loss.is_some() { 64 } else { 16 };
        if self.credit >= u64::from(self.window) {
            self.credit = 0;
            self.is_limiting = false;
            self.window = (self.window + step).min(MAX_WINDOW_BYTES);
        }
    }

    /// Something was lost, or the peer is congested: halve.
    pub(crate) fn shrink(&mut self, now: Time) {
        if self.last_loss.is_some_and(|last| now.since(last) < ONE_LOSS_NS) {
            return;
        }
        self.last_loss = Some(now);
        self.credit = 0;
        self.window = (self.window / 2).max(MIN_WINDOW_BYTES);
    }
}

/// All peers. An entry lives as long as queue pairs use it.
#[derive(Debug)]
pub(crate) struct Peers {
    entries: Vec<Peer>,
    /// By slot of a queue pair; it waits before one peer's window at most.
    claims: Vec<Claim>,
    initial_window: u32,
}

/// Index of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerId(u32);

impl Peers {
    pub(crate) fn new(initial_window_bytes: u32) -> Self {
        let initial_window = match initial_window_bytes {
            0 => DEFAULT_WINDOW_BYTES,
            bytes => bytes.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES),
        };
        Peers {
            entries: Vec::new(),
            claims: Vec::new(),
            initial_window,
        }
    }

    /// One more queue pair leads to queue pair `qpn` at `address`.
    pub(crate) fn join(&mut self, address: IpAddr, qpn: u32, now: Time) -> PeerId {
        let socket = Socket {
            address,
            slice: qpn >> SLICE_BITS,
        };
        let found = self
            .entries
            .iter()
            .position(|peer| peer.users > 0 && peer.socket == socket);
        let index = found.unwrap_or_else(|| {
            let fresh = Peer {
                socket,
                wakefulness: Wakefulness::Awake,
                joined_at: now,
                heard_at: now,
                users: 0,
                window: self.initial_window,
                in_flight: 0,
                packets_in_flight: 0,
                credit: 0,
                is_limiting: false,
                last_loss: None,
                probed_at: None,
                waiting: VecDeque::new(),
                last_batch: 0,
            };
            match self.entries.iter().position(|peer| peer.users == 0) {
                Some(free) => {
                    self.entries[free] = fresh;
                    free
                }
                None => {
                    self.entries.push(fresh);
                    self.entries.len() - 1
                }
            }
        });
        let peer = &mut self.entries[index];
        peer.users += 1;
        // Each queue pair waits at most once, so this is room enough for ever.
        let missing = (peer.users as usize).saturating_sub(peer.waiting.len());
        peer.waiting.reserve(missing);
        PeerId(index as u32)
    }

    /// Queue pair `slot` leads there no longer; it has given its charges back.
    pub(crate) fn leave(&mut self, id: PeerId, slot: u32) {
        let peer = self.get_mut(id);
        peer.users -= 1;
        peer.waiting.retain(|waiting| *waiting != slot);
        self.claims[slot as usize] = Claim::None;
    }

    /// Whether more than one socket was heard within a lease.
    pub(crate) fn are_several_awake(&self, now: Time) -> bool {
        let is_awake = |peer: &&Peer| peer.users > 0 && now.since(peer.heard_at) < LEASE_NS;
        self.entries.iter().filter(is_awake).nth(1).is_some()
    }

    /// Room for slots `0..count`.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > self.claims.len() {
            self.claims.resize(count, Claim::default());
        }
    }

    /// Whether queue pair `slot` may send a packet of `cost` now: there is room, and nobody is before it.
    pub(crate) fn admits(&self, id: PeerId, slot: u32, cost: u32) -> bool {
        let peer = self.get(id);
        let is_next = peer.waiting.is_empty() || self.claims[slot as usize].is_woken();
        is_next && peer.has_room(cost)
    }

    /// Queue pair `slot` takes `cost` of the window.
    pub(crate) fn charge(&mut self, id: PeerId, slot: u32, cost: u32) {
        let peer = self.get_mut(id);
        peer.in_flight += cost;
        peer.packets_in_flight += 1;
        if let Wakefulness::Asleep { probes, .. } = &mut peer.wakefulness {
            *probes = probes.saturating_sub(1);
        }
        self.claims[slot as usize].spend();
    }

    /// Queue `slot` until there is room.
    pub(crate) fn wait(&mut self, id: PeerId, slot: u32) {
        let peer = &mut self.entries[id.0 as usize];
        peer.is_limiting = true;
        self.claims[slot as usize].enter(&mut peer.waiting, slot);
    }

    /// `slot` has had its turn and does not wait.
    pub(crate) fn end_turn(&mut self, slot: u32) {
        self.claims[slot as usize].end_turn();
    }

    /// The next slot that may try again.
    pub(crate) fn wake(&mut self, id: PeerId) -> Option<u32> {
        let peer = self.get_mut(id);
        // Room for a packet or two is not worth a turn: trains would shrink to what each acknowledgement frees.
        if !peer.has_room((peer.window / 2).min(TRAIN_BYTES)) {
            return None;
        }
        let slot = peer.waiting.pop_front()?;
        self.claims[slot as usize] = Claim::Granted;
        Some(slot)
    }

    /// Bytes in flight toward an address, and the widest window of a socket there. For the control path.
    pub(crate) fn window_of(&self, address: IpAddr) -> Option<(u32, u32)> {
        let sockets = || {
            self.entries
                .iter()
                .filter(|peer| peer.users > 0 && peer.socket.address == address)
        };
        let in_flight = sockets().map(Peer::in_flight).sum();
        sockets()
            .map(Peer::window)
            .max()
            .map(|window| (in_flight, window))
    }

    pub(crate) fn get(&self, id: PeerId) -> &Peer {
        &self.entries[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> &mut Peer {
        &mut self.entries[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> (Peers, PeerId) {
        let mut peers = Peers::new(16 << 10);
        peers.reserve(8);
        let id = peers.join("10.0.0.2".parse().unwrap(), 7, Time::ZERO);
        for _ in 1..8 {
            assert_eq!(peers.join("10.0.0.2".parse().unwrap(), 7, Time::ZERO), id);
        }
        (peers, id)
    }

    #[test]
    fn an_empty_path_takes_anything_and_a_full_one_nothing() {
        let (mut peers, id) = peers();
        assert!(peers.admits(id, 0, 1 << 20));
        peers.charge(id, 0, 16 << 10);
        assert!(!peers.admits(id, 0, 1));
        peers.get_mut(id).refund(1, 1);
        assert!(peers.admits(id, 0, 1));
    }

    #[test]
    fn who_comes_late_waits_behind_those_who_wait() {
        let (mut peers, id) = peers();
        peers.charge(id, 0, 16 << 10);
        peers.wait(id, 1);
        peers.wait(id, 2);
        peers.wait(id, 1);
        assert_eq!(peers.wake(id), None);
        peers.get_mut(id).refund(16 << 10, 1);
        assert!(!peers.admits(id, 0, 100), "others were first");
        assert_eq!(peers.wake(id), Some(1));
        assert!(peers.admits(id, 1, 100));
        peers.charge(id, 1, 100);
        // It used its chance, so it goes to the end of the line.
        peers.wait(id, 1);
        assert_eq!(peers.wake(id), Some(2));
        // This one found too little, and keeps its place.
        peers.wait(id, 2);
        assert_eq!(peers.wake(id), Some(2));
        peers.end_turn(2);
        assert_eq!(peers.wake(id), Some(1));
        assert_eq!(peers.wake(id), None);
    }

    #[test]
    fn a_window_grows_only_where_it_limits_and_halves_once_a_loss() {
        let (mut peers, id) = peers();
        let at = Time::from_nanos;
        peers.get_mut(id).grow(1 << 20);
        assert_eq!(peers.get(id).window(), 16 << 10);
        peers.wait(id, 1);
        peers.get_mut(id).grow(16 << 10);
        assert_eq!(peers.get(id).window(), 17 << 10);
        peers.get_mut(id).shrink(at(1_000));
        peers.get_mut(id).shrink(at(2_000));
        assert_eq!(peers.get(id).window(), 17 << 9);
        for round in 1..10 {
            peers.get_mut(id).shrink(at(round * 1_000_000));
        }
        assert_eq!(peers.get(id).window(), MIN_WINDOW_BYTES);
    }

    #[test]
    fn a_peer_that_nobody_uses_is_forgotten() {
        let mut peers = Peers::new(0);
        peers.reserve(2);
        let (one, two): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = peers.join(one, 7, Time::ZERO);
        peers.leave(first, 0);
        assert_eq!(peers.window_of(one), None);
        assert_eq!(peers.join(two, 7, Time::ZERO), first);
    }

    #[test]
    fn processes_on_one_address_have_windows_of_their_own() {
        let mut peers = Peers::new(0);
        peers.reserve(3);
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        let one = peers.join(address, 0x01_0005, Time::ZERO);
        assert_eq!(peers.join(address, 0x01_ffff, Time::ZERO), one);
        assert_ne!(peers.join(address, 0x02_0005, Time::ZERO), one);
    }

    #[test]
    fn a_socket_that_sleeps_gets_single_packets_until_it_is_heard_of() {
        let (mut peers, id) = peers();
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        peers.charge(id, 0, 1000);
        peers.charge(id, 1, 1000);
        assert_eq!(peers.get_mut(id).end_lease(at(5)), Lease::Release);
        assert!(peers.admits(id, 2, 1000), "awake: something was heard 5 ms ago");
        assert_eq!(peers.get_mut(id).end_lease(at(10)), Lease::Release);
        assert!(!peers.admits(id, 3, 1000));
        assert_eq!(peers.get_mut(id).end_lease(at(20)), Lease::Keep);
        assert!(!peers.admits(id, 3, 1000));
        assert_eq!(peers.get_mut(id).end_lease(at(50)), Lease::Keep);
        assert!(peers.admits(id, 3, 1000), "a probe");
        peers.charge(id, 3, 1000);
        assert!(!peers.admits(id, 3, 1000));
        peers.get_mut(id).note_heard(at(60));
        assert!(peers.admits(id, 3, 1000));
    }
}
