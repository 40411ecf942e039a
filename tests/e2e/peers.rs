//! The program `peer` of this package where tests can start it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use e2e::Stop;

/// Where `peer` is.
pub fn program() -> Result<&'static Path, Stop> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| e2e::program::readable_by_all(Path::new(env!("CARGO_BIN_EXE_peer"))));
    found.as_deref().map_err(Stop::fail)
}
