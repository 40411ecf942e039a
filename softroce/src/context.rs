//! An open device.

use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use verbs_api::{
    AddressVector, AsyncEventGuard, Capabilities, CqInit, DeviceAttr, Error, Gid, GidEntry, Object, PortAttr,
    Refused, Result, Wc,
};

use crate::channel::{Channel, ChannelInner, ChannelShared};
use crate::cq::Cq;
use crate::device::{Device, Shared};
use crate::dm::Dm;
use crate::events::{AsyncQueue, EventHandle};
use crate::exit;
use crate::faults::{self, Verb};
use crate::handle;
use crate::pd::Pd;
use crate::provider::Softroce;
use crate::qp::Qp;
use crate::room;
use crate::xrc::{XrcDomain, XrcOpen};

/// The only port.
pub(crate) const PORT: u8 = 1;
/// The only P_Key: the default one, full membership.
const DEFAULT_PKEY: u16 = 0xffff;

/// An open device.
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    /// Keeps the device open, and its background thread running.
    owner: Device,
    pub(crate) device: Arc<Shared>,
    pub(crate) async_events: Arc<AsyncQueue>,
}

impl Context {
    /// Open `device` once more; all contexts of a device share its port and its sockets.
    pub(crate) fn new(owner: Device) -> Result<Context> {
        exit::watch();
        let queue =
            AsyncQueue::new().map_err(|e| Error::system("no descriptor for asynchronous events", e))?;
        let async_events = Arc::new(queue);
        let device = owner.shared().clone();
        device.verb(|card, _| {
            card.listeners.add_context(&async_events);
            Ok(())
        })?;
        Ok(Context {
            inner: Arc::new(ContextInner {
                owner,
                device,
                async_events,
            }),
        })
    }

    /// The device beneath, for its counters.
    pub fn device(&self) -> &Device {
        &self.inner.owner
    }

    /// Whether it was inherited through fork: then it answers nothing.
    pub fn is_inherited(&self) -> bool {
        !self.inner.device.is_owned()
    }

    /// The device's attributes, whatever a fault rule says about asking for them.
    ///
    /// # Errors
    /// ENODEV: it was inherited through fork.
    pub fn attributes(&self) -> Result<DeviceAttr> {
        let (attr, has_multicast) = self
            .inner
            .device
            .look(|card| (card.engine.device_attr(), card.fabric.has_multicast()))?;
        // C programs have no other way to see that there are no groups.
        let groups = |count| if has_multicast { count } else { 0 };
        Ok(DeviceAttr {
            max_mcast_grp: groups(attr.max_mcast_grp),
            max_mcast_qp_attach: groups(attr.max_mcast_qp_attach),
            max_total_mcast_qp_attach: groups(attr.max_total_mcast_qp_attach),
            ..attr
        })
    }

    /// The attributes of a port, whatever a fault rule says about asking for them.
    ///
    /// # Errors
    /// EINVAL: there is no such port. ENODEV: the context was inherited through fork.
    pub fn port(&self, port: u8) -> Result<PortAttr> {
        self.inner.check_port(port)?;
        self.inner.device.look(|card| card.engine.port_attr())
    }

    /// As [`open_xrc_domain`](verbs_api::Context::open_xrc_domain), and say whether a domain is to be found or made.
    ///
    /// # Errors
    /// EBADF: `fd` is no open descriptor. EAGAIN, EINVAL: as [`XrcOpen`] says. ENOMEM: the device's limit.
    pub fn open_xrc_domain_as(&self, fd: Option<RawFd>, mode: XrcOpen) -> Result<XrcDomain> {
        XrcDomain::open(&self.inner, fd, mode)
    }

    /// [`async_event`](verbs_api::Context::async_event), and which handle of the queue pair it is told to when it is one
    /// of those.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn async_event_and_handle(&self) -> Result<Option<(AsyncEventGuard, EventHandle)>> {
        self.inner.device.check_owner()?;
        if self.inner.device.faults.is_loaded() && !self.inner.async_events.is_empty() {
            self.inner.device.faults.verb(Verb::GetAsyncEvent)?;
        }
        Ok(self.inner.async_events.pop())
    }

    /// The address of a datagram's sender, from its completion and the GRH area in front of its payload
    /// (`ibv_init_ah_from_wc`).
    ///
    /// # Errors
    /// EINVAL: no such port, no GRH area or no IP header in it, or the datagram was not sent to this device.
    pub fn sender_of(&self, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<AddressVector> {
        self.inner.sender_of(wc, grh, port)
    }
}

