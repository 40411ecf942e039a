//! How the provider is set up, by a program or by environment variables.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use verbs_api::{Error, Result};

use crate::faults::Rules;

/// Who moves packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressMode {
    /// The calling threads within their verbs, and a background thread whenever they leave off.
    #[default]
    Auto,
    /// The background thread alone: calls never touch a socket.
    ThreadOnly,
    /// Nobody, until [`Device::progress`](crate::Device::progress) is called: for simulation.
    Manual,
}

/// Set-up of the provider.
#[derive(Clone, Debug)]
pub struct Options {
    /// One device an address, `softroce0` on the first. Empty means 127.0.0.1.
    pub addresses: Vec<IpAddr>,
    /// Who moves packets.
    pub progress: ProgressMode,
    /// Write every packet to this pcapng file. Several processes may write to one file at the same time.
    pub capture: Option<PathBuf>,
    /// Without `capture`: keep the last packets of the process in two files in this directory, which take turns and are
    /// bounded ([`Capture::last`](crate::Capture::last)).
    pub capture_last: Option<PathBuf>,
    /// Let the kernel cut and join trains of packets (GSO, GRO). Off, every packet is a datagram on its own.
    pub gso: bool,
    /// Receive buffer of a device's socket, bytes as the kernel counts them. The kernel caps it at twice
    /// `net.core.rmem_max`; within that, the more the better for UC and UD, whose packets nobody sends again.
    pub receive_buffer_bytes: u32,
    /// Fault rules to go by.
    pub faults: Option<Arc<Rules>>,
    /// Seeds keys and queue pair numbers; `None` takes the system's randomness.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            addresses: Vec::new(),
            progress: ProgressMode::Auto,
            capture: None,
            capture_last: None,
            gso: true,
            receive_buffer_bytes: 8 << 20,
            faults: None,
            seed: None,
        }
    }
}

impl Options {
    /// The default device address.
    pub const DEFAULT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// From the environment: `SOFTROCE_ADDRESS` (addresses, separated by commas), or `SOFTROCE_DEVICES` (a number of
    /// loopback addresses from 127.0.0.1 on); `SOFTROCE_CAPTURE` (a file), `SOFTROCE_CAPTURE_LAST` (a directory),
    /// `SOFTROCE_GSO` (`0` or `1`), `SOFTROCE_RECEIVE_BUFFER` (bytes), `SOFTROCE_FAULTS` (a file of fault rules),
    /// `SOFTROCE_SEED` (a number), `SOFTROCE_PROGRESS` (`auto` or `thread`).
    /// Unset and empty variables keep the default.
    ///
    /// EINVAL names the variable whose value makes no sense; of a file of rules, the place that makes none. Otherwise what
    /// the system says of that file.
    pub fn from_env() -> Result<Options> {
        Options::from_variables(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(value)) => {
                Err(Error::invalid(format!("{name} is not valid UTF-8: {value:?}")))
            }
        })
    }

    fn from_variables(read: impl Fn(&str) -> Result<Option<String>>) -> Result<Options> {
        let read = |name: &str| Ok::<_, Error>(read(name)?.filter(|value| !value.is_empty()));
        let mut options = Options::default();
        if let Some(list) = read("SOFTROCE_ADDRESS")? {
            for item in list.split(',') {
                let address = item.trim().parse().map_err(|_| {
                    Error::invalid(format!(
                        "SOFTROCE_ADDRESS: {item:?} is not an IP address, such as 127.0.0.2 or ::1"
                    ))
                })?;
                options.addresses.push(address);
            }
        }
        if let Some(value) = read("SOFTROCE_DEVICES")?
            && options.addresses.is_empty()
        {
            let count: u8 = value.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
                Error::invalid(format!(
                    "SOFTROCE_DEVICES is {value:?}; it must be a number from 1 to 255"
                ))
            })?;
            let address = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            options.addresses = (1..=count).map(address).collect();
        }
        options.capture = read("SOFTROCE_CAPTURE")?.map(PathBuf::from);
        options.capture_last = read("SOFTROCE_CAPTURE_LAST")?.map(PathBuf::from);
        if let Some(value) = read("SOFTROCE_GSO")? {
            options.gso = match value.as_str() {
                "0" => false,
                "1" => true,
                _ => {
                    return Err(Error::invalid(format!(
                        "SOFTROCE_GSO is {value:?}; it must be 0 or 1"
                    )));
                }
            };
        }
        if let Some(value) = read("SOFTROCE_RECEIVE_BUFFER")? {
            options.receive_buffer_bytes = value.parse().map_err(|_| {
                Error::invalid(format!(
                    "SOFTROCE_RECEIVE_BUFFER is {value:?}; it must be a number of bytes below 2^32"
                ))
            })?;
        }
        if let Some(path) = read("SOFTROCE_FAULTS")? {
            options.faults = Some(Arc::new(read_rules(&path)?));
        }
        if let Some(value) = read("SOFTROCE_SEED")? {
            let seed = value.parse().map_err(|_| {
                Error::invalid(format!(
                    "SOFTROCE_SEED is {value:?}; it must be a number below 2^64"
                ))
            })?;
            options.seed = Some(seed);
        }
        if let Some(value) = read("SOFTROCE_PROGRESS")? {
            options.progress = match value.as_str() {
                "auto" => ProgressMode::Auto,
                "thread" => ProgressMode::ThreadOnly,
                _ => {
                    return Err(Error::invalid(format!(
                        "SOFTROCE_PROGRESS is {value:?}; it must be auto or thread"
                    )));
                }
            };
        }
        Ok(options)
    }
}

fn read_rules(path: &str) -> Result<Rules> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::system(format!("SOFTROCE_FAULTS: reading {path}"), error))?;
    Rules::parse(&text).map_err(|error| Error::invalid(format!("SOFTROCE_FAULTS: {path}: {error}")))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Options> {
        Options::from_variables(|name| {
            Ok(variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| value.to_string()))
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let options = from(&[("SOFTROCE_ADDRESS", "")]).unwrap();
        assert!(
            options.addresses.is_empty()
                && options.gso
                && options.capture.is_none()
                && options.seed.is_none()
        );
        assert_eq!(options.progress, ProgressMode::Auto);
    }

    #[test]
    fn every_variable_is_taken() {
        let options = from(&[
            ("SOFTROCE_ADDRESS", "127.0.0.2, ::1"),
            ("SOFTROCE_CAPTURE", "/tmp/x.pcapng"),
            ("SOFTROCE_GSO", "0"),
            ("SOFTROCE_SEED", "7"),
            ("SOFTROCE_PROGRESS", "thread"),
        ])
        .unwrap();
        assert_eq!(
            options.addresses,
            ["127.0.0.2".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]
        );
        assert_eq!(options.capture, Some(PathBuf::from("/tmp/x.pcapng")));
        assert_eq!(
            (options.gso, options.seed, options.progress),
            (false, Some(7), ProgressMode::ThreadOnly)
        );
    }

    #[test]
    fn a_senseless_value_is_refused_by_name() {
        for (name, value) in [
            ("SOFTROCE_ADDRESS", "localhost"),
            ("SOFTROCE_GSO", "yes"),
            ("SOFTROCE_DEVICES", "0"),
            ("SOFTROCE_DEVICES", "256"),
            ("SOFTROCE_SEED", "-1"),
            ("SOFTROCE_PROGRESS", "manual"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert_eq!(error.errno(), 22);
            assert!(
                error.to_string().contains(name) && error.to_string().contains(value),
                "{error}"
            );
        }
    }
}
