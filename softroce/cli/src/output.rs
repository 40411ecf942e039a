//! What a command prints to standard output.

use std::fmt;
use std::io::{self, Write};

use anyhow::{Context as _, Result};

/// Print a line. A reader that has gone (`| head`) is no error of ours; a full disk is one.
pub fn line(text: impl fmt::Display) -> Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output cannot be written"),
    }
}
