//! The system calls that the standard library lacks, each behind a safe function.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

mod background;
mod birthmark;
mod file;
mod private_fd;
mod rights;
mod thread;

pub(crate) use background::{BackgroundThread, no_background_threads};
pub(crate) use birthmark::birthmark;
pub(crate) use file::{FileIdentity, SharedFile};
pub(crate) use private_fd::{PrivateFd, close_raw, mark, while_in_doubt};
pub(crate) use rights::has_net_raw;
pub(crate) use thread::Thread;

/// Sleep until `word` is woken; returns at once when it does not hold `seen`, and now and then for no reason.
pub(crate) fn wait_while_equal(word: &AtomicU32, seen: u32) {
    // SAFETY: the address is that of a live, aligned 32-bit word; no timeout is passed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Wake everybody who sleeps on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the kernel only uses the address as a name here.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}

/// A descriptor that is readable while it is raised.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Lowered. Closed on exec. Blocking, so that its `O_NONBLOCK` flag is the program's alone to set.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else owns it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Make it readable. Never blocks below 2^64 calls without a [`lower`](Self::lower).
    pub(crate) fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. The result does not matter: the counter only has to be non-zero.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Make it unreadable. Does not block, even when it is so already.
    pub(crate) fn lower(&self) {
        if !is_readable(self.0.as_fd()) {
            return;
        }
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    /// Whether the program has set `O_NONBLOCK` on it.
    pub(crate) fn is_nonblocking(&self) -> bool {
        // SAFETY: no pointers are passed.
        let flags = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK != 0
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer whose descriptor is readable once it has run out.
#[derive(Debug)]
pub(crate) struct TimerFd(PrivateFd);

impl TimerFd {
    /// Not running. Closed on exec, never blocking.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else owns it.
        Ok(TimerFd(unsafe { PrivateFd::from_raw_fd(fd) }))
    }

    /// Run out `after` from now, and not before, whatever was set earlier. It is unreadable until then.
    pub(crate) fn set(&self, after: Duration) {
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = libc::timespec {
            tv_sec: after.as_secs().min(i32::MAX as u64) as _,
            // All zero would stop the timer.
            tv_nsec: after.subsec_nanos().max(1) as _,
        };
        let setting = libc::itimerspec {
            it_interval: zero,
            it_value: value,
        };
        // SAFETY: a live setting, and nothing to be written back.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) };
    }
}

impl TimerFd {
    /// Make it unreadable, should it have run out.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes; the descriptor does not block.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    wait_readable(&mut [poll_entry(fd.as_raw_fd())], Some(Duration::ZERO))
}

/// An entry for [`wait_readable`].
pub(crate) fn poll_entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Wait until one of the descriptors is readable; false when the time is over or a signal came.
/// `None` waits without end.
pub(crate) fn wait_readable(entries: &mut [libc::pollfd], limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().min(i32::MAX as u64) as _,
        tv_nsec: limit.subsec_nanos() as _,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the entries and the time are live for the call; no signal mask is passed.
    unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            limit,
            std::ptr::null(),
        ) > 0
    }
}

/// Whether the process has a limit of memory.
pub(crate) fn memory_is_limited() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().any(|resource| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a valid place for the answer.
        let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        known && limit.rlim_cur != libc::RLIM_INFINITY
    })
}

/// Whether the process may have so many bytes more.
pub(crate) fn has_room(bytes: usize) -> bool {
    // SAFETY: a new mapping, at a place that the kernel chooses.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: mapped just now, and known to nobody.
    unsafe { libc::munmap(place, bytes) };
    true
}

/// All signals but those that a thread's own instructions raise.
fn asynchronous_signals() -> libc::sigset_t {
    // SAFETY: the set is plain data, and `sigfillset` initialises it.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&raw mut set, own);
        }
        set
    }
}

/// For the calling thread: block all signals (handlers belong on the program's own threads), and let the kernel end
/// its sleeps within 1 µs of the time asked for instead of 50 µs.
pub(crate) fn become_background_thread() {
    // SAFETY: plain calls on the calling thread; the set is initialised by `sigfillset`.
    unsafe {
        let all = asynchronous_signals();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000u64, 0, 0, 0);
    }
    ask_for_short_slices();
}

