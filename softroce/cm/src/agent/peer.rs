//! Where peers are.

use std::net::IpAddr;

/// How far it is to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// On this machine. Requests that nobody answers are repeated soon, too.
    Machine,
    /// Somewhere.
    #[default]
    Network,
}

/// Who is on the other side, and how to get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Own address.
    pub own: IpAddr,
    /// The peer's address.
    pub address: IpAddr,
    /// The peer's queue pair: 1, or the one that its message came from.
    pub qpn: u32,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 leaves it open.
    pub hop_limit: u8,
    /// Where it is, as far as it matters: for those who are asked.
    pub reach: Reach,
}
