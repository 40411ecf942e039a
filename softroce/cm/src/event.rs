//! What an agent tells its driver: events, and datagrams to be sent.

use std::net::IpAddr;

use roce_wire::cm::ip::IpCm;
use roce_wire::cm::{RejectReason, RejectedMessage, Rep, Req, ServiceId, SidrRep};
use roce_wire::mad::MAD_LEN;

use crate::agent::Handshake;

/// A datagram for queue pair 1 of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Own address.
    pub src: IpAddr,
    /// The peer's.
    pub dst: IpAddr,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 leaves it open.
    pub hop_limit: u8,
    /// The peer's queue pair: 1, or the one that a message came from.
    pub dest_qpn: u32,
    /// Its bytes.
    pub mad: [u8; MAD_LEN],
}

/// Something that happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The connection, by its number here.
    pub id: u32,
    /// What its owner gave as its own number; for requests that of the listener.
    pub owner: u64,
    /// What happened.
    pub happened: Happened,
}

/// A request of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Own address, to which it was sent.
    pub own: IpAddr,
    /// The peer's.
    pub peer: IpAddr,
    /// For which service.
    pub service: ServiceId,
    /// What RDMA CM put in front of the private data, for services of ports.
    pub ip: Option<IpCm>,
    /// The program's private data: what comes after that, to the end of the field.
    pub private_data: Vec<u8>,
    /// Connected services: the message.
    pub req: Option<Box<Req>>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A peer asks a listener: [`Agent::reply`](crate::Agent::reply) or [`reject`](crate::Agent::reject); without a REQ
    /// [`answer`](crate::Agent::answer).
    Requested(Box<Request>),
    /// The peer has replied: [`Agent::ready`](crate::Agent::ready) or [`reject`](crate::Agent::reject).
    Replied(Box<Rep>),
    /// The peer is ready.
    Established(Vec<u8>),
    /// The peer has refused, or given up. The connection is gone.
    Rejected {
        /// Which message it refused.
        of_message: RejectedMessage,
        /// Why.
        reason: RejectReason,
        /// For the program.
        private_data: Vec<u8>,
    },
    /// The peer does not answer; the handshake as it stood at the end. The connection is gone.
    Unreachable(Handshake),
    /// The connection is over: the peer has asked for it, or agreed, or does not answer.
    Disconnected(Vec<u8>),
    /// Packets of the connection have died out. The connection is gone.
    TimewaitExit,
    /// The peer's answer about a service of datagrams. The number is gone.
    Resolved(Box<SidrRep>),
}
