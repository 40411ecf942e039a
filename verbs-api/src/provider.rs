//! The provider traits: a device, and the objects that it hands out.
//!
//! A provider is a family of types tied together by [`Provider`]. Handles own their parents, so the order in which
//! they are dropped does not matter; dropping destroys. `destroy` does the same but reports a refusal and hands the
//! object back, as `EBUSY` does in C. Handles are `Send + Sync`: any thread may call any verb.
//!
//! Everything that a card may lack has a default that answers [`ErrorKind::Unsupported`](crate::ErrorKind).

mod completion_queue;
mod context;
mod domain;
mod queue;

pub use completion_queue::{CompletionChannel, CompletionQueue, CqEvent, CqInit};
pub use context::{AsyncEventGuard, Context};
pub use domain::{Advice, DeviceMemory, MemoryRegion, MemoryWindow, MwType, ProtectionDomain, Rereg};
pub use queue::{DataOp, QpInit, QueuePair, SharedReceiveQueue, SrqAttr, SrqInit};

use crate::{DeviceInfo, Refused, Result};

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
