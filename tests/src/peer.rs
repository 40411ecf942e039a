//! What the program `peer` does: RDMA processes that tests start, stop, kill, and measure from outside.
//!
//! Each part is generic over the provider. Two ends meet over TCP and exchange JSON, one object a line; what
//! an end found out it prints to stdout as one JSON object, for the test to judge.

pub mod crowd;
pub mod end;
pub mod group;
pub mod incast;
pub mod interop;
pub mod line;
pub mod loss;
pub mod matrix;
pub mod passive;
pub mod pulse;
pub mod scale;

pub use end::{End, Path, Shape};
pub use line::Line;

/// Which end of a conversation this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It was there first and waits.
    Listener,
    /// It calls the other.
    Caller,
}
