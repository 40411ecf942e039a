//! Logs of the libraries, on standard error.

use std::io;

use tracing_subscriber::filter::LevelFilter;
use verbs_api::{Error, Result};

/// How much is told: `off`, `error`, `warn` (when unset), `info`, `debug` or `trace`.
const VARIABLE: &str = "SOFTROCE_LOG";

/// Begin to print them. EINVAL when the variable holds no such word.
pub(crate) fn start() -> Result<()> {
    let text = std::env::var_os(VARIABLE).unwrap_or_default();
    let level = match text.to_str() {
        Some("") => LevelFilter::WARN,
        Some("off") => LevelFilter::OFF,
        Some("error") => LevelFilter::ERROR,
        Some("warn") => LevelFilter::WARN,
        Some("info") => LevelFilter::INFO,
        Some("debug") => LevelFilter::DEBUG,
        Some("trace") => LevelFilter::TRACE,
        Some(_) | None => {
            return Err(Error::invalid(format!(
                "{VARIABLE} is {text:?}; it must be off, error, warn, info, debug or trace"
            )));
        }
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .without_time()
        .with_target(false)
        .finish();
    // Somebody else of this process may have set another one: it stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}
