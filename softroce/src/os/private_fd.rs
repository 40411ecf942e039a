//! Descriptors that no program knows of, with a mark by which they are told from others of the same number.
//!
//! A child that was made past the C library may run for long before it makes a call here, and may have closed what it
//! inherited and opened files of its own under the same numbers. Those must not be closed for it. The mark lies with the
//! open file: the number of the signal that asynchronous input would send, if it were ever switched on.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A real-time signal that hardly any program chooses, and none for files that it does not know.
const MARK: libc::c_int = 61;
/// Of `fcntl(2)`, the same on all architectures that this is for.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;

/// The system knows no marks: nothing is told apart.
static ARE_UNMARKED: AtomicBool = AtomicBool::new(false);
/// Numbers may have changed their meaning: only what has the mark is closed.
static IS_IN_DOUBT: AtomicBool = AtomicBool::new(false);

/// Closed when dropped, if it is still the same.
#[derive(Debug)]
pub(crate) struct PrivateFd(ManuallyDrop<OwnedFd>);

impl PrivateFd {
    /// Take over what a system call has just given.
    ///
    /// # Safety
    /// `fd` is open, and nobody else owns it.
    pub(crate) unsafe fn from_raw_fd(fd: RawFd) -> PrivateFd {
        mark(fd);
        // SAFETY: the caller's promise.
        PrivateFd(ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl AsRawFd for PrivateFd {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for PrivateFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for PrivateFd {
    fn drop(&mut self) {
        if is_still_ours(self.as_raw_fd()) {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// Mark a descriptor of this library's.
pub(crate) fn mark(fd: RawFd) {
    // SAFETY: no pointers are passed.
    if unsafe { libc::fcntl(fd, F_SETSIG, MARK) } < 0 {
        ARE_UNMARKED.store(true, Ordering::Relaxed);
    }
}

/// Close what this process has inherited: from now on, and until the end of `close`, only what has the mark.
pub(crate) fn while_in_doubt(close: impl FnOnce()) {
    IS_IN_DOUBT.store(true, Ordering::Relaxed);
    close();
    IS_IN_DOUBT.store(false, Ordering::Relaxed);
}

/// Close a descriptor by number: in a forked child, where its owner is not to run.
///
/// # Safety
/// Nothing in this process uses the descriptor any more.
pub(crate) unsafe fn close_raw(fd: RawFd) {
    if is_still_ours(fd) {
        // SAFETY: the caller's promise.
        unsafe { libc::close(fd) };
    }
}

fn is_still_ours(fd: RawFd) -> bool {
    if !IS_IN_DOUBT.load(Ordering::Relaxed) || ARE_UNMARKED.load(Ordering::Relaxed) {
        return true;
    }
    // SAFETY: no pointers are passed.
    unsafe { libc::fcntl(fd, F_GETSIG) == MARK }
}
