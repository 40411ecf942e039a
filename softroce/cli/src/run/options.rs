//! What a run can be told: on the command line of `softroce run` and `softroce env`, or by variables in CI files.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use softroce_log::Level;

/// Options of a run.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Addresses of the devices, separated by commas: softroce0 on the first (default 127.0.0.1)
    /// [env: SOFTROCE_ADDRESS]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(super) device_address: Vec<IpAddr>,

    /// So many devices, on loopback addresses that follow each other: 127.0.0.1, 127.0.0.2, ... [env: SOFTROCE_DEVICES]
    #[arg(long, value_name = "N", conflicts_with = "device_address", value_parser = clap::value_parser!(u8).range(1..))]
    devices: Option<u8>,

    /// Write every packet to this pcapng file; all processes of the run write into the one file
    /// [env: SOFTROCE_CAPTURE]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// Keep the last packets of each process (up to 8 MiB), and write them to this pcapng file should the program fail
    /// [env: SOFTROCE_CAPTURE_ON_FAILURE]
    #[arg(long, value_name = "FILE", conflicts_with = "capture")]
    capture_on_failure: Option<PathBuf>,

    /// Have packets, verbs calls and completions go wrong by the rules of this file [env: SOFTROCE_FAULTS]
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,

    /// End the program after so long, with status 124, and say what it waited for: 30, 1.5, 30s, 5m or 1h
    /// [env: SOFTROCE_TIMEOUT]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,

    /// How much the library tells on standard error: off, error, warn, info, debug or trace [env: SOFTROCE_LOG]
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
}

pub(super) const DEVICES: &str = "SOFTROCE_DEVICES";
pub(super) const CAPTURE: &str = "SOFTROCE_CAPTURE";
pub(super) const CAPTURE_ON_FAILURE: &str = "SOFTROCE_CAPTURE_ON_FAILURE";
pub(super) const FAULTS: &str = "SOFTROCE_FAULTS";
pub(super) const TIMEOUT: &str = "SOFTROCE_TIMEOUT";

impl Options {
    /// The addresses wanted, none for the default. The library reads the variables itself.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        match self.devices {
            None => self.device_address.clone(),
            Some(count) => (1..=count).map(|n| Ipv4Addr::new(127, 0, 0, n).into()).collect(),
        }
    }

    pub(super) fn log(&self) -> Option<Level> {
        self.log
    }

    /// Where all packets go.
    pub(super) fn capture(&self) -> Option<PathBuf> {
        if self.capture_on_failure.is_some() {
            return None;
        }
        self.capture
            .clone()
            .or_else(|| variable(CAPTURE).map(PathBuf::from))
    }

    /// Where the last packets go after a failure. A capture of everything makes that needless.
    pub(super) fn capture_on_failure(&self) -> Option<PathBuf> {
        if self.capture().is_some() {
            return None;
        }
        self.capture_on_failure
            .clone()
            .or_else(|| variable(CAPTURE_ON_FAILURE).map(PathBuf::from))
    }

    /// The file of fault rules.
    pub(super) fn faults(&self) -> Option<PathBuf> {
        self.faults
            .clone()
            .or_else(|| variable(FAULTS).map(PathBuf::from))
    }

    /// When to end the program.
    pub(super) fn timeout(&self) -> Result<Option<Duration>> {
        if self.timeout.is_some() {
            return Ok(self.timeout);
        }
        let Some(text) = variable(TIMEOUT) else {
            return Ok(None);
        };
        let text = text
            .into_string()
            .map_err(|text| anyhow!("{TIMEOUT} is not valid UTF-8: {text:?}"))?;
        parse_time(&text).map(Some).with_context(|| TIMEOUT.to_owned())
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// As timeout(1) takes it.
fn parse_time(text: &str) -> Result<Duration> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        Some((at, 'd')) => (&text[..at], 86400.0),
        Some(_) | None => (text, 1.0),
    };
    let time = number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * unit).ok())
        .filter(|time| !time.is_zero() && *time < Duration::from_secs(1 << 31));
    match time {
        Some(time) => Ok(time),
        None => bail!("{text:?} is no time above 0, such as 30, 1.5, 30s, 5m or 1h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, ms) in [
            ("30", 30_000),
            ("1.5", 1_500),
            ("2s", 2_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_time(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "0", "-1", "s", "five", "1e300", "nan", "inf", "3 s"] {
            assert!(parse_time(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn devices_by_number_lie_on_loopback_addresses_of_their_own() {
        let options = Options {
            devices: Some(2),
            ..Options::default()
        };
        let wanted: [IpAddr; 2] = [
            Ipv4Addr::new(127, 0, 0, 1).into(),
            Ipv4Addr::new(127, 0, 0, 2).into(),
        ];
        assert_eq!(options.addresses(), wanted);
    }
}
