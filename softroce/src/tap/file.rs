//! The files of captures: one that processes share, and two that take turns.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Bytes that the last packets of a process take at most, see [`Capture::last`](super::Capture::last).
pub const LAST_BYTES: u64 = 8 << 20;

/// What becomes of what is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// It goes, unless somebody is recording there.
    Replace,
    Keep,
}

/// Open a file, or make it, to write to its end. While it is open it is locked (flock, shared): that tells others that
/// somebody is recording there.
pub(super) fn open_shared(path: &Path, contents: Contents) -> io::Result<File> {
    // A named pipe is no place for several, and has nothing to be replaced.
    if path.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return OpenOptions::new().write(true).open(path);
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if contents == Contents::Replace {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            // Devices have no length, and some file systems know no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {
                let _ = file.set_len(0);
            }
        }
    }
    let _ = file.lock_shared();
    Ok(file)
}

/// Two files that take turns. Each begins with what was written first, the header.
#[derive(Debug)]
pub(super) struct Rotating {
    paths: [PathBuf; 2],
    current: usize,
    file: File,
    header: Vec<u8>,
    /// Bytes in the current file.
    length: u64,
}

impl Rotating {
    pub(super) fn create(directory: &Path) -> io::Result<Rotating> {
        let paths = ["pcapng", "pcapng"].map(|kind| crate::journal::own_name(directory, kind));
        let file = File::create(&paths[0])?;
        Ok(Rotating {
            paths,
            current: 0,
            file,
            header: Vec::new(),
            length: 0,
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        self.current ^= 1;
        self.file = File::create(&self.paths[self.current])?;
        self.file.write_all(&self.header)?;
        self.length = self.header.len() as u64;
        Ok(())
    }
}

impl Write for Rotating {
    /// Takes all of it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.header.is_empty() {
            self.header = bytes.to_vec();
        } else if self.length + bytes.len() as u64 > LAST_BYTES / 2 {
            self.turn()?;
        }
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
