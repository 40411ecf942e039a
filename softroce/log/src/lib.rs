//! Logs of the libraries, on standard error: one subscriber for the command and the shared object.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::str::FromStr;

use tracing_subscriber::filter::LevelFilter;

/// How much is told, by the name of a level; `warn` when it is unset or empty.
pub const VARIABLE: &str = "SOFTROCE_LOG";

/// A level by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
    Off,
    /// What makes work impossible.
    Error,
    /// What goes wrong without failing a call.
    Warn,
    /// What happens seldom.
    Info,
    /// What helps to find a bug.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// All of them, the quietest first.
    pub const ALL: [Level; 6] = [
        Level::Off,
        Level::Error,
        Level::Warn,
        Level::Info,
        Level::Debug,
        Level::Trace,
    ];

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

/// A word that names no level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel {
    word: OsString,
}

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = &self.word;
        write!(
            f,
            "{word:?} is no level of the log; it must be off, error, warn, info, debug or trace"
        )
    }
}

impl std::error::Error for UnknownLevel {}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Level, UnknownLevel> {
        Level::ALL
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(word))
            .ok_or_else(|| UnknownLevel { word: word.into() })
    }
}

/// The level that a value of the variable names.
fn level(value: OsString) -> Result<Level, UnknownLevel> {
    match value.to_str() {
        Some("") => Ok(Level::Warn),
        Some(word) => word.parse(),
        None => Err(UnknownLevel { word: value }),
    }
}

/// Begin to print them. A subscriber that somebody else of this process has set stays.
///
/// # Errors
/// The variable names no level.
pub fn start() -> Result<(), UnknownLevel> {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level(std::env::var_os(VARIABLE).unwrap_or_default())?.filter())
        .with_writer(io::stderr)
        .without_time()
        // Words of a library in a program that knows nothing of it: they say whose they are.
        .with_target(true)
        // A full disk or a pipe that nobody reads is no reason to panic.
        .log_internal_errors(false)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_is_known_by_its_name_and_nothing_means_warn() {
        for wanted in Level::ALL {
            assert_eq!(level(wanted.name().into()), Ok(wanted));
        }
        assert_eq!(level("DEBUG".into()), Ok(Level::Debug));
        assert_eq!(level(OsString::new()), Ok(Level::Warn));
    }

    #[test]
    fn a_wrong_word_is_told_with_what_would_be_right() {
        assert_eq!(
            level("loud".into()).unwrap_err().to_string(),
            "\"loud\" is no level of the log; it must be off, error, warn, info, debug or trace"
        );
    }
}
