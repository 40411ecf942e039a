//! An open device.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};

use verbs_api::{
    AsyncEventGuard, Capabilities, CqInit, DeviceAttr, GidEntry, Object, PortAttr, Refused, Result,
};
use verbs_sys::*;

use crate::library::{Library, last_error};
use crate::probe::Probed;
use crate::raw::{Objects, Raw, destroy_shared};
use crate::{Channel, Cq, Dm, Interface, Native, Pd, Qp, XrcDomain, query};

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) raw: Raw<ibv_context>,
    pub(crate) library: Arc<Library>,
    pub(crate) interface: Interface,
    /// What exists on it.
    pub(crate) objects: Arc<Objects>,
    name: String,
    pub(crate) transport: Transport,
    provider: Native,
    probed: OnceLock<Arc<Probed>>,
}

impl Inner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// What carries a device's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand, or RoCE.
    InfiniBand,
    /// iWARP. Its queue pairs are connected by the connection manager only.
    Iwarp,
    /// Something else.
    Other,
}

/// An open device.
#[derive(Debug)]
pub struct Context(pub(crate) Arc<Inner>);

/// Make a descriptor never block: waiting is done with `poll`.
pub(crate) fn set_nonblocking(fd: c_int) -> Result<()> {
    // SAFETY: plain system calls on a descriptor.
    let result = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 {
            flags
        } else {
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
        }
    };
    if result < 0 {
        Err(last_error("making an event descriptor non-blocking"))
    } else {
        Ok(())
    }
}

impl Context {
    pub(crate) fn open(provider: &Native, device: *mut ibv_device, name: &str) -> Result<Context> {
        let library = &provider.library;
        let (open, close) = (library.ibv_open_device()?, library.ibv_close_device()?);
        // SAFETY: the device is in a live list.
        let transport = match unsafe { (*device).transport_type } {
            IBV_TRANSPORT_IB => Transport::InfiniBand,
            IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::Other,
        };
        // SAFETY: the device is in a live list; the context is ours from here on.
        let raw = unsafe { Raw::new("device context", &Arc::default(), open(device), close, ())? };
        // SAFETY: the context is alive.
        set_nonblocking(unsafe { (*raw.as_ptr()).async_fd })?;
        Ok(Context(Arc::new(Inner {
            raw,
            library: library.clone(),
            interface: provider.interface,
            objects: Arc::default(),
            name: name.into(),
            transport,
            provider: provider.clone(),
            probed: OnceLock::new(),
        })))
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.0.as_ptr()
    }

    /// What carries its messages.
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// The objects that exist on it, in words; `None` when there are none.
    pub fn objects(&self) -> Option<String> {
        self.0.objects.describe()
    }

    /// What the device can do, found out by trying, once for each device of a provider.
    pub(crate) fn probed(&self) -> Arc<Probed> {
        let probe = || {
            let known =
                |map: &mut std::collections::HashMap<String, Arc<Probed>>| map.get(&self.0.name).cloned();
            let lock = || {
                self.0
                    .provider
                    .probed
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            };
            if let Some(probed) = known(&mut lock()) {
                return probed;
            }
            let probed = Arc::new(Probed::find_out(self));
            lock().insert(self.0.name.clone(), probed.clone());
            probed
        };
        self.0.probed.get_or_init(probe).clone()
    }
}

impl Object for Context {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "device", |inner| inner.raw.destroy()).map_err(|refused| Refused {
            object: Context(refused.object),
            error: refused.error,
        })
    }
}

impl verbs_api::Context for Context {
    type P = Native;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        self.probed().capabilities
    }

    fn query_device(&self) -> Result<DeviceAttr> {
        let max_inline_data = self.probed().max_inline_data;
        Ok(DeviceAttr {
            max_inline_data,
            ..query::device(self)?
        })
    }

    fn query_port(&self, port: u8) -> Result<PortAttr> {
        query::port(self, port)
    }

    fn gid_table(&self) -> Result<Vec<GidEntry>> {
        query::gid_table(self)
    }

    fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        query::gid(self, port, index)
    }

    fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        query::pkey(self, port, index)
    }

    fn clock_ns(&self) -> Result<u64> {
        query::clock_ns(self)
    }

    fn alloc_pd(&self) -> Result<Pd> {
        Pd::alloc(self)
    }

    fn create_channel(&self) -> Result<Channel> {
        Channel::create(self)
    }

    fn create_cq(&self, init: &CqInit<'_, Native>) -> Result<Cq> {
        Cq::create(self, init)
    }

    fn open_xrc_domain(&self, fd: Option<RawFd>) -> Result<XrcDomain> {
        XrcDomain::open(self, fd)
    }

    fn alloc_dm(&self, length: usize, log_align: u32) -> Result<Dm> {
        Dm::alloc(self, length, log_align)
    }

    fn open_qp(&self, domain: &XrcDomain, qpn: u32) -> Result<Qp> {
        Qp::open_target(self, domain, qpn)
    }

    fn async_event(&self) -> Result<Option<AsyncEventGuard>> {
        crate::events::take(&self.0)
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the context, which `self` keeps alive.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }
}
