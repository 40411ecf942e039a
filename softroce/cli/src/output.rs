//! What a command prints to standard output, or writes to a file.

use std::fmt;
use std::fs::File;
use std::io::{self, StdoutLock, Write};
use std::path::Path;

use anyhow::Result;

/// What is written to, with its name: its errors say where.
pub struct Named<W> {
    name: String,
    writer: W,
}

/// Standard output.
pub fn standard() -> Named<StdoutLock<'static>> {
    Named {
        name: "standard output".to_owned(),
        writer: io::stdout().lock(),
    }
}

/// A new file, in place of what is there.
pub fn file(path: &Path) -> Result<Named<File>> {
    let name = path.display().to_string();
    match File::create(path) {
        Ok(writer) => Ok(Named { name, writer }),
        Err(error) => Err(unwritable(&name, &error).into()),
    }
}

fn unwritable(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name} cannot be written: {error}"))
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes);
        written.map_err(|error| unwritable(&self.name, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.flush();
        flushed.map_err(|error| unwritable(&self.name, &error))
    }
}

/// What came of writing. A reader that has gone (`| head`) is no error of ours; a full disk is one.
pub fn unless_unread(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Print a line.
pub fn line(text: impl fmt::Display) -> Result<()> {
    unless_unread(writeln!(standard(), "{text}"))
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
    use std::io::Write as _;
    use std::path::Path;

    use super::{count, file};

    #[test]
    fn an_error_says_where_it_was_written_to() {
        let nowhere = Path::new("/no/such/folder/x");
        let refused = file(nowhere).err().unwrap().to_string();
        assert!(
            refused.starts_with("/no/such/folder/x cannot be written: "),
            "{refused}"
        );
        let mut full = file(Path::new("/dev/full")).unwrap();
        let refused = full.write(b"x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
        assert!(
            refused.to_string().starts_with("/dev/full cannot be written: "),
            "{refused}"
        );
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(count(1u32, "queue pair"), "1 queue pair");
        assert_eq!(count(0u32, "byte"), "0 bytes");
        assert_eq!(count(2u64, "iteration"), "2 iterations");
    }
}
