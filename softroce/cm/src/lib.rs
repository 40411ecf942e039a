//! Communication management: how connections come and go, without sockets, clocks or threads.
//!
//! An [`Agent`] is the communication manager of one port of one process. It keeps one [`State`] for each connection and
//! follows one table (`state`), whose whole matrix is kept as a snapshot. What it does not know is queue pairs, addresses
//! of programs and event channels: those are its driver's, who keeps one contract:
//!
//! 1. call a command ([`Agent::connect`], [`Agent::reply`], …) or an input ([`Agent::handle_mad`],
//!    [`Agent::handle_timeout`]);
//! 2. then drain [`Agent::poll_transmit`] and [`Agent::poll_event`];
//! 3. and call [`Agent::handle_timeout`] when [`Agent::poll_timeout`] says, or later.
//!
//! Starting PSNs are easily taken the wrong way round: what a side announces is where its **peer** begins to send, the
//! announcer's own receive PSN.
//!
//! Whatever comes from the network is hostile: what does not fit is dropped, or refused as the specification says, and
//! counted ([`Counters`]). Connections, requests that wait and everything else are bounded. The same seed and the same
//! calls give the same messages.
#![forbid(unsafe_code)]

mod agent;
mod connection;
mod counters;
mod event;
mod ids;
mod outbox;
mod state;
mod timing;

pub use agent::{Agent, Connect, Handshake, Peer, Reach, Refuse};
pub use counters::Counters;
pub use event::{Event, Happened, Outgoing, Request};
pub use state::State;
pub use timing::{PACKET_LIFETIME, ack_timeout, code_to_ns};
