//! Waiting for an event, as the real library does: in a system call that a signal may interrupt and in which a thread
//! may be cancelled.
//!
//! Programs end their event threads by `pthread_cancel`, which unwinds the thread's stack from within the system call.
//! That must not meet a frame of ours that has something to clean up, nor one that stops unwinding. So the frame that
//! waits holds plain numbers only, and takes events in a call of its own.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use verbs_api::Result;

use crate::entry;

unsafe extern "C-unwind" {
    /// The one of libc, declared as what it is: a place where a thread may end.
    fn poll(entries: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int;
}

/// What came of looking for an event.
pub(crate) enum Attempt {
    /// There was one.
    Taken,
    /// There was none; this descriptor becomes readable when there is.
    Nothing(RawFd),
}

/// Look for an event by `take`, and wait until there is one: 0, or -1 and `errno`. EAGAIN when the program has set
/// `O_NONBLOCK` on the descriptor; EINTR when a signal arrived.
pub(crate) fn until_taken(verb: &str, take: impl Fn() -> Result<Attempt> + Copy) -> c_int {
    const WITHOUT_END: c_int = -1;
    until_taken_looking(verb, WITHOUT_END, take)
}

/// The same, and look again every so many milliseconds: for what another thread may destroy meanwhile.
pub(crate) fn until_taken_looking(
    verb: &str,
    again_ms: c_int,
    take: impl Fn() -> Result<Attempt> + Copy,
) -> c_int {
    loop {
        let fd = match attempt(verb, take) {
            TAKEN => return 0,
            FAILED => return -1,
            fd => fd,
        };
        if is_nonblocking(fd) {
            entry::set_errno(libc::EAGAIN);
            return -1;
        }
        let mut waiting = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry. When the thread is cancelled here, this frame and its caller hold nothing to drop.
        if unsafe { poll(&mut waiting, 1, again_ms) } < 0 && !goes_on_after_error() {
            return -1;
        }
    }
}

/// Let time pass, in a system call in which the thread may be cancelled.
pub(crate) fn pause(ms: c_int) {
    // SAFETY: no entry. When the thread is cancelled here, this frame and its caller hold nothing to drop.
    let _ = unsafe { poll(std::ptr::null_mut(), 0, ms) };
}

/// No descriptor has these numbers.
const FAILED: c_int = -1;
const TAKEN: c_int = -2;

/// One look, as a plain number.
#[inline(never)]
fn attempt(verb: &str, take: impl FnOnce() -> Result<Attempt>) -> c_int {
    entry::count(verb, || {
        Ok(match take()? {
            Attempt::Taken => TAKEN,
            Attempt::Nothing(fd) => fd,
        })
    })
}

fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// After a failed `poll`: whether to wait on. The real library waits in `read`, which the kernel resumes after handlers
/// with `SA_RESTART`, and `poll` is never resumed. Which handler ran is not told; where all have the flag, it had.
fn goes_on_after_error() -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    let goes_on = errno == Some(libc::EINTR) && (1..=libc::SIGRTMAX()).all(resumes_calls);
    if !goes_on && let Some(errno) = errno {
        entry::set_errno(errno);
    }
    goes_on
}

/// Whether a signal has no handler, or one that lets calls go on.
fn resumes_calls(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a valid place; nothing is changed.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return true;
    }
    // SAFETY: filled in by the call.
    let action = unsafe { action.assume_init() };
    let handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
    !handled || action.sa_flags & libc::SA_RESTART != 0
}
