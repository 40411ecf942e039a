//! A thread that goes on with what peers ask of a socket while its program makes no call: programs may wait for their own
//! other socket, or do something else.
//!
//! It sleeps on the connection manager's descriptor alone, so data does not wake it. Signals are left to the program's
//! threads.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use verbs_api::{ConnectionManager, Error, Result};

use crate::errors::Errno;
use crate::front::{Behind, Front};

const STACK_BYTES: usize = 256 * 1024;

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    /// Nothing had happened.
    Nothing,
    /// Something had, and was taken in.
    Something,
    /// Nothing more is to be expected.
    Over,
}

/// See the module's documentation. Dropped, it ends first.
#[derive(Debug)]
pub(crate) struct Attendant {
    /// A forked child has no such thread.
    process: u32,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Attendant {
    /// Attend to a socket until nothing more is to be expected.
    pub(crate) fn start<B>(front: &Arc<Front<B>>) -> Result<Attendant>
    where
        B: Behind + Send + 'static,
    {
        let failed = |e| Error::system("no thread for a socket", e);
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let cm = front.lock().cm().clone();
        let front = Arc::downgrade(front);
        let builder = Builder::new()
            .name("softroce-socket".into())
            .stack_size(STACK_BYTES);
        // The thread takes over the mask.
        let before = program_signals().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
        let thread = builder.spawn(move || attend(&front, &*cm, &stopped));
        let _ = before.map(|before| before.thread_set_mask());
        Ok(Attendant {
            process: std::process::id(),
            stop,
            thread: Some(thread.map_err(failed)?),
        })
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.process != std::process::id() {
            std::mem::forget(thread);
            return;
        }
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        let _ = thread.join();
    }
}

/// All but those that a thread's own instructions raise.
fn program_signals() -> SigSet {
    let mut signals = SigSet::all();
    for own in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL] {
        signals.remove(own);
    }
    signals
}

fn attend<B: Behind>(front: &Weak<Front<B>>, cm: &B::M, stopped: &UnixStream) {
    loop {
        let watched = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut entries = [watched(cm.fd()), watched(stopped.as_fd())];
        match poll(&mut entries, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        }
        let is_readable = |entry: &PollFd<'_>| {
            entry
                .revents()
                .is_some_and(|seen| seen.contains(PollFlags::POLLIN))
        };
        if entries[1].any() != Some(false) || !is_readable(&entries[0]) {
            return;
        }
        let Some(front) = front.upgrade() else { return };
        match front.attend() {
            Ok(Attended::Nothing | Attended::Something) => {}
            Ok(Attended::Over) => return,
            Err(error) => {
                tracing::info!(%error, "a socket is no longer attended to");
                return;
            }
        }
    }
}
