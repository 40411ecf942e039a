//! The provider traits: a device, and the objects that it hands out.
//!
//! A provider is a family of types tied together by [`Provider`]. Handles own their parents, so the order in which
//! they are dropped does not matter; dropping destroys. `destroy` does the same but reports a refusal and hands the
//! object back, as `EBUSY` does in C. Handles are `Send + Sync`: any thread may call any verb.
//!
//! Everything that a card may lack has a default that answers [`ErrorKind::Unsupported`](crate::ErrorKind).

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use crate::{
    Access, AddressVector, AsyncEvent, BindInfo, Buffer, DeviceAttr, DeviceInfo, Error, GidEntry, LKey,
    Notify, PortAttr, PostError, QpAttr, QpCap, QpState, QpType, RKey, RecvWr, Refused, Result, SendWr, Sge,
    SqSigType, Wc,
};

/// A provider: the embedded engine, or libibverbs.
pub trait Provider: Sized + Send + Sync + 'static {
    /// An open device.
    type Context: Context<P = Self>;
    /// A protection domain.
    type Pd: ProtectionDomain<P = Self>;
    /// A memory region.
    type Mr: MemoryRegion<P = Self>;
    /// Device memory.
    type Dm: DeviceMemory<P = Self>;
    /// A memory window.
    type Mw: MemoryWindow<P = Self>;
    /// A completion channel.
    type Channel: CompletionChannel<P = Self>;
    /// A completion queue.
    type Cq: CompletionQueue<P = Self>;
    /// A queue pair.
    type Qp: QueuePair<P = Self>;
    /// A shared receive queue.
    type Srq: SharedReceiveQueue<P = Self>;
    /// An XRC domain.
    type XrcDomain: Object;
    /// An address handle.
    type Ah: Object;

    /// The devices that can be opened.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Open the device of this name.
    fn open(&self, name: &str) -> Result<Self::Context>;
}

/// What every handle can do.
pub trait Object: Sized + std::fmt::Debug + Send + Sync + 'static {
    /// Destroy the object, or hand it back with the reason (EBUSY: something still uses it).
    fn destroy(self) -> Result<(), Refused<Self>>;
}

/// Optional features, known without trying them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Capabilities {
    pub qp_rc: bool,
    pub qp_uc: bool,
    pub qp_ud: bool,
    pub qp_xrc: bool,
    pub srq: bool,
    pub mw_type1: bool,
    pub mw_type2: bool,
    pub device_memory: bool,
    pub null_mr: bool,
    pub rereg_mr: bool,
    pub zero_based: bool,
    pub resize_cq: bool,
    pub cq_timestamps: bool,
    pub multicast: bool,
    pub atomic_write: bool,
    pub flush: bool,
    pub parent_domain: bool,
    pub on_demand_paging: bool,
}

/// How to create a completion queue.
#[derive(Debug)]
pub struct CqInit<'a, P: Provider> {
    /// Completions that it must hold, at least 1.
    pub cqe: u32,
    /// Where its events go.
    pub channel: Option<&'a P::Channel>,
    /// Comes back in its events (`cq_context` in C).
    pub cookie: u64,
    /// Completion vector, below `DeviceAttr::num_comp_vectors`.
    pub comp_vector: u32,
    /// Fill in [`Wc::timestamp_ns`].
    pub timestamps: bool,
}

impl<P: Provider> CqInit<'_, P> {
    /// A queue of `cqe` completions without a channel.
    pub fn new(cqe: u32) -> Self {
        CqInit {
            cqe,
            channel: None,
            cookie: 0,
            comp_vector: 0,
            timestamps: false,
        }
    }
}

/// How to create a queue pair.
#[derive(Debug)]
pub struct QpInit<'a, P: Provider> {
    /// Its service.
    pub qp_type: QpType,
    /// Where sends complete. `None` only for XRC targets.
    pub send_cq: Option<&'a P::Cq>,
    /// Where receives complete. `None` only for XRC.
    pub recv_cq: Option<&'a P::Cq>,
    /// A shared receive queue in place of its own.
    pub srq: Option<&'a P::Srq>,
    /// XRC targets: their domain.
    pub xrc_domain: Option<&'a P::XrcDomain>,
    /// Sizes.
    pub cap: QpCap,
    /// Which sends complete visibly.
    pub sq_sig: SqSigType,
}

impl<'a, P: Provider> QpInit<'a, P> {
    /// A reliable connected queue pair of 64 requests each way, one entry each, on one completion queue.
    pub fn rc(cq: &'a P::Cq) -> Self {
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        QpInit {
            qp_type: QpType::Rc,
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrc_domain: None,
            cap,
            sq_sig: SqSigType::OnRequest,
        }
    }
}

