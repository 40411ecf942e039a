//! The protocol core of softroce: no socket, no clock, no thread, no lock, no randomness of its own.
//!
//! An [`Engine`] is one port of one device of one process. Datagrams go in, datagrams come out, and time is an argument;
//! the same configuration and the same calls give the same packets. Its driver (the provider around it, or a simulator)
//! keeps one contract:
//!
//! 1. call a command (a verb), [`Engine::handle_datagram`] or [`Engine::handle_timeout`];
//! 2. then drain [`Engine::poll_transmit`] and [`Engine::poll_event`], and completions from the [`CompletionRing`]s;
//! 3. and call [`Engine::handle_timeout`] when [`Engine::poll_timeout`] says, or later.
//!
//! Inside, top-down:
//! - `engine`: the verbs; from a datagram to its queue pair; whose turn it is to send.
//! - `qp`: a queue pair: two work queues, the requester and its completer, the responder, the way into ERR, and the table
//!   of what `modify_qp` takes.
//! - `shared`: what queue pairs act on together; `budget`: how many bytes may be under way; `timer`, `slot_list`: who is
//!   due, who is ready, without a scan over all.
//! - `groups`: who is attached to which multicast group; `integrity`: whether a packet arrived as it was sent.
//! - `management`: the datagrams of queue pair 1, for the driver's communication manager.
//! - `failure`, `waiting`: for people, why something failed, and what does not come to an end waits for.
//! - `mutants`: errors put in on purpose, for a build that tests the tests.
//! - `memory`, `pd`, `cq`, `srq`: registered memory behind keys, protection domains, completion queues, shared receive
//!   queues.
//!
//! What a peer does wrong is never an [`verbs_api::Error`]: it ends in a NAK to the peer and a completion status or an
//! event to the owner. Everything is bounded, and after set-up the data path allocates nothing.
mod batch;
mod budget;
mod config;
mod counters;
mod cq;
mod engine;
mod event;
mod failure;
mod groups;
mod integrity;
mod judge;
mod management;
mod memory;
mod mutants;
mod pacer;
mod pd;
mod pool;
mod prefetch;
mod psn;
mod qp;
mod qp_table;
mod request;
mod shared;
mod slot_list;
mod slots;
mod srq;
mod time;
mod timer;
mod waiting;
mod xrc;

pub use batch::{Acks, Path, RxMeta, TxBatch, TxPacket};
pub use budget::packet_cost;
pub use config::{Config, PortConfig};
pub use counters::Counters;
pub use cq::CompletionRing;
pub use engine::{
    AddressHandle, BindRequest, Engine, Membership, ObjectCounts, QpConfig, QpHandle, SrqConfig, SrqHandle,
};
pub use event::EngineEvent;
pub use failure::{Cause, DropReason, FailedRequest, Failure, Refusal};
pub use judge::CompletionJudge;
pub use management::{ReceivedMad, SentMad};
pub use memory::{MrInfo, copy_code_range};
#[cfg(feature = "mutations")]
pub use mutants::{Mutant, choose as choose_mutant};
pub use request::{SendOperation, SendRequest};
pub use time::Time;
pub use waiting::{Waiting, WaitsFor};

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
    /// An XRC domain.
    XrcDomainId,
    /// Device memory.
    DmId,
}
