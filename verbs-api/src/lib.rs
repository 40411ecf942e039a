//! The verbs API of RDMA as Rust traits that any provider can implement.
//!
//! Three layers, read top-down:
//! 1. **Values** ([`QpAttr`], [`SendWr`], [`Wc`], [`DeviceAttr`], …): what travels between a program and a provider.
//! 2. **Traits** ([`Provider`] and the objects that it hands out): what a provider implements.
//! 3. **[`Buffer`]**: memory that a card may write to at any time, without `unsafe` for its owner.
//!
//! A program, or a conformance case, is written once against the traits, and runs on the embedded engine
//! (`softroce`) and on a real card (`verbs-native`) alike.
//!
//! ```
//! use verbs_api::*;
//!
//! /// Send `text` on a connected queue pair of any provider, and wait for its completion.
//! fn send_text<P: Provider>(qp: &P::Qp, cq: &P::Cq, pd: &P::Pd, text: &[u8]) -> Result<Wc> {
//!     let buffer = Buffer::from_bytes(text);
//!     let mr = pd.reg_mr(&buffer, Access::empty())?;
//!     let sge = [Sge { addr: buffer.addr(), length: buffer.len() as u32, lkey: mr.lkey() }];
//!     qp.post_send(&[SendWr::new(1, SendOp::Send { imm: None }, &sge)]).map_err(|refused| refused.error)?;
//!     let mut wc = [Wc::default()];
//!     while cq.poll(&mut wc)? == 0 {}
//!     Ok(wc[0])
//! }
//! ```

mod access;
mod address;
mod buffer;
mod cm;
mod codes;
mod completion;
mod connection;
mod device;
mod error;
mod event;
mod mad;
mod provider;
mod qp_attr;
pub mod table;
mod work_request;

pub use access::{Access, LKey, RKey};
pub use address::{AddressVector, Gid, GidEntry, GidType};
pub use buffer::{Buffer, pattern};
pub use cm::{
    Acknowledge, CmEvent, CmEventKind, CmId, CmPortSpace, ConnectionManager, ConnectionParameters,
    DatagramPeer, NoCmId, NoConnectionManager, PeerParameters,
};
pub use completion::{Notify, Wc, WcFlags, WcOpcode, WcStatus};
pub use connection::Connection;
pub use device::{AtomicCap, DeviceAttr, DeviceInfo, LinkLayer, Mtu, PortAttr, PortState, device_caps};
pub use error::{Error, ErrorKind, PostError, Refused, Result};
pub use event::{AsyncEvent, EventKind, EventSource};
pub use mad::{Mad, MadAgent, MadProvider, MadRegistration, ReceivedMad};
pub use provider::*;
pub use qp_attr::{AltPath, MigState, QpAttr, QpAttrMask, QpCap, QpState, QpType, SqSigType};
pub use work_request::{BindInfo, Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};
