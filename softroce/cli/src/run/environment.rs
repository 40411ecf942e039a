//! The variables that a run sets for its program and whatever that starts: all of them, and only here.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Variables with their values, in the order in which they are told.
#[derive(Debug, Default)]
pub(super) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// Those that bring our shared objects into a program: preloaded, and the drop-in first where libraries are looked
    /// for.
    pub(super) fn of_objects(drop_in: &Path, paths: &Path, links: &Path) -> Self {
        let mut environment = Environment::default();
        let mut preloaded = paths.as_os_str().to_owned();
        preloaded.push(":");
        preloaded.push(drop_in);
        environment.set("LD_PRELOAD", prepend(&preloaded, "LD_PRELOAD"));
        environment.set("LD_LIBRARY_PATH", prepend(links.as_os_str(), "LD_LIBRARY_PATH"));
        // AddressSanitizer refuses programs whose first library is not its own. It need not be: nothing that it
        // intercepts is defined by what is preloaded here. Later options, the user's, win.
        environment.set(
            "ASAN_OPTIONS",
            prepend("verify_asan_link_order=0".as_ref(), "ASAN_OPTIONS"),
        );
        environment
    }

    /// One device an address; no addresses leave the default.
    pub(super) fn set_addresses(&mut self, addresses: &[IpAddr]) {
        if !addresses.is_empty() {
            let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            self.set("SOFTROCE_ADDRESS", list.join(","));
        }
    }

    /// Every packet into this file, which is made here, so that it is refused before the program starts.
    pub(super) fn set_capture(&mut self, file: &Path) -> Result<()> {
        self.set("SOFTROCE_CAPTURE", writable(file)?);
        Ok(())
    }

    /// The tree of files that stands for `/sys` and `/dev`.
    pub(super) fn set_tree(&mut self, root: &Path) {
        self.set("SOFTROCE_PATHS", root);
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.push((name, value.into()));
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0.iter().map(|(name, value)| (*name, value.as_os_str()))
    }
}

/// `value` in front of what the variable holds.
fn prepend(value: &OsStr, variable: &str) -> OsString {
    let mut list = value.to_owned();
    if let Some(before) = std::env::var_os(variable).filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

/// The absolute path of a capture file, which can be written to.
fn writable(file: &Path) -> Result<PathBuf> {
    // A named pipe is opened once only, by the program: its reader takes a second opening for the end.
    if file.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(file.canonicalize()?);
    }
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("the capture {} cannot be written", file.display()))?;
    Ok(file.canonicalize()?)
}
