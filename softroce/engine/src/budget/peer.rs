//! The window toward one peer's socket.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::LEASE_NS;
use crate::Time;

/// The smallest window, bytes.
pub(super) const MIN_WINDOW_BYTES: u32 = 8 << 10;
/// The largest window, bytes: below the default socket buffer, with room for somebody else's packets.
pub(super) const MAX_WINDOW_BYTES: u32 = 160 << 10;
/// Losses closer together than this are one loss, ns.
const ONE_LOSS_NS: u64 = 100_000;
/// Time between two packets to a peer that sleeps, ns.
const SLEEP_PROBE_NS: u64 = 40_000_000;
/// A process that answers others so long after a packet went out, ns, has seen that packet.
const ANSWERED_WITHIN_NS: u64 = 1_000_000;
/// Time between probes of queue pairs that are not answered while others are, ns: they have no room in the window.
const PROBE_INTERVAL_NS: u64 = 2_000_000;
/// QPN bits below those that tell the processes of one address apart.
const SLICE_BITS: u32 = 16;

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
pub(super) struct Socket {
    pub(super) address: IpAddr,
    slice: u32,
}

impl Socket {
    /// That of queue pair `qpn` at `address`.
    pub(super) fn of(address: IpAddr, qpn: u32) -> Socket {
        Socket {
            address,
            slice: qpn >> SLICE_BITS,
        }
    }
}

/// The window toward one peer's socket.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(super) socket: Socket,
    wakefulness: Wakefulness,
    /// When the first queue pair came that leads there.
    joined_at: Time,
    /// When something last came from there.
    pub(super) heard_at: Time,
    /// When something last came from there that answers, rather than asks.
    answered_at: Time,
    /// How many queue pairs lead there.
    pub(super) users: u32,
    window: u32,
    in_flight: u32,
    /// How many packets that is.
    packets_in_flight: u32,
    /// Bytes acknowledged toward the next growth.
    credit: u64,
    /// Somebody had to wait since the last growth: a window that nobody fills needs none.
    pub(super) is_limiting: bool,
    last_loss: Option<Time>,
    /// When a queue pair last probed, because only it was not answered.
    probed_at: Option<Time>,
    /// Slots of queue pairs that wait for room, in the order in which they came.
    pub(super) waiting: VecDeque<u32>,
    /// The transmit call that last carried data to this peer.
    pub(crate) last_batch: u64,
}

impl Peer {
    /// One that nobody uses yet.
    pub(super) fn new(socket: Socket, window: u32, now: Time) -> Peer {
        Peer {
            socket,
            wakefulness: Wakefulness::Awake,
            joined_at: now,
            heard_at: now,
            answered_at: now,
            users: 0,
            window,
            in_flight: 0,
            packets_in_flight: 0,
            credit: 0,
            is_limiting: false,
            last_loss: None,
            probed_at: None,
            waiting: VecDeque::new(),
            last_batch: 0,
        }
    }

    /// Take `cost` of the window for a packet.
    pub(super) fn charge(&mut self, cost: u32) {
        self.in_flight += cost;
        self.packets_in_flight += 1;
        if let Wakefulness::Asleep { probes, .. } = &mut self.wakefulness {
            *probes = probes.saturating_sub(1);
        }
    }

    /// Bytes on their way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes that may be on their way.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Whether `cost` more fits. An empty path takes anything: nothing is too big for ever.
    pub(super) fn has_room(&self, cost: u32) -> bool {
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

    /// It was an answer. Requests tell nothing of the peer's answers: kernels and cards make the two independently.
    pub(crate) fn note_answered(&mut self, now: Time) {
        self.answered_at = now;
    }

    /// When something last came from there, if anything did.
    pub(crate) fn heard_at(&self) -> Option<Time> {
        (self.heard_at != self.joined_at).then_some(self.heard_at)
    }

    /// Whether a queue pair that has sent nothing and heard nothing since `quiet_since` may probe: an answer came from
    /// there to others clearly later, so that its packet was seen or lost, and nobody else has just probed.
    pub(crate) fn admits_probe(&self, quiet_since: Time, now: Time) -> bool {
        self.answered_at > quiet_since + ANSWERED_WITHIN_NS
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
