//! The kernel's own soft RoCE driver as the peer, in a throw-away VM (`tests/rxe-vm`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::bed::needs_root;
use e2e::{Case, Outcome, Program, Scratch, Stop};

use crate::peers;

/// Downloads included.
const SETUP_LIMIT: Duration = Duration::from_secs(900);
/// The guest's own limit, and some for starting it.
const RUN_LIMIT: Duration = Duration::from_secs(500);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("kernel rxe serves the provider that libibverbs backs", || {
            interop(&["--native".as_ref(), peers::program()?.as_os_str()])
        }),
        Case::new(
            "kernel rxe and softroce exchange every operation without a retransmission",
            || interop(&[peers::program()?.as_os_str()]),
        ),
        Case::new("kernel rxe is a member of a multicast group of softroce", || {
            script("group.sh", &[peers::program()?.as_os_str()])
        }),
    ]
}

fn interop(arguments: &[&OsStr]) -> Outcome {
    script("interop.sh", arguments)
}

/// Runs a script with these arguments, and fails with what it printed.
fn script(name: &str, arguments: &[&OsStr]) -> Outcome {
    let scratch = Scratch::new()?;
    vm_is_ready(&scratch)?;
    Program::new(&scratch, [folder().join(name)])
        .args(arguments)
        .finish(RUN_LIMIT)?
        .succeeded()
}

fn folder() -> PathBuf {
    e2e::program::repository().join("tests/rxe-vm")
}

/// Fills the VM's cache, which is quick when it is full; skips the case where it cannot be filled.
fn vm_is_ready(scratch: &Scratch) -> Outcome {
    needs_root("start the VM with a network of its own")?;
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_bookworm = release.lines().any(|line| line == "VERSION_CODENAME=bookworm");
    if !is_bookworm || !cfg!(target_arch = "x86_64") {
        return Err(Stop::skip("the VM needs Debian 12 on x86-64"));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(Stop::skip("there is no /dev/net/tun"));
    }
    let program = Program::new(scratch, [folder().join("rxe-vm.sh")]);
    let finished = program.args(["--no-siw", "--setup-only"]).finish(SETUP_LIMIT)?;
    if finished.code() == Some(0) {
        return Ok(());
    }
    let last = finished.stderr.lines().last().unwrap_or_default();
    Err(Stop::Skip(format!("the VM cannot be set up: {last}")))
}
