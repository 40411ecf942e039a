//! Files as names that processes agree on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Which file it is, by whatever descriptor it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

/// A file that stays what it is, also when it is deleted.
#[derive(Debug)]
pub(crate) struct SharedFile {
    pub(crate) identity: FileIdentity,
    _held: OwnedFd,
}

impl SharedFile {
    /// The file behind a descriptor of the program's. EBADF when there is none.
    pub(crate) fn behind(fd: RawFd) -> io::Result<SharedFile> {
        // SAFETY: no pointers are passed.
        let held = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if held < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new, and ours alone.
        let held_fd = unsafe { OwnedFd::from_raw_fd(held) };
        let mut about = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `about` is a valid place for what the call writes.
        if unsafe { libc::fstat(held, about.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled in by the call.
        let about = unsafe { about.assume_init() };
        let identity = FileIdentity {
            device: about.st_dev,
            inode: about.st_ino,
        };
        Ok(SharedFile {
            identity,
            _held: held_fd,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn two_descriptors_of_a_file_name_the_same_and_of_two_files_not() {
        let open = |path| std::fs::File::open(path).unwrap();
        let identity = |file: &std::fs::File| SharedFile::behind(file.as_raw_fd()).unwrap().identity;
        let (one, again, other) = (open("/proc/self/maps"), open("/dev/null"), open("/dev/null"));
        assert_eq!(identity(&again), identity(&other));
        assert_ne!(identity(&one), identity(&other));
        assert_eq!(
            SharedFile::behind(-1).unwrap_err().raw_os_error(),
            Some(libc::EBADF)
        );
    }
}
