//! The program as a process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::environment::Environment;

/// The exit status for a program that is not there, as in shells.
pub(super) const NOT_FOUND: u8 = 127;
/// The exit status for a program that cannot be run.
pub(super) const NOT_RUNNABLE: u8 = 126;

/// Become the program; returns only when that fails.
pub(super) fn become_program(
    path: &Path,
    name: &OsStr,
    arguments: &[OsString],
    environment: &Environment,
) -> ExitCode {
    let mut command = Command::new(path);
    command.arg0(name).args(arguments).envs(environment.variables());
    let error = command.exec();
    eprintln!("softroce: {} cannot be run: {error}", path.display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_RUNNABLE
    })
}
