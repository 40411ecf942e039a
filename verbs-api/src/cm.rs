//! Connection management: how two programs find each other and bring a pair of queue pairs to RTS.
//!
//! A provider may lack it: [`ConnectionManager`] is a trait of its own, implemented next to [`Provider`]. The verbs are
//! those of librdmacm: an id walks through address resolution, route resolution and connection; everything that happens
//! arrives as a [`CmEvent`] on the channel of the manager. Nothing blocks but [`ConnectionManager::wait`] and
//! [`Object::destroy`] of an id, which waits until events of the id that a program has taken are dropped.
//!
//! The way of a client: [`create_id`](ConnectionManager::create_id), [`resolve_addr`](CmId::resolve_addr) → *AddrResolved*,
//! [`resolve_route`](CmId::resolve_route) → *RouteResolved*, a queue pair on [`context`](CmId::context) and
//! [`bind_qp`](CmId::bind_qp), [`connect`](CmId::connect) → *Established*. Of a server: `create_id`,
//! [`bind_addr`](CmId::bind_addr), [`listen`](CmId::listen) → *ConnectRequest* with a new id, on which it makes and binds a
//! queue pair, and [`accept`](CmId::accept) → *Established*. Either ends with [`disconnect`](CmId::disconnect) →
//! *Disconnected* on both sides.

mod absent;

pub use absent::{NoCmId, NoConnectionManager};

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::codes::codes;
use crate::{AddressVector, Error, Object, Provider, QpAttr, QpState, QpType, Result};

/// Which services an id stands for; the numbers are those of `rdma_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmPortSpace {
    /// Connected queue pairs (RC, UC, XRC).
    Tcp = 0x0106,
    /// Datagrams (UD), and multicast groups.
    Udp = 0x0111,
    /// Datagrams of those who are on IP over InfiniBand.
    Ipoib = 0x0002,
    /// Connected queue pairs, in the numbers of InfiniBand's own services.
    Ib = 0x013F,
}

impl CmPortSpace {
    /// The port space of a number of C.
    pub const fn from_code(code: u32) -> Option<CmPortSpace> {
        match code {
            0x0106 => Some(CmPortSpace::Tcp),
            0x0111 => Some(CmPortSpace::Udp),
            0x0002 => Some(CmPortSpace::Ipoib),
            0x013F => Some(CmPortSpace::Ib),
            _ => None,
        }
    }

    /// Whether it is about datagrams, and not connections.
    pub const fn is_datagram(self) -> bool {
        matches!(self, CmPortSpace::Udp | CmPortSpace::Ipoib)
    }
}

/// What both sides tell each other at connection time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionParameters<'a> {
    /// Bytes for the peer's program; at most 56 in a request of the TCP port space and 196 in a reply, 180 and 136 of the
    /// UDP port space.
    pub private_data: &'a [u8],
    /// READs and atomics that this side answers at a time; clipped to what the device can.
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding; clipped likewise.
    pub initiator_depth: u8,
    /// End-to-end credits are wanted. Passed on, of no effect.
    pub flow_control: bool,
    /// Retransmissions, 0–7.
    pub retry_count: u8,
    /// RNR retries, 0–7; 7 is without end.
    pub rnr_retry_count: u8,
    /// The queue pair, when the program made it itself and not by [`CmId::bind_qp`], and its type.
    pub qp: Option<(u32, QpType)>,
    /// Whether that queue pair takes its receives from a shared receive queue.
    pub srq: bool,
    /// The Q_Key for that queue pair (UDP port space); `None` is RDMA CM's own, 0x01234567.
    pub qkey: Option<u32>,
}

/// What the peer said about a connection, as seen from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerParameters {
    /// READs and atomics that this side may be asked to answer at a time: the peer's initiator depth.
    pub responder_resources: u8,
    /// READs and atomics that this side may have outstanding: the peer's responder resources.
    pub initiator_depth: u8,
    /// The peer wants end-to-end credits.
    pub flow_control: bool,
    /// Retransmissions (requests).
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry_count: u8,
    /// The peer takes its receives from a shared receive queue.
    pub srq: bool,
    /// The peer's queue pair.
    pub qp_num: u32,
}

/// Where datagrams of a service or group go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPeer {
    /// Address.
    pub av: AddressVector,
    /// Queue pair; 0xffffff for a group.
    pub qp_num: u32,
    /// Its Q_Key.
    pub qkey: u32,
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
    AddrInfoResolved = 16,
    AddrInfoError = 17,
    User = 18,
}

codes!(
    CmEventKind: AddrResolved, AddrError, RouteResolved, RouteError, ConnectRequest, ConnectResponse, ConnectError,
    Unreachable, Rejected, Established, Disconnected, DeviceRemoval, MulticastJoin, MulticastError, AddrChange,
    TimewaitExit, AddrInfoResolved, AddrInfoError, User,
);

