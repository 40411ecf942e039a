//! The program `peer` of this package as a pair of processes.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Finished, Running, Stop};
use serde_json::Value;

use crate::pingpong::free_port;

/// Longer than whatever a peer does.
pub const LIMIT: Duration = Duration::from_secs(300);

/// `net.core.rmem_default` of Linux.
pub const USUAL_BUFFER_BYTES: &str = "212992";

/// Where `peer` is.
pub fn program() -> Result<&'static Path, Stop> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| e2e::program::readable_by_all(Path::new(env!("CARGO_BIN_EXE_peer"))));
    found.as_deref().map_err(Stop::fail)
}

/// A listener and its place to call.
pub struct Listener {
    /// The process.
    pub process: Running,
    part: String,
    address: SocketAddr,
}

impl Listener {
    /// Starts `peer PART --listen` on 127.0.0.1 with more options, and returns once it listens.
    pub fn start(bed: &Bed, part: &str, options: &[&str]) -> Result<Listener, Stop> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = peer(bed, part, "--listen", address, options)?;
        wait_for_listener(&process, address.port())?;
        Ok(Listener {
            process,
            part: part.to_owned(),
            address,
        })
    }

    /// Starts a process that calls it.
    pub fn call(&self, bed: &Bed, options: &[&str]) -> Result<Running, Stop> {
        peer(bed, &self.part, "--call", self.address, options)
    }
}

fn peer(bed: &Bed, part: &str, how: &str, address: SocketAddr, options: &[&str]) -> Result<Running, Stop> {
    let words: [OsString; 4] = [
        program()?.into(),
        part.into(),
        how.into(),
        address.to_string().into(),
    ];
    // What peers show must hold with the buffer that every system grants.
    bed.program(&bed.here, words)
        .args(options)
        .variable("SOFTROCE_RECEIVE_BUFFER", USUAL_BUFFER_BYTES)
        .start()
}

/// Waits for a peer's successful end; returns the object that it printed last.
pub fn report_of(process: Running) -> Result<Value, Stop> {
    let finished = process.wait(LIMIT)?;
    finished.succeeded()?;
    last_object(&finished)
}

fn last_object(finished: &Finished) -> Result<Value, Stop> {
    let last = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .map_err(|error| Stop::Fail(format!("no JSON at the end ({error}): {finished}")))
}

/// Waits until a process has printed an object with the field `name`; returns that field.
pub fn printed_field(process: &Running, name: &str) -> Result<Value, Stop> {
    let deadline = std::time::Instant::now() + LIMIT;
    while std::time::Instant::now() < deadline && !process.has_ended() {
        let stdout = process.stdout();
        let mut objects = stdout
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(object) = objects.find(|object| !object[name].is_null()) {
            return Ok(object[name].clone());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Stop::Fail(format!(
        "it never printed `{name}`.\n{}",
        process.report()
    )))
}

/// A number of a report, at a path like `counters.timeouts`.
pub fn number(report: &Value, path: &str) -> Result<u64, Stop> {
    let field = path.split('.').fold(report, |value, name| &value[name]);
    ensure(field.is_u64(), || format!("no number `{path}` in {report}"))?;
    Ok(field.as_u64().unwrap_or_default())
}
