//! Readiness: a small epoll set and a timer in it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use super::check;
use crate::os::PrivateFd;

/// Events taken in one call.
const EVENTS_MAX: usize = 16;

/// A set of descriptors to look at for readability; itself a descriptor that is readable when one of them is.
#[derive(Debug)]
pub(in crate::fabric) struct Epoll {
    fd: PrivateFd,
}

/// The tokens of the descriptors found ready.
#[derive(Debug, Default)]
pub(in crate::fabric) struct Ready {
    tokens: [u64; EVENTS_MAX],
    count: usize,
}

impl Ready {
    /// One token a ready descriptor.
    pub(in crate::fabric) fn tokens(&self) -> &[u64] {
        &self.tokens[..self.count]
    }
}

impl Epoll {
    pub(in crate::fabric) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        let fd = unsafe { PrivateFd::from_raw_fd(fd) };
        Ok(Epoll { fd })
    }

    /// Report `token` while `fd` is readable or its peer has gone. Closing `fd` ends that.
    pub(in crate::fabric) fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLRDHUP) as u32,
            u64: token,
        };
        // SAFETY: `event` lives across the call; the kernel only reads it.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })
            .map(drop)
    }

    /// Report it no more. Closing alone does not do that while another process holds the descriptor, as a child does
    /// between fork and exec.
    pub(in crate::fabric) fn remove(&self, fd: RawFd) {
        // It fails only for descriptors that are not in the set.
        // SAFETY: no event is passed, nor asked for.
        unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
    }

    /// What is ready at this moment; waits at most `timeout_ms` (0: not at all).
    pub(in crate::fabric) fn ready(&self, timeout_ms: i32) -> Ready {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: pointer and count describe `events`, which the kernel fills.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as i32,
                timeout_ms,
            )
        };
        // An error (EINTR) is the same as nothing ready: the caller looks again.
        let mut ready = Ready {
            tokens: [0; EVENTS_MAX],
            count: count.clamp(0, EVENTS_MAX as i32) as usize,
        };
        for (token, event) in ready.tokens.iter_mut().zip(&events) {
            *token = event.u64;
        }
        ready
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A one-shot timer with a descriptor (`timerfd` on the monotonic clock).
#[derive(Debug)]
pub(in crate::fabric) struct Timer {
    fd: PrivateFd,
}

impl Timer {
    pub(in crate::fabric) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        })?;
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        let fd = unsafe { PrivateFd::from_raw_fd(fd) };
        Ok(Timer { fd })
    }

    /// Become readable at `at_ns` of the monotonic clock (at once when that is past). `None`: never.
    pub(in crate::fabric) fn set(&self, at_ns: Option<u64>) {
        let at_ns = at_ns.map_or(0, |at| at.max(1));
        let moment = libc::timespec {
            tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
        };
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = libc::itimerspec {
            it_interval: zero,
            it_value: moment,
        };
        // SAFETY: `spec` lives across the call; no old value is asked for.
        unsafe {
            libc::timerfd_settime(
                self.fd.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                ptr::null_mut(),
            );
        }
    }

    /// Stop being readable after the timer has fired.
    pub(in crate::fabric) fn acknowledge(&self) {
        let mut fired = 0u64;
        // SAFETY: pointer and length describe `fired`.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut fired).cast(), 8) };
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