/// An event. Dropping it acknowledges it; destroying its id waits for that.
#[derive(Debug)]
pub struct CmEvent<M: ConnectionManager> {
    /// What happened.
    pub kind: CmEventKind,
    /// The cookie of the id that it happened to, at the moment of taking the event (see
    /// [`ConnectionManager::create_id`], [`CmId::set_cookie`]). Of a connection request: the listener's.
    pub cookie: u64,
    /// Connection requests: the new id, for [`CmId::accept`] or [`CmId::reject`]. Its cookie is 0. Dropping it refuses the
    /// request.
    pub request: Option<M::Id>,
    /// 0 when all is well; the reason of a rejection or the status of a refused resolution, as the wire has it; else an
    /// error number, negative as in C.
    pub status: i32,
    /// What the peer's program sent along: the whole field of the message, padded with zeros, since its length does not
    /// travel.
    pub private_data: Vec<u8>,
    /// Requests, responses and established connections: what the peer said.
    pub peer: PeerParameters,
    /// Datagrams: where to send to.
    pub datagram_peer: Option<DatagramPeer>,
    /// Groups: the cookie of [`CmId::join_multicast`]. Events of the program's own: its number.
    pub group_cookie: u64,
    /// Runs when the event is dropped.
    pub acknowledge: Acknowledge,
}

/// Acknowledges an event when it is dropped.
#[derive(Default)]
pub struct Acknowledge(Option<Box<dyn FnOnce() + Send>>);

impl Acknowledge {
    /// For providers.
    pub fn new(acknowledge: impl FnOnce() + Send + 'static) -> Self {
        Acknowledge(Some(Box::new(acknowledge)))
    }
}

impl Drop for Acknowledge {
    fn drop(&mut self) {
        if let Some(acknowledge) = self.0.take() {
            acknowledge();
        }
    }
}

impl std::fmt::Debug for Acknowledge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acknowledge").finish_non_exhaustive()
    }
}

impl ConnectionParameters<'_> {
    /// For a reply: as the peer has offered in its request, seen from this side.
    pub fn as_offered(offer: &PeerParameters) -> Self {
        ConnectionParameters {
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            flow_control: offer.flow_control,
            rnr_retry_count: offer.rnr_retry_count,
            ..ConnectionParameters::default()
        }
    }
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
    ///
    /// # Errors
    /// EAGAIN: nothing waits, `timeout` is `None`, and the program has set `O_NONBLOCK` on the descriptor.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CmEvent<Self>>>;
}

/// One end of a connection to be, or a listener.
pub trait CmId: Object {
    /// The manager.
    type M: ConnectionManager<Id = Self>;

    /// Another cookie.
    fn set_cookie(&self, cookie: u64);
    /// Its port space.
    fn port_space(&self) -> CmPortSpace;
    /// Bind to a local address; port 0 lets the manager choose.
    fn bind_addr(&self, local: SocketAddr) -> Result<()>;
    /// Listen for connection requests, of which `backlog` may wait; 0 is as many as the manager sees fit.
    fn listen(&self, backlog: u32) -> Result<()>;
    /// Find the device that reaches `remote`.
    fn resolve_addr(&self, local: Option<SocketAddr>, remote: SocketAddr, timeout: Duration) -> Result<()>;
    /// Find the path.
    fn resolve_route(&self, timeout: Duration) -> Result<()>;
    /// The opened device, once bound to one address or resolved. All ids of a provider share it.
    fn context(&self) -> Option<<<Self::M as ConnectionManager>::P as Provider>::Context>;
    /// The name of that device.
    fn device_name(&self) -> Option<String>;
    /// The local address, once bound.
    fn local_addr(&self) -> Option<SocketAddr>;
    /// The peer's, once resolved or connected.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Leave the queue pair's transitions to the manager; it goes to INIT at once (UD: to RTS).
    fn bind_qp(&self, qp: &<<Self::M as ConnectionManager>::P as Provider>::Qp) -> Result<()>;
    /// The manager lets go of the queue pair, which stays as it is.
    fn unbind_qp(&self);
    /// The attributes of the next transition, for programs that make them themselves.
    fn qp_attr(&self, state: QpState) -> Result<QpAttr>;
    /// Ask the listener at the resolved address.
    fn connect(&self, parameters: &ConnectionParameters<'_>) -> Result<()>;
    /// Take a connection request. `None`: with the parameters that the peer has offered. After *ConnectResponse* (a client
    /// whose queue pair is not bound): tell the peer that the queue pair is ready.
    fn accept(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()>;
    /// Refuse it; at most 148 bytes, of the UDP port space 136.
    fn reject(&self, private_data: &[u8]) -> Result<()>;
    /// Data came before the last message of the handshake: the connection is there.
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
    /// Traffic class of the connection and of its handshake.
    fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        let _ = type_of_service;
        Err(Error::unsupported("a type of service"))
    }
    /// Local ACK timeout code, 0–31.
    fn set_ack_timeout(&self, code: u8) -> Result<()> {
        let _ = code;
        Err(Error::unsupported("an ACK timeout"))
    }
    /// The address may be bound to although others that allow this have bound to it, as long as nobody listens.
    fn set_reuse_address(&self, reuse: bool) -> Result<()> {
        let _ = reuse;
        Err(Error::unsupported("reusing addresses"))
    }
    /// A wildcard address of IPv6 does not stand for those of IPv4 too.
    fn set_only_own_family(&self, only: bool) -> Result<()> {
        let _ = only;
        Err(Error::unsupported("keeping address families apart"))
    }
}
