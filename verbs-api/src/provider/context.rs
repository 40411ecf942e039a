//! An open device, and its asynchronous events.

use std::os::fd::{BorrowedFd, RawFd};

use crate::{
    AsyncEvent, Capabilities, CqInit, DeviceAttr, Error, GidEntry, Object, PortAttr, Provider, Result,
};

/// An open device (`ibv_context`).
pub trait Context: Object {
    /// The family.
    type P: Provider<Context = Self>;

    /// The device's name.
    fn name(&self) -> &str;
    /// Optional features.
    fn capabilities(&self) -> Capabilities;
    /// Limits and abilities.
    fn query_device(&self) -> Result<DeviceAttr>;
    /// A port, from 1.
    fn query_port(&self, port: u8) -> Result<PortAttr>;
    /// All valid entries of the GID tables.
    fn gid_table(&self) -> Result<Vec<GidEntry>>;
    /// One entry.
    fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        self.gid_table()?
            .into_iter()
            .find(|e| e.port == port && e.index == index)
            .ok_or_else(|| Error::invalid(format!("port {port} has no GID at index {index}")))
    }
    /// One entry of the P_Key table.
    fn query_pkey(&self, port: u8, index: u16) -> Result<u16>;
    /// The device's clock now, ns.
    fn clock_ns(&self) -> Result<u64> {
        Err(Error::unsupported("the device clock"))
    }

    /// A new protection domain.
    fn alloc_pd(&self) -> Result<<Self::P as Provider>::Pd>;
    /// A new completion channel.
    fn create_channel(&self) -> Result<<Self::P as Provider>::Channel>;
    /// A new completion queue.
    fn create_cq(&self, init: &CqInit<'_, Self::P>) -> Result<<Self::P as Provider>::Cq>;
    /// A new XRC domain, or the one shared through the file `fd`.
    fn open_xrc_domain(&self, fd: Option<RawFd>) -> Result<<Self::P as Provider>::XrcDomain> {
        let _ = fd;
        Err(Error::unsupported("XRC"))
    }
    /// Device memory of `length` bytes.
    fn alloc_dm(&self, length: usize, log_align: u32) -> Result<<Self::P as Provider>::Dm> {
        let _ = (length, log_align);
        Err(Error::unsupported("device memory"))
    }

    /// Another handle on an XRC target queue pair that lives in `domain` under the number `qpn`.
    fn open_qp(
        &self,
        domain: &<Self::P as Provider>::XrcDomain,
        qpn: u32,
    ) -> Result<<Self::P as Provider>::Qp> {
        let _ = (domain, qpn);
        Err(Error::unsupported("XRC"))
    }

    /// The next asynchronous event, if there is one. Dropping the guard acknowledges it.
    fn async_event(&self) -> Result<Option<AsyncEventGuard>>;
    /// Readable while an asynchronous event waits.
    fn async_fd(&self) -> BorrowedFd<'_>;
}

/// An asynchronous event that has not been acknowledged yet. Destroying its object waits for that.
pub struct AsyncEventGuard {
    event: AsyncEvent,
    acknowledge: Option<Box<dyn FnOnce() + Send>>,
}

impl AsyncEventGuard {
    /// For providers: `acknowledge` runs when the guard is dropped.
    pub fn new(event: AsyncEvent, acknowledge: impl FnOnce() + Send + 'static) -> Self {
        AsyncEventGuard {
            event,
            acknowledge: Some(Box::new(acknowledge)),
        }
    }

    /// What happened.
    pub fn event(&self) -> AsyncEvent {
        self.event
    }
}

impl std::fmt::Debug for AsyncEventGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.event.fmt(f)
    }
}

impl Drop for AsyncEventGuard {
    fn drop(&mut self) {
        if let Some(acknowledge) = self.acknowledge.take() {
            acknowledge();
        }
    }
}
