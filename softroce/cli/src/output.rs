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

/// So many of something, in words: `1 iteration`, `2 iterations`.
pub fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(count(1u32, "queue pair"), "1 queue pair");
        assert_eq!(count(0u32, "byte"), "0 bytes");
        assert_eq!(count(2u64, "iteration"), "2 iterations");
    }
}
