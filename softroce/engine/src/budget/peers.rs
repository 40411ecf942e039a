//! The windows toward all peers, and who waits before them.

use std::net::IpAddr;

use super::peer::{MAX_WINDOW_BYTES, MIN_WINDOW_BYTES, Peer, Socket};
use super::{Claim, LEASE_NS};
use crate::Time;

/// First window when the configuration does not say, bytes.
const DEFAULT_WINDOW_BYTES: u32 = 16 << 10;
/// What the longest train costs. Who waits for room goes on when one fits, or half of a small window.
const TRAIN_BYTES: u32 = 67 << 10;

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
        let socket = Socket::of(address, qpn);
        let found = self
            .entries
            .iter()
            .position(|peer| peer.users > 0 && peer.socket == socket);
        let index = found.unwrap_or_else(|| {
            let fresh = Peer::new(socket, self.initial_window, now);
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
        self.get_mut(id).charge(cost);
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
        if peer.waiting.is_empty() || !peer.has_room((peer.window() / 2).min(TRAIN_BYTES)) {
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
mod tests;
