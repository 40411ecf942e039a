//! Which library and which device, for the beds on libibverbs.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use conformance::beds::{BedKind, DROP_IN_ADDRESSES, NativeOptions, drop_in_addresses};

use crate::run::find_drop_in;

/// Whose devices the suite runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// The embedded engine
    Softroce,
    /// An installed libibverbs: a card, or the kernel's soft ones
    Libibverbs,
}

/// How requests are posted to libibverbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Interface {
    /// Lists: `ibv_post_send`, `ibv_poll_cq`
    #[default]
    Lists,
    /// Builder and cursor: `ibv_wr_*`, `ibv_start_poll`
    Extended,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Devices of libibverbs")]
pub struct Options {
    /// Whose devices: softroce, or libibverbs (the same as --bed native)
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "bed")]
    provider: Option<Provider>,
    /// Its device; once: it talks to itself, twice: left and right; the first there is when left out
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Which entry of the GID table; the first of RoCEv2 with an IPv4 address when left out
    #[arg(long, value_name = "N")]
    gid_index: Option<u32>,
    /// Another libibverbs.so.1
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// How requests are posted and completions polled [default: lists]
    #[arg(long, value_enum)]
    interface: Option<Interface>,
    /// The network interfaces at the far ends of the two devices' own, left and right, such as the other ends of two veth
    /// pairs: softroce joins them, and so also runs the cases that see, lose and forge packets (needs root)
    #[arg(long, value_name = "LEFT,RIGHT", value_delimiter = ',', num_args = 1)]
    wire: Vec<String>,
    /// Seconds to wait for what must come; more for an emulated machine [default: 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    patience: Option<u64>,
}

impl Options {
    pub fn native(&self) -> Result<NativeOptions> {
        if self.device.len() > 2 {
            bail!(
                "{} devices were named; one talks to itself, two talk to each other",
                self.device.len()
            );
        }
        let wire = match self.wire.as_slice() {
            [] => None,
            [left, right] if self.device.len() == 2 => Some([left.clone(), right.clone()]),
            [_, _] => bail!("--wire joins two devices: name both, left first, with --device"),
            other => bail!(
                "--wire {} names {} interfaces; it takes two, as in --wire w1,w2",
                other.join(","),
                other.len()
            ),
        };
        Ok(NativeOptions {
            wire,
            library: self.library.clone(),
            devices: self.device.clone(),
            gid_index: self.gid_index,
            interface: match self.interface.unwrap_or_default() {
                Interface::Lists => conformance::beds::Interface::Lists,
                Interface::Extended => conformance::beds::Interface::Extended,
            },
            patience: self.patience.map(Duration::from_secs),
        })
    }

    /// Every option must mean something to one of the beds.
    pub fn check(&self, beds: &[BedKind]) -> Result<()> {
        const LIBRARIES: &[BedKind] = &[BedKind::Native, BedKind::DropIn];
        const NATIVE: &[BedKind] = &[BedKind::Native];
        for (name, is_given, users) in [
            ("--device", !self.device.is_empty(), NATIVE),
            ("--gid-index", self.gid_index.is_some(), NATIVE),
            ("--library", self.library.is_some(), NATIVE),
            ("--wire", !self.wire.is_empty(), NATIVE),
            ("--interface", self.interface.is_some(), LIBRARIES),
            ("--patience", self.patience.is_some(), LIBRARIES),
        ] {
            if is_given {
                expect_use(name, beds, users)?;
            }
        }
        Ok(())
    }

    /// The beds that the provider stands for.
    pub fn beds(&self) -> Option<Vec<BedKind>> {
        self.provider.map(|provider| match provider {
            Provider::Softroce => BedKind::OWN.to_vec(),
            Provider::Libibverbs => vec![BedKind::Native],
        })
    }
}

/// An option that was given must mean something to one of the beds.
pub fn expect_use(option: &str, beds: &[BedKind], users: &[BedKind]) -> Result<()> {
    if beds.iter().any(|bed| users.contains(bed)) {
        return Ok(());
    }
    let names = |beds: &[BedKind]| beds.iter().map(|bed| bed.name()).collect::<Vec<_>>().join(", ");
    bail!(
        "{option} has no meaning with --bed {}; it is for --bed {}",
        names(beds),
        names(users)
    )
}

/// The longest patience, seconds: a day.
const SECONDS_MAX: u64 = 86_400;

/// Tells this program, started by itself, that its variables are right.
const STARTED: &str = "SOFTROCE_CONFORMANCE_DROPIN";

/// The path of the drop-in, in a process whose variables name addresses for its devices. The drop-in takes them from the
/// environment, as in any program, so that this program starts itself anew with them.
pub fn drop_in() -> Result<PathBuf> {
    let path = find_drop_in()?;
    if std::env::var_os(STARTED).is_some() {
        return Ok(path);
    }
    let own = std::env::current_exe().context("where this program lies")?;
    let error = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env(DROP_IN_ADDRESSES, drop_in_addresses())
        .env("SOFTROCE_DEVICES", "")
        .env(STARTED, "1")
        .exec();
    Err(error).context("starting this program anew for the drop-in")
}
