//! A user-space RDMA network card: the provider, its progress and its UDP fabric.
//!
//! Read top-down:
//! - [`Softroce`] is a [`verbs_api::Provider`]: a list of devices, one an IP address ([`Options`]).
//! - A [`Device`] holds an engine (`softroce-engine`) and a [`Fabric`] behind the progress gate. The program's own
//!   threads bring it forward in their verbs; a background thread does whenever they leave off.
//! - [`Fabric`] moves packets: over UDP port 4791, or through a simulation.
//!
//! No hand-off stands on the hot path: posting transmits, and polling receives, in the caller's thread.
//!
//! A program that writes from one queue pair into the memory of another. With `softroce` and `verbs-api` as path
//! dependencies it needs no C at all; the same code runs on a card with `verbs-native` in place of [`Softroce`].
//!
//! ```
//! use softroce::{Options, Softroce};
//! use verbs_api::*;
//!
//! # fn main() -> Result<()> {
//! let card = Softroce::new(Options::from_env()?)?;
//! let context = card.open(&card.devices()?[0].name)?;
//! let gid = context.query_gid(1, 0)?.gid;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(&CqInit::new(16))?;
//! let asks = pd.create_qp(&QpInit::rc(&cq))?;
//! let answers = pd.create_qp(&QpInit::rc(&cq))?;
//!
//! // Each learns the other's address and number. Programs apart from each other tell them over a socket of their own, or
//! // leave it all to the connection manager: `docs/rdma-cm.md`.
//! let way = AddressVector { dgid: Some(gid), port: 1, hop_limit: 64, ..AddressVector::default() };
//! Connection::new(QpType::Rc, way, answers.qpn()).make(&asks)?;
//! let access = Access::REMOTE_WRITE;
//! Connection { access, ..Connection::new(QpType::Rc, way, asks.qpn()) }.make(&answers)?;
//!
//! let from = Buffer::from_bytes(b"hello");
//! let to = Buffer::new(64);
//! let from_mr = pd.reg_mr(&from, Access::empty())?;
//! let to_mr = pd.reg_mr(&to, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! let sge = [Sge { addr: from.addr(), length: 5, lkey: from_mr.lkey() }];
//! let remote = RemoteAddr { addr: to.addr(), rkey: to_mr.rkey() };
//! asks.post_send(&[SendWr::new(1, SendOp::Write { remote, imm: None }, &sge)]).map_err(|refused| refused.error)?;
//! let mut wc = [Wc::default()];
//! while cq.poll(&mut wc)? == 0 {}
//! assert_eq!((wc[0].status, to.to_vec(0..5)), (WcStatus::Success, b"hello".to_vec()));
//! # Ok(())
//! # }
//! ```

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
