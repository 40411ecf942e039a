//! RDMA CM: connections by address and port.
//!
//! A [`Cm`] is an event channel with ids ([`CmId`]) on it, and the [`verbs_api::ConnectionManager`] of [`Softroce`]. It needs no
//! daemon: each device carries a communication manager (`softroce-cm`) behind its gate, which whoever brings the device
//! forward brings forward too, so handshakes go on while the program sleeps or polls for something else.
//!
//! ```no_run
//! use std::time::Duration;
//! use softroce::{Cm, Options, Softroce};
//! use verbs_api::*;
//!
//! let provider = Softroce::new(Options::from_env()?)?;
//! let cm = Cm::new(&provider)?;
//! let listener = cm.create_id(CmPortSpace::Tcp, 1)?;
//! listener.bind_addr("0.0.0.0:7471".parse().unwrap())?;
//! listener.listen(16)?;
//! while let Some(event) = cm.wait(None)? {
//!     if let (CmEventKind::ConnectRequest, Some(id)) = (event.kind, &event.request) {
//!         let context = id.context().expect("requests have a device");
//!         let pd = context.alloc_pd()?;
//!         // … a completion queue and a queue pair on `pd`, then `id.bind_qp(&qp)?` and:
//!         id.accept(None)?;
//!     }
//! }
//! # Ok::<(), verbs_api::Error>(())
//! ```
//!
//! # What a bridge to C needs to know
//! - A [`Cm`] is an `rdma_event_channel`; its descriptor is readable while an event waits. An id keeps its channel's queue
//!   alive; [`CmId::migrate`](verbs_api::CmId::migrate) moves it. Dropping a channel refuses the requests that wait on it.
//! - An event names its id by the **cookie**, read when the event is taken: set the pointer of the C object there. A new id
//!   ([`CmEvent::request`](verbs_api::CmEvent)) has cookie 0 until [`set_cookie`](verbs_api::CmId::set_cookie); do that before
//!   taking the next event.
//! - Dropping the event is `rdma_ack_cm_event`; [`destroy`](verbs_api::Object::destroy) of its id waits for that.
//! - With [`bind_qp`](verbs_api::CmId::bind_qp) the manager makes all transitions itself, at the moment when a message
//!   arrives, and a client's *Established* comes at once. Without it a client gets *ConnectResponse*, makes the transitions by
//!   [`qp_attr`](verbs_api::CmId::qp_attr) and calls `accept(None)`.
//! - All ids of a provider share one context a device ([`context`](verbs_api::CmId::context)), which closes with its last
//!   user. [`device_name`](verbs_api::CmId::device_name) names it for those who open devices in their own way.
//! - `AF_IB` is not offered: a `SocketAddr` cannot say it. The port space `RDMA_PS_IB` is, for addresses of IP.
//!
//! # Ports
//! A port is held by [claiming](crate::Fabric::claim_service) its service on the device's address, so that other processes
//! on it find it taken, and requests that reach another process find their listener; the kernel frees it at the holder's
//! death. Ids that connect without having bound get a port of the ephemeral range that is only unique within the process:
//! nothing is found by it. A wildcard address stands for all devices of the provider.
//!
//! # Locks
//! The gate of a device comes before the state of an id, that before a channel's queue. Nothing is dropped inside a gate
//! that could own a device.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use verbs_api::{CmEvent, CmPortSpace, ConnectionManager, Error, Result};

use crate::provider::Softroce;
use channel::ChannelShared;
use id::IdInner;

pub use verbs::GroupMember;

pub(crate) mod card;
mod channel;
mod explain;
mod id;
mod link;
mod ports;
mod route;
mod verbs;

/// An event channel of RDMA CM. See the [module's documentation](self).
pub struct Cm {
    provider: Softroce,
    channel: Arc<ChannelShared>,
}

/// An id of RDMA CM: one end of a connection to be, or a listener.
pub struct CmId {
    inner: Arc<IdInner>,
}

impl Cm {
    /// A new channel; ids on it use the devices of `provider`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(provider: &Softroce) -> Result<Cm> {
        let channel =
            ChannelShared::new().map_err(|e| Error::system("no descriptor for an event channel", e))?;
        Ok(Cm {
            provider: provider.clone(),
            channel: Arc::new(channel),
        })
    }

    /// Make the descriptor readable although nothing waits, until an event is taken: whoever sleeps on it looks. For a channel
    /// that is about to go.
    pub fn wake(&self) {
        self.channel.wake();
    }
}

impl ConnectionManager for Cm {
    type P = Softroce;
    type Id = CmId;

    /// No errors.
    fn create_id(&self, space: CmPortSpace, cookie: u64) -> Result<CmId> {
        Ok(CmId {
            inner: IdInner::new(&self.provider, space, cookie, &self.channel),
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CmEvent<Cm>>> {
        Ok(self.channel.wait(timeout)?.map(channel::Queued::into_event))
    }
}

impl Drop for Cm {
    fn drop(&mut self) {
        for event in self.channel.close() {
            event.refuse();
        }
    }
}

impl fmt::Debug for Cm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cm").field("fd", &self.channel.as_fd()).finish()
    }
}
