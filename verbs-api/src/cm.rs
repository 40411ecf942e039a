//! Connection management: how two programs find each other and bring a pair of queue pairs to RTS.
//!
//! A provider may lack it: [`ConnectionManager`] is a trait of its own, implemented next to [`Provider`]. The verbs are
//! those of librdmacm: an id walks through address resolution, route resolution and connection; everything that happens
//! arrives as a [`CmEvent`] on the channel of the manager. Nothing blocks but [`ConnectionManager::wait`].

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{AddressVector, Error, Object, Provider, QpAttr, QpState, Result};

/// Which services an id stands for; the numbers are those of `rdma_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmPortSpace {
    /// Connected queue pairs (RC, UC, XRC).
    Tcp = 0x0106,
    /// Datagrams (UD), and multicast groups.
    Udp = 0x0111,
    /// InfiniBand service IDs.
    Ib = 0x013F,
}

/// What both sides tell each other at connection time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionParameters<'a> {
    /// Bytes for the peer's program; at most 56 in a request of the TCP port space, 196 in a reply.
    pub private_data: &'a [u8],
    /// READs and atomics that this side answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding.
    pub initiator_depth: u8,
    /// Retransmissions, 0–7.
    pub retry_count: u8,
    /// RNR retries, 0–7; 7 is without end.
    pub rnr_retry_count: u8,
    /// The queue pair, when the program made it itself and not by [`CmId::bind_qp`].
    pub qp_num: Option<u32>,
    /// Whether that queue pair takes its receives from a shared receive queue.
    pub srq: bool,
}

/// What happened to an id; the numbers are those of `rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are those of rdma_get_cm_event(3).
pub enum CmEventKind {
    AddrResolved = 0,
    AddrError = 1,
    RouteResolved = 2,
    RouteError = 3,
    ConnectRequest = 4,
    ConnectResponse = 5,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    MulticastJoin = 12,
    MulticastError = 13,
    AddrChange = 14,
    TimewaitExit = 15,
}

/// An event. Dropping it acknowledges it; destroying its id waits for that.
#[derive(Debug)]
pub struct CmEvent<M: ConnectionManager> {
    /// What happened.
    pub kind: CmEventKind,
    /// The cookie of the id that it happened to (see [`ConnectionManager::create_id`]).
    pub cookie: u64,
    /// Connection requests: the new id, for [`CmId::accept`] or [`CmId::reject`].
    pub request: Option<M::Id>,
    /// Error number, or the reason of a rejection; 0 when all is well.
    pub status: i32,
    /// What the peer's program sent along.
    pub private_data: Vec<u8>,
    /// What the peer offers: `responder_resources` and `initiator_depth` as seen from here.
    pub resources: (u8, u8),
    /// Datagrams: where to send to: address, queue pair number, Q_Key.
    pub datagram_peer: Option<(AddressVector, u32, u32)>,
}

/// A provider's connection manager: ids, and the channel of their events.
///
/// ```
/// use std::net::SocketAddr;
/// use std::time::Duration;
/// use verbs_api::*;
///
/// /// The active side, up to the moment before its queue pair is made.
/// fn resolve<M: ConnectionManager>(cm: &M, to: SocketAddr) -> Result<M::Id> {
///     let id = cm.create_id(CmPortSpace::Tcp, 1)?;
///     id.resolve_addr(None, to, Duration::from_secs(2))?;
///     match cm.wait(Some(Duration::from_secs(5)))? {
///         Some(event) if event.kind == CmEventKind::AddrResolved => Ok(id),
///         Some(event) => Err(Error::invalid(format!("{to} does not resolve: {:?}", event.kind))),
///         None => Err(Error::invalid(format!("{to} does not resolve in time"))),
///     }
/// }
/// ```
pub trait ConnectionManager: Sized + std::fmt::Debug + Send + Sync + 'static {
    /// The verbs that it connects.
    type P: Provider;
    /// An id.
    type Id: CmId<M = Self>;

    /// A new id; `cookie` comes back in its events.
    fn create_id(&self, space: CmPortSpace, cookie: u64) -> Result<Self::Id>;
    /// Readable while an event waits.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Wait for the next event (`None`: without end; zero: do not wait); `None` when the time is over.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CmEvent<Self>>>;
}

/// One end of a connection to be, or a listener.
pub trait CmId: Object {
    /// The manager.
    type M: ConnectionManager<Id = Self>;

    /// Bind to a local address; port 0 lets the manager choose.
    fn bind_addr(&self, local: SocketAddr) -> Result<()>;
    /// Listen for connection requests, of which `backlog` may wait.
    fn listen(&self, backlog: u32) -> Result<()>;
    /// Find the device that reaches `remote`.
    fn resolve_addr(&self, local: Option<SocketAddr>, remote: SocketAddr, timeout: Duration) -> Result<()>;
    /// Find the path.
    fn resolve_route(&self, timeout: Duration) -> Result<()>;
    /// The opened device, once bound or resolved.
    fn context(&self) -> Option<<<Self::M as ConnectionManager>::P as Provider>::Context>;
    /// The local address, once bound.
    fn local_addr(&self) -> Option<SocketAddr>;
    /// The peer's, once resolved or connected.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Leave the queue pair's transitions to the manager.
    fn bind_qp(&self, qp: &<<Self::M as ConnectionManager>::P as Provider>::Qp) -> Result<()>;
    /// The attributes of the next transition, for programs that make them themselves.
    fn qp_attr(&self, state: QpState) -> Result<QpAttr>;
    /// Ask the listener at the resolved address.
    fn connect(&self, parameters: &ConnectionParameters<'_>) -> Result<()>;
    /// Take a connection request.
    fn accept(&self, parameters: &ConnectionParameters<'_>) -> Result<()>;
    /// Refuse it.
    fn reject(&self, private_data: &[u8]) -> Result<()>;
    /// Tell the peer that communication has begun, when a message came before the last handshake message.
    fn established(&self) -> Result<()>;
    /// End the connection; both sides get an event, and work requests outstanding are flushed
    /// ([`WcStatus::WrFlushErr`](crate::WcStatus::WrFlushErr)).
    fn disconnect(&self) -> Result<()>;
    /// Join a multicast group with the queue pair bound to this id.
    fn join_multicast(&self, group: SocketAddr, cookie: u64) -> Result<()> {
        let _ = (group, cookie);
        Err(Error::unsupported("multicast"))
    }
    /// Leave it.
    fn leave_multicast(&self, group: SocketAddr) -> Result<()> {
        let _ = group;
        Err(Error::unsupported("multicast"))
    }
    /// Move the id and its waiting events to another manager's channel.
    fn migrate(&self, to: &Self::M) -> Result<()> {
        let _ = to;
        Err(Error::unsupported("moving an id between event channels"))
    }
    /// Traffic class of the connection.
    fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        let _ = type_of_service;
        Err(Error::unsupported("a type of service"))
    }
    /// Local ACK timeout code, 0–31.
    fn set_ack_timeout(&self, code: u8) -> Result<()> {
        let _ = code;
        Err(Error::unsupported("an ACK timeout"))
    }
}
