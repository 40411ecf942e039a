//! Sockets over RDMA: byte streams with the calls that programs know from other sockets.
//!
//! Written against the traits of `verbs-api` alone: a provider with a connection manager has sockets too. What the calls
//! do follows rsocket(7); the protocol between two sockets is our own ([`message`]), so both ends must be ours.
//!
//! Read top-down:
//! - [`StreamSocket`] is what a program holds: a lock, and waiting. Calls behave like those of TCP.
//! - A connection comes about by RDMA CM (`handshake`); then it is a queue pair with rings (`link`), and what it means to
//!   be open, half closed, closed, or broken (`connected`).
//! - What peers say is judged without I/O: [`conversation`], with the accounts of [`window`], the bytes of [`message`] and
//!   [`mapping`]. So is `outgoing`, the account of what is posted.
//!
//! # How data travels
//! A sender copies into its send ring and WRITEs from there to the peer's receive ring, with an immediate so that the peer
//! notices. It never sends more than the peer has told it (credits) that there is room for, neither bytes nor messages.
//! Reading copies out of the ring. A buffer that a peer has mapped is written to directly, and nobody is told.
//!
//! # Who makes progress
//! The card takes data in and acknowledges it at any time. All else the program's own calls do, but for what one call could
//! not wait for while another is to be made: a connection that no call waits for comes about by itself, and so does the
//! answer where a datagram is to be sent to (`attendant`). A connection is accepted by `accept`, not before; a peer's room
//! for more data grows when it reads.
//!
//! # A dead peer
//! sends nothing, so a call that waits makes the peer's card answer once in a while ([`LOOK_UP`]). One that does not
//! answer is ECONNRESET, after the time that the card takes to give up (seconds). A connection that ends without the
//! peer having closed it is ECONNRESET as well, and never taken for the end of data.
//!
//! # Bounds
//! Rings, queues, and the table of mappings have the sizes of [`Options`]; everything else is a fixed number.
//!
//! ```no_run
//! use std::sync::Arc;
//! use softroce_rsocket::{Amount, Family, OpenChannel, Patience, StreamSocket};
//!
//! let provider = softroce::Softroce::new(softroce::Options::from_env()?)?;
//! let open: OpenChannel<softroce::Cm> = Arc::new(move || softroce::Cm::new(&provider));
//! let socket = StreamSocket::new(&open, Family::V4)?;
//! socket.connect("127.0.0.1:7471".parse().unwrap())?;
//! socket.send(b"hello", Patience::OfSocket)?;
//! let mut answer = [0; 16];
//! let length = socket.receive(&mut answer, Amount::Some, Patience::OfSocket)?;
//! println!("{:?}", &answer[..length]);
//! socket.close();
//! # Ok::<(), verbs_api::Error>(())
//! ```
#![forbid(unsafe_code)]

mod attendant;
mod connected;
pub mod conversation;
mod datagram;
mod errors;
mod family;
mod front;
mod handshake;
mod link;
pub mod mapping;
mod mappings;
pub mod message;
mod options;
mod outgoing;
mod stream;
mod wait;
pub mod window;

pub use connected::{Ready, Shutdown};
pub use datagram::DatagramSocket;
pub use family::Family;
pub use front::Patience;
pub use mappings::MapFor;
pub use options::{Options, Settings};
pub use stream::{Amount, OpenChannel, StreamSocket};
pub use wait::{LOOK_UP, Watch};
