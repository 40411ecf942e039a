//! RoCEv2 on the wire: bytes to values and back, with no I/O and no clock.
//!
//! Every header exists twice. The *view* ([`raw`]) is a `#[repr(C)]` struct over the bytes that keeps every
//! bit, reserved ones included. The *value* ([`Bth`], [`Reth`], [`Headers`] ...) holds only what is legal, and
//! what can be constructed can be emitted.
//!
//! # Contract
//! - [`parse`] and everything else that reads bytes is total: hostile input gives a [`ParseError`] that names
//!   the layer, its offset, and what was needed; nothing panics.
//! - Nothing on the packet path allocates.
//! - What a layer cannot judge alone is left to its user: [`parse`] checks lengths and the transport version,
//!   not the ICRC (see [`icrc`]), the path MTU, keys or sequence numbers.
//! - A reserved opcode is not an error here: its packet parses with a BTH alone, so that a responder can answer
//!   it with a NAK.
#![forbid(unsafe_code)]

pub mod ethernet;
pub mod frame;
pub mod gid;
pub mod grh;
pub mod icrc;
pub mod ip;
pub mod pcap;
pub mod raw;
pub mod source_port;
pub mod udp;

mod bth;
mod display;
mod error;
mod extension;
mod headers;
mod numbers;
mod opcode;
mod packet;
mod syndrome;

pub use bth::Bth;
pub use display::{Description, describe};
pub use error::{EmitError, Layer, ParseError};
pub use extension::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth, XrcEth};
pub use headers::{Headers, MAX_HEADERS_LEN};
pub use numbers::{Msn, PKey, Psn, QKey, Qpn, RKey, Srqn};
pub use opcode::{HeaderSet, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Transport};
pub use packet::{Packet, pad_len, parse};
pub use syndrome::{CreditCode, NakCode, RnrTimer, Syndrome};

/// The UDP destination port of every RoCEv2 packet, requests and responses alike.
pub const ROCE_V2_PORT: u16 = 4791;

/// Bytes of the invariant CRC that ends every packet.
pub const ICRC_LEN: usize = 4;

/// Bytes of the BTH.
pub const BTH_LEN: usize = 12;