/// The scheduling attributes of `sched_setattr(2)`, first version.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Ask for the shortest time slices: from Linux 6.12 on, a thread that wakes then takes the processor from one that has
/// longer ones, such as a program that spins on its memory and would else keep it for milliseconds. Elsewhere it does
/// nothing.
fn ask_for_short_slices() {
    const SHORTEST_NS: u64 = 100_000;
    let mut attributes = SchedulingAttributes::default();
    let size = size_of::<SchedulingAttributes>() as u32;
    // SAFETY: the structure is live and as long as said; it concerns the calling thread only.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) != 0 {
            return;
        }
        attributes.size = size;
        if attributes.policy == libc::SCHED_OTHER as u32 {
            attributes.runtime_ns = SHORTEST_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// Tells whether more threads want to run than there are processors.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// `/proc/loadavg`, or nothing where it cannot be had.
    load: Option<std::fs::File>,
    processors: u32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        // All of the machine, as the load is: those that this thread may use would call every other program a crowd.
        // SAFETY: no pointers are passed.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let processors = u32::try_from(processors).unwrap_or(0).max(1);
        Crowd {
            load: std::fs::File::open("/proc/loadavg").ok(),
            processors,
        }
    }

    /// Whether somebody waits for a processor now. About 1 µs. Does not allocate.
    pub(crate) fn is_there(&self) -> bool {
        use std::os::unix::fs::FileExt;
        let mut text = [0u8; 64];
        let Some(length) = self
            .load
            .as_ref()
            .and_then(|load| load.read_at(&mut text, 0).ok())
        else {
            return false;
        };
        running(&text[..length]).is_some_and(|running| running > self.processors)
    }
}

/// The number of runnable threads in the text of `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn running(text: &[u8]) -> Option<u32> {
    let field = std::str::from_utf8(text).ok()?.split(' ').nth(3)?;
    field.split_once('/')?.0.parse().ok()
}

/// Block all signals for the calling thread while `f` runs, so that a thread started in it never takes one.
pub(crate) fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the sets are initialised before they are read, by `sigfillset` and by the kernel.
    let before = unsafe {
        let all = asynchronous_signals();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let result = f();
    // SAFETY: restores the mask read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: no pointers are passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Fault pages in for reading or writing, changing no byte; the error number when that fails.
pub(crate) fn populate(start: usize, length: usize, for_writing: bool) -> Result<(), i32> {
    let advice = if for_writing {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    loop {
        // SAFETY: this advice changes neither contents nor mappings; bad addresses are answered with an error.
        if unsafe { libc::madvise(start as *mut libc::c_void, length, advice) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => continue,
            errno => return Err(errno.unwrap_or(libc::EFAULT)),
        }
    }
}

/// Random bits of the system.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: eight writable bytes. So few are given whole, or, early at boot, not at all.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 8 {
        // Without a random source, the place of the stack and the process number are better than a constant.
        return (bytes.as_ptr() as u64).rotate_left(32) ^ u64::from(std::process::id());
    }
    u64::from_ne_bytes(bytes)
}

/// Run `last` when this process ends by `exit` or by returning from `main`.
pub(crate) fn at_exit(last: extern "C" fn()) -> io::Result<()> {
    // SAFETY: functions live as long as the code does; a library that is unloaded has its handlers run then.
    match unsafe { libc::atexit(last) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}

/// Run when this process ends by `exit`, after the handlers that [`at_exit`] and others have registered, the destructors of
/// C++ and what stands in this section of objects that depend on this one.
#[cfg(not(any(miri, loom)))]
#[used]
// SAFETY: the section holds functions without arguments or result, and this is one.
#[unsafe(link_section = ".fini_array")]
static LAST_OF_ALL: extern "C" fn() = crate::exit::depart;

/// Run `prepare` before every fork of this process, and `parent` and `child` after it in the two.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // libc's signature wants unsafe functions; safe ones serve.
    let (prepare, parent, child): (
        unsafe extern "C" fn(),
        unsafe extern "C" fn(),
        unsafe extern "C" fn(),
    ) = (prepare, parent, child);
    // SAFETY: functions live as long as the code does; a library that is unloaded has its handlers removed by libc.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_runnable_threads_is_read() {
        assert_eq!(running(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(running(b"0.20 0.18"), None);
        assert_eq!(running(b""), None);
    }

    #[test]
    fn an_event_descriptor_is_raised_once_and_lowered_once() {
        let event = EventFd::new().unwrap();
        assert!(!is_readable(event.as_fd()));
        event.raise();
        event.raise();
        assert!(is_readable(event.as_fd()));
        event.lower();
        assert!(!is_readable(event.as_fd()));
        event.lower();
        assert!(!event.is_nonblocking());
    }
}
