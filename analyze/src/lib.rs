//! What a capture shows of the RoCEv2 protocol: whether both ends kept to it, how long they took, and a picture.
//!
//! A capture is read twice, since it holds no set-up of connections. A [`Survey`] learns which two flows are the
//! directions of one connection and what its path MTU is; the [`Analysis`] that comes of it judges each packet. A
//! [`ladder::Ladder`] draws the packets instead.
//!
//! # Contract
//! - No I/O and no clock: records go in ([`roce_wire::pcap::Record`]), a [`Report`] comes out.
//! - Any bytes may go in. Memory is bounded ([`MAX_FLOWS`], [`MAX_CONNECTIONS`], and a window of each connection);
//!   what does not fit is counted, not judged.
//! - A [`Finding`] holds whatever was lost where the capture could not see it: a packet may have been lost before it
//!   came to the place of capture, or behind it. Where the capture says that it was taken at the sender or at the
//!   receiver, less can have been lost unseen, and more is found.
//! - A connection of which the capture provably lacks packets gets no verdict, and the reason.
#![forbid(unsafe_code)]

mod analysis;
mod connection;
mod copies;
mod finding;
mod half;
mod histogram;
pub mod ladder;
mod reading;
mod report;
mod survey;

pub use analysis::{Analysis, MAX_CONNECTIONS};
pub use finding::{Finding, Scope};
pub use histogram::Histogram;
pub use reading::{Flow, Integrity, Observation, Options, Reading, Seat, Service, Sighting};
pub use report::{CmMessage, ConnectionReport, DirectionReport, End, Ending, Report, SenderReport, Verdict};
pub use survey::{MAX_FLOWS, Survey};
