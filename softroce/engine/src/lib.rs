//! The protocol core of softroce: no socket, no clock, no thread, no lock, no randomness of its own.
mod batch;
mod budget;
mod config;
mod counters;
mod cq;
mod engine;
mod event;
mod memory;
mod pd;
mod psn;
mod qp;
mod qp_table;
mod request;
mod shared;
mod slot_list;
mod slots;
mod time;
mod timer;

pub use batch::{Acks, Path, RxMeta, TxBatch, TxPacket};
pub use config::{Config, PortConfig};
pub use counters::Counters;
pub use cq::CompletionRing;
pub use engine::{Engine, QpConfig, QpHandle};
pub use event::EngineEvent;
pub use memory::{MrInfo, copy_code_range};
pub use request::{SendOperation, SendRequest};
pub use time::Time;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub(crate) u32);
    )*};
}
ids! {
    /// A protection domain.
    PdId,
    /// A memory region.
    MrId,
    /// A memory window.
    MwId,
    /// A completion queue.
    CqId,
    /// A shared receive queue.
    SrqId,
}
