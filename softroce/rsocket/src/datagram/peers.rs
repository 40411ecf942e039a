//! Who is known by address and port, and on which station they are reached. Bounded: the one known longest is forgotten
//! first, and asked for again when it is needed.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use verbs_api::ConnectionManager;

use super::station::Destination;

/// As many are known.
const PEERS_MAX: usize = 1024;

/// How a peer stands.
pub(super) enum Peer<M: ConnectionManager> {
    /// It is asked, under this cookie.
    Asked { id: M::Id, cookie: u64 },
    /// It is reached so, from the station of this position.
    Known {
        station: usize,
        destination: Destination<M::P>,
    },
}

/// See the module's documentation.
pub(super) struct Peers<M: ConnectionManager> {
    known: HashMap<SocketAddr, Peer<M>>,
    /// Oldest first; each known one stands here once.
    order: VecDeque<SocketAddr>,
}

impl<M: ConnectionManager> Default for Peers<M> {
    fn default() -> Self {
        Peers {
            known: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<M: ConnectionManager> Peers<M> {
    pub(super) fn get(&self, address: SocketAddr) -> Option<&Peer<M>> {
        self.known.get(&address)
    }

    /// Where a known one is reached.
    pub(super) fn destination(&self, address: SocketAddr) -> Option<(usize, &Destination<M::P>)> {
        match self.known.get(&address)? {
            Peer::Known { station, destination } => Some((*station, destination)),
            Peer::Asked { .. } => None,
        }
    }

    pub(super) fn set(&mut self, address: SocketAddr, peer: Peer<M>) {
        if self.known.insert(address, peer).is_none() {
            self.order.push_back(address);
        }
        if self.order.len() > PEERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, address: SocketAddr) {
        drop(self.take(address));
    }

    /// Take one out.
    pub(super) fn take(&mut self, address: SocketAddr) -> Option<Peer<M>> {
        let peer = self.known.remove(&address)?;
        self.order.retain(|other| *other != address);
        Some(peer)
    }

    /// Who is asked under this cookie.
    pub(super) fn asked(&self, cookie: u64) -> Option<(SocketAddr, &M::Id)> {
        self.known.iter().find_map(|(address, peer)| match peer {
            Peer::Asked { id, cookie: own } if *own == cookie => Some((*address, id)),
            _ => None,
        })
    }

    pub(super) fn is_asking(&self) -> bool {
        self.known.values().any(|peer| matches!(peer, Peer::Asked { .. }))
    }
}
