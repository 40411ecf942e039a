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
//!
//! # Example
//! A SEND of five bytes, written, sealed, checked and read.
//! ```
//! use roce_wire::icrc::{self, Flow, Verdict};
//! use roce_wire::{Bth, Headers, Opcode, Packet, Psn, Qpn, ROCE_V2_PORT, pad_len, parse};
//!
//! let payload = b"hello";
//! let dest_qp = Qpn::new(0x11).expect("24 bits");
//! let mut bth = Bth::new(Opcode::RC_SEND_ONLY, dest_qp, Psn::new(0x123456));
//! bth.pad = pad_len(payload.len());
//! let packet = Packet { headers: Headers::new(bth), payload, pad: &[0; 3], icrc: [0; 4] };
//! let mut datagram = [0; 64];
//! let len = packet.emit(&mut datagram)?;
//!
//! let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
//! let flow = Flow { src, dst, source_port: 0xc000, dest_port: ROCE_V2_PORT };
//! icrc::seal(&flow, 0, &mut datagram[..len]);
//!
//! assert_eq!(icrc::verify(&flow, &[0], &datagram[..len]), Verdict::Valid);
//! let received = parse(&datagram[..len])?;
//! assert_eq!(received.payload, payload);
//! assert_eq!(
//!     received.to_string(),
//!     "RC_SEND_ONLY qp 0x11 psn 0x123456 migrated, payload 5 pad 3"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod cm;
pub mod ethernet;
pub mod frame;
pub mod gid;
pub mod grh;
pub mod icrc;
pub mod ip;
pub mod mad;
pub mod pcap;
pub mod raw;
pub mod source_port;
pub mod udp;

mod bth;
mod crc32;
mod display;
mod error;
mod extension;
mod fields;
mod flush;
mod headers;
mod numbers;
mod opcode;
mod packet;
mod syndrome;

pub use bth::Bth;
pub use display::{Description, describe};
pub use error::{EmitError, Layer, ParseError};
pub use extension::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
pub use flush::{FlushPlacement, FlushSelectivity};
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
