//! Where a script runs: a device under test, the wire to the played end, and a clock.

mod agent;
mod sim;
mod wire;

pub use agent::{Agent, RemoteDut};
pub use sim::SimBench;
pub use wire::WireBench;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use roce_wire::{Headers, Packet};

use crate::call::{Call, Reply};

/// A packet that the device under test has sent.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When, on the bench's clock.
    pub at: Duration,
    /// Its headers.
    pub headers: Headers,
    /// Its payload, pad excluded.
    pub payload: Vec<u8>,
    /// Whether its ICRC is right, where the bench can tell.
    pub icrc_is_valid: bool,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, payload {}", self.headers, self.payload.len())?;
        if !self.icrc_is_valid {
            f.write_str(", icrc INVALID")?;
        }
        Ok(())
    }
}

/// How a packet to be injected gets its ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// A right one.
    Right,
    /// A wrong one.
    Wrong,
}

/// Whether anything can still happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Time passed.
    Going,
    /// Nothing is in flight and no timer runs. Only a simulator knows.
    Dead,
}

/// Where a script runs.
pub trait Bench {
    /// Calls the device under test.
    fn call(&mut self, call: &Call) -> io::Result<Reply>;

    /// Sends bytes (BTH to ICRC, whose last four get overwritten) to the device under test, from the played end.
    fn inject(&mut self, udp_payload: &[u8], seal: Seal) -> io::Result<()>;

    /// The packets that the device under test has sent to the played end since the last call.
    fn take_seen(&mut self) -> io::Result<Vec<Seen>>;

    /// Time since the bench was made.
    fn now(&self) -> Duration;

    /// Lets time pass, but not beyond `until`, and not for long.
    fn advance(&mut self, until: Duration) -> io::Result<Activity>;

    /// The GID of the played end.
    fn played_gid(&self) -> [u8; 16];

    /// How long to wait for what must come, where a line says no time.
    fn patience(&self) -> Duration;

    /// How much later, and earlier, than said things may be seen here.
    fn slack(&self) -> Duration;

    /// Whether time is virtual.
    fn is_virtual(&self) -> bool;

    /// Writes all packets so far to a file, where the bench keeps them.
    fn save_capture(&self, path: &Path) -> io::Result<()>;
}

/// Headers and payload of bytes from the device; `None` when they are no packet.
fn read(bytes: &[u8]) -> Option<Packet<'_>> {
    roce_wire::parse(bytes).ok()
}
