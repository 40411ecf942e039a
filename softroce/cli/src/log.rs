//! Logs of the libraries, on standard error.

use std::io;

use anyhow::{Result, anyhow};
use tracing_subscriber::filter::LevelFilter;

/// How much is told.
pub const VARIABLE: &str = "SOFTROCE_LOG";

/// A level by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    /// As the variable says it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }

    /// Of the variable; `warn` when it is unset or empty.
    fn from_environment() -> Result<Level> {
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        if text.is_empty() {
            return Ok(Level::Warn);
        }
        text.to_str()
            .and_then(|text| <Level as clap::ValueEnum>::from_str(text, true).ok())
            .ok_or_else(|| {
                anyhow!("{VARIABLE} is {text:?}; it must be off, error, warn, info, debug or trace")
            })
    }

    fn filter(self) -> LevelFilter {
        match self {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

/// Begin to print them.
///
/// # Errors
/// The variable holds no level.
pub fn start() -> Result<()> {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::from_environment()?.filter())
        .with_writer(io::stderr)
        .without_time()
        .with_target(false)
        .finish();
    // Somebody else of this process may have set another one: it stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}
