//! Logs of the libraries, on standard error: one subscriber for the command and the shared object.
#![forbid(unsafe_code)]

use std::io;

use tracing_subscriber::filter::LevelFilter;

/// How much is told: `off`, `error`, `warn` (when unset), `info`, `debug` or `trace`.
const VARIABLE: &str = "SOFTROCE_LOG";

/// Begin to print them. A value that means nothing counts as unset.
pub fn start() {
    let level = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::WARN))
        .with_writer(io::stderr)
        .without_time()
        .with_target(false)
        .finish();
    // Somebody else of this process may have set another one: it stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
