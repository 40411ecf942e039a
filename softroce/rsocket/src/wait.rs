//! Sleeping until something happens to a socket, in several threads at once.
//!
//! What happens shows on descriptors of the connection manager and the completion channels, but whoever looks first takes
//! it away. So a thread that finds something wakes all others that sleep on the socket: through a descriptor of the
//! socket's own, which is also the number that programs know it by.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use verbs_api::{CompletionChannel, ConnectionManager, Error, Provider, Result};

use crate::errors::{Errno, error};

/// A sleeping thread looks whether its peer is alive so often.
pub const LOOK_UP: Duration = Duration::from_secs(1);

/// Wakes the threads that sleep on a socket.
#[derive(Debug)]
pub(crate) struct Wake {
    reader: UnixStream,
    writer: UnixStream,
    /// A forked child has the same descriptors, and no business with them.
    process: u32,
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    /// Counts the calls that woke somebody.
    round: u64,
    /// Went to sleep in this round.
    asleep: usize,
    /// Were woken and have not noticed yet. The descriptor is readable until all have.
    woken: usize,
}

impl Wake {
    pub(crate) fn new() -> Result<Wake> {
        let failed = |e| Error::system("no descriptors for a socket", e);
        let (reader, writer) = UnixStream::pair().map_err(failed)?;
        reader.set_nonblocking(true).map_err(failed)?;
        writer.set_nonblocking(true).map_err(failed)?;
        Ok(Wake {
            reader,
            writer,
            process: std::process::id(),
            sleepers: Mutex::default(),
        })
    }

    fn sleepers(&self) -> std::sync::MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread goes to sleep; the round that it must give back.
    fn enter(&self) -> u64 {
        let mut sleepers = self.sleepers();
        sleepers.asleep += 1;
        sleepers.round
    }

    /// It is awake.
    fn leave(&self, round: u64) {
        let mut sleepers = self.sleepers();
        if round == sleepers.round {
            sleepers.asleep -= 1;
            return;
        }
        sleepers.woken -= 1;
        if sleepers.woken == 0 {
            let mut bytes = [0; 64];
            while (&self.reader).read(&mut bytes).is_ok_and(|read| read > 0) {}
        }
    }

    /// Wake all who sleep.
    pub(crate) fn all(&self) {
        let mut sleepers = self.sleepers();
        if sleepers.asleep == 0 || self.process != std::process::id() {
            return;
        }
        sleepers.woken += sleepers.asleep;
        sleepers.asleep = 0;
        sleepers.round += 1;
        // Full, it is readable all the more.
        let _ = (&self.writer).write(&[1]);
    }

    /// The descriptor by which programs know the socket.
    pub(crate) fn number(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Go to sleep on these descriptors as well, as soon as the socket is unlocked.
    pub(crate) fn watch<M: ConnectionManager>(
        &self,
        cm: &Arc<M>,
        channels: Vec<<M::P as Provider>::Channel>,
    ) -> Watch<'_, M> {
        Watch {
            round: self.enter(),
            wake: self,
            cm: cm.clone(),
            channels,
        }
    }
}

/// A thread that sleeps, or is about to, on a socket. It keeps the descriptors open.
#[derive(Debug)]
pub struct Watch<'a, M: ConnectionManager> {
    wake: &'a Wake,
    round: u64,
    cm: Arc<M>,
    channels: Vec<<M::P as Provider>::Channel>,
}

impl<M: ConnectionManager> Watch<'_, M> {
    /// What to sleep on: something may have happened when one of these is readable.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.wake.reader.as_fd(), self.cm.fd()]
            .into_iter()
            .chain(self.channels.iter().map(CompletionChannel::fd))
    }

    /// Sleep until something may have happened, at most so long. EINTR: a signal came.
    pub(crate) fn sleep(&self, at_most: Duration) -> Result<()> {
        let mut entries: Vec<PollFd> = self.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        match poll(&mut entries, timeout) {
            Ok(_) => Ok(()),
            Err(Errno::EINTR) => Err(error(Errno::EINTR, "a signal came while the socket waited")),
            Err(errno) => Err(error(errno, format!("waiting on a socket: {errno}"))),
        }
    }
}

impl<M: ConnectionManager> Drop for Watch<'_, M> {
    fn drop(&mut self) {
        self.wake.leave(self.round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_raised(wake: &Wake) -> bool {
        let mut entries = [PollFd::new(wake.reader.as_fd(), PollFlags::POLLIN)];
        poll(&mut entries, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_until_the_last_of_those_woken_has_noticed() {
        let wake = Wake::new().unwrap();
        wake.all();
        assert!(!is_raised(&wake));
        let (one, two) = (wake.enter(), wake.enter());
        wake.all();
        assert!(is_raised(&wake));
        wake.leave(one);
        assert!(is_raised(&wake));
        // One who comes meanwhile is not counted among them.
        let three = wake.enter();
        wake.leave(two);
        assert!(!is_raised(&wake));
        wake.all();
        assert!(is_raised(&wake));
        wake.leave(three);
        assert!(!is_raised(&wake));
    }
}
