//! The variables that a run sets for its program and whatever that starts: all of them, and only here.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use softroce::{DeviceDescription, Softroce};

use super::options::{CAPTURE, DEVICES, FAULTS, Options};
use super::{capture, links, tree};

/// Variables with their values, in the order in which they are told. An empty value is as good as none.
#[derive(Debug, Default)]
pub(super) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// Those that bring the drop-in into a program (preloaded, and first where libraries are looked for), and what the
    /// options say.
    pub(super) fn new(options: &Options) -> Result<Self> {
        let drop_in = links::find_drop_in()?;
        let paths = links::find_paths()?;
        let links = links::link_directory(&drop_in)?;
        let mut environment = Environment::default();
        let mut preloaded = links::sayable(paths, &links)?.into_os_string();
        preloaded.push(":");
        preloaded.push(links::sayable(drop_in, &links)?);
        environment.set("LD_PRELOAD", prepend(&preloaded, "LD_PRELOAD"));
        environment.set("LD_LIBRARY_PATH", prepend(links.as_os_str(), "LD_LIBRARY_PATH"));
        // AddressSanitizer refuses programs whose first library is not its own. It need not be: what is preloaded here
        // calls on to whatever comes next. Options of the user's come later, and win.
        environment.set(
            "ASAN_OPTIONS",
            prepend("verify_asan_link_order=0".as_ref(), "ASAN_OPTIONS"),
        );
        let addresses = options.addresses();
        if !addresses.is_empty() {
            let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            environment.set("SOFTROCE_ADDRESS", list.join(","));
            environment.set(DEVICES, "");
        }
        if let Some(file) = options.faults() {
            crate::faults::read(&file)?;
            environment.set(FAULTS, std::path::absolute(file)?);
        }
        if let Some(level) = options.log() {
            environment.set(softroce_log::VARIABLE, level.name());
        }
        environment.set_tree(&tree::tree(&devices(addresses)?)?);
        Ok(environment)
    }

    /// Every packet into this file.
    pub(super) fn set_capture(&mut self, file: &Path) -> Result<()> {
        self.set(CAPTURE, capture::writable(file)?);
        Ok(())
    }

    /// The last packets into files in this directory.
    pub(super) fn set_last_packets(&mut self, directory: &Path) {
        self.set("SOFTROCE_CAPTURE_LAST", directory);
    }

    /// Where processes leave what explains a failure.
    pub(super) fn set_journal(&mut self, directory: &Path) {
        self.set(softroce::journal::VARIABLE, directory);
    }

    /// The tree of files that stands for `/sys` and `/dev`.
    pub(super) fn set_tree(&mut self, root: &Path) {
        self.set("SOFTROCE_PATHS", root);
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.push((name, value.into()));
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0.iter().map(|(name, value)| (*name, value.as_os_str()))
    }
}

/// The devices that the program will find on these addresses, or on those of the variables when there are none.
fn devices(addresses: Vec<IpAddr>) -> Result<Vec<DeviceDescription>> {
    let mut options = softroce::Options::from_env()?;
    options.faults = None;
    if !addresses.is_empty() {
        options.addresses = addresses;
    }
    Ok(Softroce::new(options)?.describe()?)
}

/// `value` in front of what the variable holds, unless it is there already.
fn prepend(value: &OsStr, variable: &str) -> OsString {
    let mut list = value.to_owned();
    let before = std::env::var_os(variable).filter(|before| !before.is_empty());
    let first: Vec<PathBuf> = std::env::split_paths(value).collect();
    for entry in before
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|entry| !first.contains(entry))
    {
        list.push(":");
        list.push(entry);
    }
    list
}
