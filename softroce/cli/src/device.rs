//! Which softroce device a command uses.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;
use softroce::{Options, Softroce};

/// Which device to use.
#[derive(Args, Debug, Clone)]
pub struct DeviceArgs {
    /// Address of the device (any local address; every 127.x.y.z works without set-up); by default the one that
    /// reaches the peer
    #[arg(long, value_name = "ADDRESS", env = "SOFTROCE_ADDRESS")]
    pub device_address: Option<IpAddr>,
}

/// Open the provider on the chosen address, else on `fallback`.
pub fn open(args: &DeviceArgs, capture: Option<&Path>, fallback: IpAddr) -> Result<Softroce> {
    let mut options = Options::from_env()?;
    options.addresses = vec![args.device_address.unwrap_or(fallback)];
    if let Some(capture) = capture {
        options.capture = Some(capture.to_path_buf());
    }
    Ok(Softroce::new(options)?)
}

/// Say early, before anybody is waited for, when the device's address is none of this machine.
pub fn check_address(args: &DeviceArgs) -> Result<()> {
    let Some(address) = args.device_address else {
        return Ok(());
    };
    std::net::UdpSocket::bind((address, 0))
        .map(drop)
        .with_context(|| {
            format!("--device-address {address} is not usable; it must be an address of this machine (see `ip address`)")
        })
}

/// Say early, and clearly, when the capture cannot be written.
pub fn check_capture(capture: Option<&Path>) -> Result<()> {
    let Some(path) = capture else { return Ok(()) };
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map(drop)
        .with_context(|| format!("cannot write the capture {}", path.display()))
}

/// A path MTU as an argument.
pub fn parse_mtu(text: &str) -> Result<usize, String> {
    let known = text
        .parse()
        .ok()
        .filter(|&bytes| verbs_api::Mtu::from_bytes(bytes).is_some());
    known.ok_or_else(|| "not a path MTU; choose one of 256, 512, 1024, 2048, 4096".to_owned())
}