impl ContextInner {
    pub(crate) fn owner(&self) -> &Device {
        &self.owner
    }

    pub(crate) fn sender_of(&self, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<AddressVector> {
        self.check_port(port)?;
        self.device.look(|card| card.engine.av_from_wc(wc, grh))?
    }

    /// The device's own GID, while its interface has one.
    pub(crate) fn gid(&self) -> Option<Gid> {
        self.device.gid
    }

    fn check_port(&self, port: u8) -> Result<()> {
        if port == PORT {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} has no port {port}; its only port is {PORT}",
            self.device.name
        )))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.inner.device.name)
            .finish()
    }
}

impl Object for Context {
    /// EBUSY while anything made on the context lives.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.inner.device.is_owned() {
            return Ok(());
        }
        let this = faults::admit(self, Verb::CloseDevice, |context| &context.inner.device.faults)?;
        handle::into_sole_owner(this.inner, "context", "an object made on it")
            .map(drop)
            .map_err(|refused| refused.map(|inner| Context { inner }))
    }
}

impl verbs_api::Context for Context {
    type P = Softroce;

    fn name(&self) -> &str {
        &self.inner.device.name
    }

    fn capabilities(&self) -> Capabilities {
        let (engine, has_multicast) = self
            .inner
            .device
            .look(|card| (card.engine.capabilities(), card.fabric.has_multicast()))
            .unwrap_or_default();
        Capabilities {
            multicast: engine.multicast && has_multicast,
            parent_domain: true,
            ..engine
        }
    }

    fn query_device(&self) -> Result<DeviceAttr> {
        self.inner.device.faults.verb(Verb::QueryDevice)?;
        self.attributes()
    }

    fn query_port(&self, port: u8) -> Result<PortAttr> {
        self.inner.device.faults.verb(Verb::QueryPort)?;
        self.port(port)
    }

    fn gid_table(&self) -> Result<Vec<GidEntry>> {
        self.inner.device.faults.verb(Verb::QueryGid)?;
        self.inner.device.look(|card| card.engine.gid_table().to_vec())
    }

    fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        self.inner.device.faults.verb(Verb::QueryPkey)?;
        self.inner.check_port(port)?;
        match index {
            0 => Ok(DEFAULT_PKEY),
            _ => Err(Error::invalid(format!(
                "port {port} has no P_Key at index {index}; its only one is at 0"
            ))),
        }
    }

    fn clock_ns(&self) -> Result<u64> {
        self.inner.device.faults.verb(Verb::QueryRtValues)?;
        self.inner.device.check_owner()?;
        Ok(self.inner.device.clock.now().as_nanos())
    }

    fn alloc_pd(&self) -> Result<Pd> {
        room::for_small_object()?;
        Pd::alloc(&self.inner)
    }

    fn create_channel(&self) -> Result<Channel> {
        self.inner.device.faults.verb(Verb::CreateCompChannel)?;
        room::for_small_object()?;
        self.inner.device.check_owner()?;
        let shared =
            ChannelShared::new().map_err(|e| Error::system("no descriptor for a completion channel", e))?;
        Ok(Channel {
            inner: Arc::new(ChannelInner {
                shared: Arc::new(shared),
                context: self.inner.clone(),
            }),
        })
    }

    fn create_cq(&self, init: &CqInit<'_, Softroce>) -> Result<Cq> {
        Cq::create(&self.inner, init)
    }

    fn open_xrc_domain(&self, fd: Option<RawFd>) -> Result<XrcDomain> {
        XrcDomain::open(&self.inner, fd, XrcOpen::Either)
    }

    fn alloc_dm(&self, length: usize, log_align: u32) -> Result<Dm> {
        room::for_small_object()?;
        Dm::alloc(&self.inner, length, log_align)
    }

    fn open_qp(&self, domain: &XrcDomain, qpn: u32) -> Result<Qp> {
        Qp::open_target(&self.inner, domain, qpn)
    }

    fn async_event(&self) -> Result<Option<AsyncEventGuard>> {
        self.inner.device.check_owner()?;
        Ok(self.async_event_and_handle()?.map(|(event, _)| event))
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        self.inner.async_events.fd()
    }
}
