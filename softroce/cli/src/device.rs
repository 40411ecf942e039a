//! Which softroce device a command uses.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;
use roce_wire::ROCE_V2_PORT;
use softroce::{Options, Softroce};
use verbs_api::Provider;

/// Which device to use.
#[derive(Args, Debug, Clone)]
pub struct DeviceArgs {
    /// Address of the device (any local address; every 127.x.y.z works without set-up); by default the one that
    /// reaches the peer, or 127.0.0.1 where there is none. The variable SOFTROCE_ADDRESS says the same
    #[arg(long, value_name = "ADDRESS")]
    pub device_address: Option<IpAddr>,
}

/// Open the provider on the chosen address, else on `fallback`.
pub fn open(args: &DeviceArgs, capture: Option<&Path>, fallback: IpAddr) -> Result<Softroce> {
    let mut options = Options::from_env()?;
    options.addresses = asked_for(args, options.addresses);
    if options.addresses.is_empty() {
        options.addresses.push(fallback);
    }
    if let Some(capture) = capture {
        options.capture = Some(capture.to_path_buf());
    }
    Ok(Softroce::new(options)?)
}

/// Keeps a provider's first device open, to tell at the end what it has counted.
pub struct Counting(softroce::Context);

/// Count from now on.
pub fn counters(provider: &Softroce) -> Result<Counting> {
    let device = provider
        .devices()?
        .into_iter()
        .next()
        .context("the provider has no device")?;
    Ok(Counting(provider.open(&device.name)?))
}

impl Counting {
    /// Everything that is not zero, one a line.
    pub fn text(&self) -> String {
        let counters = self.0.device().counters();
        let fabric = counters.fabric;
        let fabric = [
            ("fabric.sent_datagrams", fabric.sent_datagrams),
            ("fabric.sent_trains", fabric.sent_trains),
            ("fabric.send_refused", fabric.send_refused),
            ("fabric.received_datagrams", fabric.received_datagrams),
            ("fabric.received_trains", fabric.received_trains),
            ("fabric.receive_overflows", fabric.receive_overflows),
            ("fabric.malformed", fabric.malformed),
            ("fabric.forwarded", fabric.forwarded),
            ("fabric.forward_dropped", fabric.forward_dropped),
            ("fabric.adopted", fabric.adopted),
            ("fabric.steering_repairs", fabric.steering_repairs),
        ];
        let counted = counters
            .engine
            .iter()
            .chain(fabric)
            .filter(|(_, count)| *count != 0);
        counted
            .map(|(name, count)| format!("{name:<28} {count}\n"))
            .collect()
    }
}

/// The addresses that the user named: the argument goes before the variable.
fn asked_for(args: &DeviceArgs, variable: Vec<IpAddr>) -> Vec<IpAddr> {
    let named = args.device_address.map_or(variable, |address| vec![address]);
    named.iter().map(IpAddr::to_canonical).collect()
}

/// Say early, before anybody is waited for, when the device's address is none of this machine.
pub fn check_address(args: &DeviceArgs) -> Result<()> {
    for address in asked_for(args, Options::from_env()?.addresses) {
        // A link-local address needs its interface, which the provider looks up.
        if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
            continue;
        }
        // The kernel lets nobody connect to a broadcast address who has not asked for broadcasts, though it lets a
        // socket sit on one.
        let usable = if address.is_unspecified() || address.is_multicast() {
            Err(io::ErrorKind::AddrNotAvailable.into())
        } else {
            UdpSocket::bind((address, 0)).and_then(|socket| socket.connect((address, ROCE_V2_PORT)))
        };
        usable.with_context(|| {
            format!("the device address {address} is not usable; it must be an address of this machine (see `ip address`) that stands for it alone")
        })?;
    }
    Ok(())
}

/// Say early, and clearly, when the capture cannot be written.
pub fn check_capture(capture: Option<&Path>) -> Result<()> {
    let Some(path) = capture else { return Ok(()) };
    // A named pipe is opened once only: its reader takes a second opening for the end.
    if path.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(());
    }
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