/// How to create a shared receive queue.
#[derive(Debug)]
pub struct SrqInit<'a, P: Provider> {
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries a receive.
    pub max_sge: u32,
    /// Raise SRQ_LIMIT_REACHED below this many; 0 is off.
    pub limit: u32,
    /// Comes back in its events.
    pub cookie: u64,
    /// XRC: domain and completion queue.
    pub xrc: Option<(&'a P::XrcDomain, &'a P::Cq)>,
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub limit: u32,
}

/// The kind of a memory window; the numbers are those of `ibv_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MwType {
    Type1 = 1,
    Type2 = 2,
}

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

/// A protection domain: regions, windows, queues and handles of different domains do not work together.
pub trait ProtectionDomain: Object + Clone {
    /// The family.
    type P: Provider<Pd = Self>;

    /// Register the whole of `buffer`. The region keeps the buffer alive.
    fn reg_mr(&self, buffer: &Buffer, access: Access) -> Result<<Self::P as Provider>::Mr> {
        self.reg_mr_iova(buffer, 0..buffer.len(), buffer.addr(), access)
    }

    /// Register a part of `buffer` under the address `iova`.
    fn reg_mr_iova(
        &self,
        buffer: &Buffer,
        range: std::ops::Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<<Self::P as Provider>::Mr>;

    /// Register memory that the caller owns.
    ///
    /// # Safety
    /// From now until the region is destroyed, `addr .. addr + length` may be read, and with a writing access written,
    /// at any time by the card: no reference to it may be live while that can happen.
    unsafe fn reg_mr_raw(
        &self,
        addr: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<<Self::P as Provider>::Mr>;

    /// A region that swallows writes and reads as zeroes.
    fn alloc_null_mr(&self) -> Result<<Self::P as Provider>::Mr> {
        Err(Error::unsupported("the null memory region"))
    }
    /// Register a part of device memory.
    fn reg_dm_mr(
        &self,
        dm: &<Self::P as Provider>::Dm,
        offset: u64,
        length: usize,
        access: Access,
    ) -> Result<<Self::P as Provider>::Mr> {
        let _ = (dm, offset, length, access);
        Err(Error::unsupported("device memory"))
    }
    /// A new memory window.
    fn alloc_mw(&self, mw_type: MwType) -> Result<<Self::P as Provider>::Mw> {
        let _ = mw_type;
        Err(Error::unsupported("memory windows"))
    }
    /// A new queue pair, in state RESET.
    fn create_qp(&self, init: &QpInit<'_, Self::P>) -> Result<<Self::P as Provider>::Qp>;
    /// A new shared receive queue.
    fn create_srq(&self, init: &SrqInit<'_, Self::P>) -> Result<<Self::P as Provider>::Srq> {
        let _ = init;
        Err(Error::unsupported("shared receive queues"))
    }
    /// A new address handle.
    fn create_ah(&self, av: &AddressVector) -> Result<<Self::P as Provider>::Ah> {
        let _ = av;
        Err(Error::unsupported("address handles"))
    }
    /// An address handle back to the sender of a received UD message whose GRH area is `grh`.
    fn create_ah_from_wc(&self, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<<Self::P as Provider>::Ah> {
        let _ = (wc, grh, port);
        Err(Error::unsupported("address handles"))
    }
    /// Tell the card that ranges of on-demand memory will be needed soon.
    fn advise_mr(&self, advice: Advice, sges: &[Sge]) -> Result<()> {
        let _ = (advice, sges);
        Err(Error::unsupported("memory advice"))
    }
    /// A parent domain above this one: the same domain with caller-chosen resources.
    fn parent_domain(&self) -> Result<Self> {
        Err(Error::unsupported("parent domains"))
    }
}

/// What [`ProtectionDomain::advise_mr`] says; the numbers are those of `ibv_advise_mr_advice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Reads will follow.
    Prefetch = 0,
    /// Writes will follow.
    PrefetchWrite = 1,
    /// Reads will follow, but fault nothing in.
    PrefetchNoFault = 2,
}

/// What of a region [`MemoryRegion::rereg`] changes.
#[derive(Debug)]
pub struct Rereg<'a, P: Provider> {
    /// Another domain.
    pub pd: Option<&'a P::Pd>,
    /// Another buffer.
    pub buffer: Option<&'a Buffer>,
    /// Other rights.
    pub access: Option<Access>,
}

/// A memory region.
pub trait MemoryRegion: Object {
    /// The family.
    type P: Provider<Mr = Self>;

    /// Its local key.
    fn lkey(&self) -> LKey;
    /// Its remote key.
    fn rkey(&self) -> RKey;
    /// The address under which it was registered (`iova`).
    fn addr(&self) -> u64;
    /// Bytes.
    fn length(&self) -> u64;
    /// Change domain, memory or rights in place. On an error the region is as before.
    fn rereg(&mut self, change: &Rereg<'_, Self::P>) -> Result<()> {
        let _ = change;
        Err(Error::unsupported("re-registering memory"))
    }
}

/// Device memory.
pub trait DeviceMemory: Object {
    /// The family.
    type P: Provider<Dm = Self>;
    /// Copy into it.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Copy out of it.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// A memory window.
pub trait MemoryWindow: Object {
    /// The family.
    type P: Provider<Mw = Self>;
    /// Its current remote key.
    fn rkey(&self) -> RKey;
    /// Its kind.
    fn mw_type(&self) -> MwType;
}

/// A completion channel: what a program sleeps on.
pub trait CompletionChannel: Object + Clone {
    /// The family.
    type P: Provider<Channel = Self>;
    /// Readable while an event waits.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Wait for the next event (`None`: without end; zero: do not wait); `None` when the time is over.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>>;
}

/// An event of a completion queue, not acknowledged yet. Dropping acknowledges; destroying the queue waits for that.
pub struct CqEvent {
    cookie: u64,
    acknowledge: Option<Box<dyn FnOnce() + Send>>,
}

impl CqEvent {
    /// For providers: `acknowledge` runs when the event is dropped.
    pub fn new(cookie: u64, acknowledge: impl FnOnce() + Send + 'static) -> Self {
        CqEvent {
            cookie,
            acknowledge: Some(Box::new(acknowledge)),
        }
    }

    /// The cookie of the queue (see [`CqInit::cookie`]).
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

impl std::fmt::Debug for CqEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CqEvent").field("cookie", &self.cookie).finish()
    }
}

impl Drop for CqEvent {
    fn drop(&mut self) {
        if let Some(acknowledge) = self.acknowledge.take() {
            acknowledge();
        }
    }
}

/// A completion queue.
pub trait CompletionQueue: Object + Clone {
    /// The family.
    type P: Provider<Cq = Self>;
    /// Completions that it holds.
    fn cqe(&self) -> u32;
    /// Take up to `out.len()` completions; how many were there.
    fn poll(&self, out: &mut [Wc]) -> Result<usize>;
    /// Ask for one event at the next completion. Completions already there raise none: poll after arming.
    fn req_notify(&self, notify: Notify) -> Result<()>;
    /// Hold events back until `count` completions have come or `period_us` microseconds have passed (a hint).
    fn moderate(&self, count: u16, period_us: u16) -> Result<()> {
        let _ = (count, period_us);
        Err(Error::unsupported("moderating completion queues"))
    }
    /// Make it hold `cqe` completions; those that wait are kept.
    fn resize(&self, cqe: u32) -> Result<()> {
        let _ = cqe;
        Err(Error::unsupported("resizing completion queues"))
    }
}

/// Which data [`QueuePair::data_in_order`] asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataOp {
    /// Receives.
    Recv,
    /// WRITEs by the peer.
    Write,
    /// Answers to READs.
    Read,
}

/// A queue pair.
pub trait QueuePair: Object {
    /// The family.
    type P: Provider<Qp = Self>;
    /// Its number, 24 bits.
    fn qpn(&self) -> u32;
    /// Its service.
    fn qp_type(&self) -> QpType;
    /// The granted sizes.
    fn cap(&self) -> QpCap;
    /// Set attributes, and with `attr.state` change state. On an error everything is as before.
    fn modify(&self, attr: &QpAttr) -> Result<()>;
    /// All attributes that the type has.
    fn query(&self) -> Result<QpAttr>;
    /// The state now.
    fn state(&self) -> Result<QpState> {
        Ok(self.query()?.state.unwrap_or_default())
    }
    /// Post sends, in order.
    fn post_send(&self, requests: &[SendWr<'_, Self::P>]) -> Result<(), PostError>;
    /// Post receives, in order.
    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError>;
    /// Whether the data of a message lands in the order of its addresses, so that its last byte may be polled.
    fn data_in_order(&self, op: DataOp) -> bool {
        let _ = op;
        false
    }
    /// Bind a memory window of type 1; its new remote key.
    fn bind_mw(
        &self,
        mw: &mut <Self::P as Provider>::Mw,
        wr_id: u64,
        bind: &BindInfo<'_, Self::P>,
        signaled: bool,
    ) -> Result<RKey> {
        let _ = (mw, wr_id, bind, signaled);
        Err(Error::unsupported("memory windows"))
    }
    /// Join a multicast group (UD).
    fn attach_mcast(&self, group: crate::Gid, lid: u16) -> Result<()> {
        let _ = (group, lid);
        Err(Error::unsupported("multicast"))
    }
    /// Leave it.
    fn detach_mcast(&self, group: crate::Gid, lid: u16) -> Result<()> {
        let _ = (group, lid);
        Err(Error::unsupported("multicast"))
    }
}

/// A shared receive queue.
pub trait SharedReceiveQueue: Object + Clone {
    /// The family.
    type P: Provider<Srq = Self>;
    /// Its number (XRC).
    fn srqn(&self) -> u32;
    /// Post receives.
    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError>;
    /// Change size (`max_wr`) or arm the limit (`limit`).
    fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()>;
    /// Its attributes.
    fn query(&self) -> Result<SrqAttr>;
}
