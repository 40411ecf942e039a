//! rpoll and rselect: rsockets beside other descriptors.

use std::ffi::{c_int, c_short};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};
use softroce_rsocket::{LOOK_UP, Ready};
use verbs_api::{Error, Result};

use super::{Socket, find};
use crate::entry::{count, null};

/// Before sleeping, a call looks for so long.
const LOOKS: Duration = Duration::from_micros(20);

/// An entry of the list: a socket of ours, or what the kernel knows.
type Entry = Option<Arc<Socket>>;

fn events(ready: Ready, asked: c_short) -> c_short {
    let mut events = 0;
    if ready.input {
        events |= asked & (libc::POLLIN | libc::POLLRDNORM);
    }
    if ready.output {
        events |= asked & (libc::POLLOUT | libc::POLLWRNORM);
    }
    if ready.hang_up {
        events |= libc::POLLHUP;
    }
    if ready.error {
        events |= libc::POLLERR;
    }
    events
}

impl Socket {
    fn look_at_peer(&self) {
        if let Socket::Stream(socket) = self {
            // What is wrong shows in `ready`.
            let _ = socket.look_at_peer();
        }
    }
}

/// What can be said of a socket of a parent process, or of a device that is gone.
const BROKEN: Ready = Ready {
    input: true,
    output: true,
    hang_up: true,
    error: true,
};

/// # Safety
/// `list` is NULL or valid for `length` entries.
pub(crate) unsafe extern "C" fn rpoll(list: *mut pollfd, length: nfds_t, timeout_ms: c_int) -> c_int {
    count("rpoll", || {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if list.is_null() && length > 0 {
            return Err(null("the list"));
        }
        if length > c_int::MAX as usize {
            return Err(Error::invalid(format!("{length} entries are too many")));
        }
        let list = match length {
            0 => &mut [],
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts_mut(list, length) },
        };
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        wait(list, timeout)
    })
}

/// Wait until something of the list is ready; how many entries are.
fn wait(list: &mut [pollfd], timeout: Option<Duration>) -> Result<c_int> {
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let known: Vec<Entry> = list
        .iter()
        .map(|entry| find(entry.fd).filter(|_| entry.fd >= 0))
        .collect();
    let mut others: Vec<pollfd> = list
        .iter()
        .zip(&known)
        .filter(|(_, socket)| socket.is_none())
        .map(|(entry, _)| pollfd { revents: 0, ..*entry })
        .collect();
    let only_others = others.len() == list.len();
    loop {
        let began = Instant::now();
        loop {
            let ready = look(list, &known, &mut others)?;
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if is_over && ready == 0 {
                // So for programs that ask again and again without waiting.
                known.iter().flatten().for_each(|socket| socket.look_at_peer());
            }
            if ready > 0 || is_over {
                return Ok(ready);
            }
            if only_others || began.elapsed() > LOOKS {
                break;
            }
            std::hint::spin_loop();
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if only_others {
            sleep(&mut others, left)?;
            continue;
        }
        match sleep_on_all(list, &known, &others, left.unwrap_or(LOOK_UP).min(LOOK_UP))? {
            Slept::Over => known.iter().flatten().for_each(|socket| socket.look_at_peer()),
            Slept::IsReady => {}
            Slept::IsBroken => return Ok(1),
        }
    }
}

/// What is ready now: fills in the events, and counts the entries that have some.
fn look(list: &mut [pollfd], known: &[Entry], others: &mut [pollfd]) -> Result<c_int> {
    sleep(others, Some(Duration::ZERO))?;
    let mut others = others.iter();
    let mut ready = 0;
    for (entry, socket) in list.iter_mut().zip(known) {
        entry.revents = match socket {
            Some(socket) => events(socket.ready().unwrap_or(BROKEN), entry.events),
            None => others.next().map_or(0, |other| other.revents),
        };
        ready += c_int::from(entry.revents != 0);
    }
    Ok(ready)
}

/// How a sleep ended.
enum Slept {
    /// Something may be ready, or the time is over.
    Over,
    /// Something is ready already.
    IsReady,
    /// A socket cannot be waited for; its entry says so.
    IsBroken,
}

/// Sleep until something may be ready.
fn sleep_on_all(list: &mut [pollfd], known: &[Entry], others: &[pollfd], at_most: Duration) -> Result<Slept> {
    let mut all = others.to_vec();
    let mut watches = Vec::with_capacity(known.len());
    for (entry, socket) in list.iter_mut().zip(known) {
        let Some(socket) = socket else { continue };
        let Ok((ready, watch)) = socket.watch() else {
            entry.revents = events(BROKEN, entry.events);
            return Ok(Slept::IsBroken);
        };
        if events(ready, entry.events) != 0 {
            return Ok(Slept::IsReady);
        }
        all.extend(watch.fds().map(|fd| pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        watches.push(watch);
    }
    sleep(&mut all, Some(at_most))?;
    Ok(Slept::Over)
}

/// `poll` of the kernel; rounds up.
fn sleep(list: &mut [pollfd], timeout: Option<Duration>) -> Result<()> {
    let timeout_ms = match timeout {
        None => -1,
        Some(timeout) => c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX),
    };
    if list.is_empty() && timeout_ms == 0 {
        return Ok(());
    }
    // SAFETY: a valid list.
    match unsafe { libc::poll(list.as_mut_ptr(), list.len() as nfds_t, timeout_ms) } {
        -1 => Err(Error::system("poll", std::io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// The events that each set of `select` stands for: asked for, and counted.
const SETS: [(c_short, c_short); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// # Safety
/// The sets and the time are NULL or valid.
pub(crate) unsafe extern "C" fn rselect(
    length: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    count("rselect", || {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= libc::FD_SETSIZE);
        let length = length.ok_or_else(|| Error::invalid("a set has 0 to 1024 descriptors"))? as c_int;
        // SAFETY: the caller's promise.
        let timeout = match unsafe { timeout.as_ref() } {
            None => None,
            Some(time) => Some(duration(time)?),
        };
        let sets = [readable, writable, exceptional];
        let mut list = Vec::new();
        for fd in 0..length {
            let is_in = |set: *mut fd_set| {
                // SAFETY: the caller's promise; the number is below the size of a set.
                !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
            };
            let asked = sets.iter().zip(SETS).filter(|(set, _)| is_in(**set));
            let events = asked.fold(0, |events, (_, (asked, _))| events | asked);
            if events != 0 {
                list.push(pollfd {
                    fd,
                    events,
                    revents: 0,
                });
            }
        }
        wait(&mut list, timeout)?;
        if let Some(bad) = list.iter().find(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(super::os_error(
                libc::EBADF,
                format!("{} is no descriptor", bad.fd),
            ));
        }
        let mut found = 0;
        for (set, (asked, counted)) in sets.into_iter().zip(SETS) {
            if set.is_null() {
                continue;
            }
            for entry in list.iter().filter(|entry| entry.events & asked != 0) {
                match entry.revents & counted {
                    // SAFETY: the caller's promise; the number is below the size of a set.
                    0 => unsafe { libc::FD_CLR(entry.fd, set) },
                    _ => found += 1,
                }
            }
        }
        Ok(found)
    })
}

fn duration(time: &timeval) -> Result<Duration> {
    let seconds = u64::try_from(time.tv_sec);
    let micros = u64::try_from(time.tv_usec);
    match (seconds, micros) {
        (Ok(seconds), Ok(micros)) => {
            Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
        }
        _ => Err(Error::invalid("a time to wait is not negative")),
    }
}
