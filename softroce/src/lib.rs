//! A user-space RDMA network card: the provider, its progress and its UDP fabric.
//!
//! Read top-down:
//! - [`Softroce`] is a [`verbs_api::Provider`]: a list of devices, one an IP address ([`Options`]).
//! - A [`Device`] holds an engine (`softroce-engine`) and a [`Fabric`] behind the progress gate. The program's own
//!   threads bring it forward in their verbs; a background thread does whenever they leave off.
//! - [`Fabric`] moves packets: over UDP port 4791, or through a simulation.
//!
//! No hand-off stands on the hot path: posting transmits, and polling receives, in the caller's thread.

pub mod announce;
pub mod clock;
pub mod cm;
pub mod fabric;
pub mod faults;
pub mod interfaces;
pub mod journal;
pub mod tap;

mod ah;
mod card;
mod channel;
mod context;
mod cq;
mod description;
mod device;
mod dm;
mod events;
mod exit;
mod fork;
mod gate;
mod handle;
pub mod lock;
mod mr;
mod mw;
mod options;
mod orphans;
mod os;
mod pace;
mod pd;
mod probe;
mod provider;
mod qp;
mod room;
mod srq;
mod system_counters;
mod tempo;
mod unacknowledged;
mod worker;
mod xrc;

pub use ah::Ah;
pub use channel::Channel;
pub use clock::{Clock, MonotonicClock};
pub use cm::{Cm, CmId, GroupMember};
pub use context::Context;
pub use cq::Cq;
pub use description::DeviceDescription;
pub use device::{Device, DeviceCounters};
pub use dm::Dm;
pub use events::EventHandle;
pub use exit::send_what_waits;
pub use fabric::{Endpoint, Fabric, FabricCounters, Faulty, HeaderFields, Trains, UdpFabric, UdpOptions};
pub use faults::Faults;
pub use mr::Mr;
pub use mw::Mw;
pub use options::{Options, ProgressMode};
pub use pd::Pd;
pub use provider::Softroce;
pub use qp::Qp;
pub use softroce_engine::{ObjectCounts, copy_code_range};
pub use srq::Srq;
pub use tap::{Capture, Tap};
pub use xrc::{XrcDomain, XrcOpen};
