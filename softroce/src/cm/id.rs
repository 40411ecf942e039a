//! What an id knows, and how it ends.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roce_wire::cm::ServiceId;
use verbs_api::{CmEventKind, CmPortSpace, Error, Gid, Object, PeerParameters, QpType, Refused, Result};

use super::channel::{ChannelShared, Queued};
use super::link::Link;
use super::{CmId, GroupMember};
use crate::context::ContextInner;
use crate::lock::{Mutex, MutexGuard};
use crate::provider::Softroce;
use crate::qp::QpShared;
use crate::unacknowledged::Unacknowledged;

/// Where an id stands, as far as the program's next call is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddrResolved,
    RouteResolved,
    Listening,
    /// A request of a peer's waits for the program.
    Requested,
    /// A request or a reply is out.
    Connecting,
    /// The peer has replied; the program makes the queue pair ready.
    Replied,
    Connected,
    /// Over, or never there.
    Ended,
}

/// A port that an id holds on a device.
#[derive(Clone)]
pub(super) struct HeldPort {
    pub(super) context: Arc<ContextInner>,
    pub(super) service: ServiceId,
    pub(super) is_listening: bool,
}

/// A queue pair that the manager brings up.
#[derive(Clone)]
pub(super) struct BoundQp {
    pub(super) qpn: u32,
    pub(super) qp_type: QpType,
    pub(super) has_srq: bool,
    pub(super) shared: Arc<QpShared>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdOptions {
    pub(super) type_of_service: u8,
    pub(super) ack_timeout: Option<u8>,
    pub(super) reuse_address: bool,
    pub(super) only_own_family: bool,
}

/// What changes about an id.
pub(super) struct IdState {
    pub(super) phase: Phase,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) device: Option<Arc<ContextInner>>,
    pub(super) ports: Vec<HeldPort>,
    /// The agent's number of the connection.
    pub(super) comm_id: Option<u32>,
    pub(super) qp: Option<BoundQp>,
    pub(super) link: Link,
    /// What the peer said.
    pub(super) offer: PeerParameters,
    pub(super) options: IdOptions,
    /// Groups that were joined, and how.
    pub(super) groups: Vec<(Gid, GroupMember)>,
}

/// See the module's documentation.
pub(crate) struct IdInner {
    /// By which agents know it.
    pub(super) number: u64,
    pub(super) space: CmPortSpace,
    pub(super) provider: Softroce,
    cookie: AtomicU64,
    /// Requests that came to it while it listened.
    pub(super) requests: AtomicU64,
    channel: Mutex<Arc<ChannelShared>>,
    pub(super) unacknowledged: Unacknowledged,
    /// Held by calls that lead from one phase to another: several threads may make them at once. Before all gates.
    pub(super) calls: Mutex<()>,
    state: Mutex<IdState>,
}

impl IdInner {
    pub(super) fn new(
        provider: &Softroce,
        space: CmPortSpace,
        cookie: u64,
        channel: &Arc<ChannelShared>,
    ) -> Arc<IdInner> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(IdInner {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            space,
            provider: provider.clone(),
            cookie: AtomicU64::new(cookie),
            requests: AtomicU64::new(0),
            channel: Mutex::new(channel.clone()),
            unacknowledged: Unacknowledged::default(),
            calls: Mutex::default(),
            state: Mutex::new(IdState {
                phase: Phase::Idle,
                local: None,
                peer: None,
                device: None,
                ports: Vec::new(),
                comm_id: None,
                qp: None,
                link: Link::default(),
                offer: PeerParameters::default(),
                options: IdOptions::default(),
                groups: Vec::new(),
            }),
        })
    }

    /// An id for a request that came to this listener.
    pub(super) fn child(&self) -> Arc<IdInner> {
        let child = IdInner::new(&self.provider, self.space, 0, &self.channel.lock());
        child.lock().options = self.lock().options;
        child
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, IdState> {
        self.state.lock()
    }

    pub(super) fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    pub(super) fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Put an event on its channel; back it comes when nobody listens any more.
    #[allow(clippy::result_large_err, reason = "the event itself, on the way to its end")]
    pub(super) fn push(&self, event: Queued) -> Result<(), Queued> {
        // Locked meanwhile, since one that moves to another channel takes along what waits.
        self.channel.lock().push(event)
    }

    /// An event without more to say.
    pub(super) fn tell(self: &Arc<Self>, kind: CmEventKind, status: i32) {
        // On a closed channel there is nobody to tell.
        let _ = self.push(Queued::new(self, kind, status));
    }

    /// Move to another channel, with what waits.
    pub(super) fn migrate(self: &Arc<Self>, to: &Arc<ChannelShared>) {
        let unwanted: Vec<Queued> = {
            let mut channel = self.channel.lock();
            let from = std::mem::replace(&mut *channel, to.clone());
            let waiting = from.remove(self).into_iter();
            waiting.filter_map(|event| to.push(event).err()).collect()
        };
        unwanted.into_iter().for_each(Queued::refuse);
    }

    /// The protocol number that services of its port space have.
    pub(super) fn protocol(&self) -> u8 {
        self.space as u16 as u8
    }

    /// The device; EINVAL before it is known.
    pub(super) fn device(&self) -> Result<Arc<ContextInner>> {
        self.lock().device.clone().ok_or_else(|| {
            Error::invalid("the id is not bound to a device yet; bind or resolve an address first")
        })
    }

    /// Let go of everything. Outside all gates.
    fn end(self: &Arc<Self>) {
        let (ports, device, comm_id) = {
            let mut state = self.lock();
            state.phase = Phase::Ended;
            state.qp = None;
            (
                std::mem::take(&mut state.ports),
                state.device.take(),
                state.comm_id.take(),
            )
        };
        for port in &ports {
            let _ = port.context.device.verb(|card, _| {
                if port.is_listening {
                    card.cm.agent.unlisten(port.service);
                }
                card.release_port(port.service, port.is_listening);
                Ok(card.cm.forget(self.number))
            });
        }
        if let Some(device) = &device {
            let _ = device.device.verb(|card, now| {
                if let Some(comm_id) = comm_id {
                    card.cm.agent.destroy(now, comm_id);
                    card.manage(now);
                }
                Ok(card.cm.forget(self.number))
            });
        }
        let channel = self.channel.lock().clone();
        for event in channel.remove(self) {
            event.refuse();
        }
    }

    /// The address of the device at hand, as a port of it.
    pub(super) fn address_of(context: &ContextInner) -> Option<IpAddr> {
        let first = context
            .device
            .look(|card| card.engine.gid_table().first().map(|entry| entry.gid.ip()));
        first.ok().flatten()
    }
}

impl fmt::Debug for IdInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmId")
            .field("number", &self.number)
            .field("space", &self.space)
            .finish()
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Object for CmId {
    /// Waits until the events of the id that the program has taken are dropped. A connection ends as the protocol wants.
    fn destroy(self) -> Result<(), Refused<Self>> {
        self.inner.end();
        self.inner.unacknowledged.wait();
        Ok(())
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.inner.end();
    }
}
