//! What all sockets have in common: a lock, and threads that wait for what is behind it.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use verbs_api::{ConnectionManager, Provider, Result};

use crate::attendant::Attended;
use crate::errors::would_block;
use crate::options::Settings;
use crate::wait::{LOOK_UP, Wake, Watch};

/// Before a thread sleeps it looks for so long: sleeping costs more than most answers take.
const LOOKS: Duration = Duration::from_micros(20);

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As the socket is set.
    OfSocket,
    /// In no case (`MSG_DONTWAIT`).
    None,
}

/// What a lock is about.
pub(crate) trait Behind {
    type M: ConnectionManager;

    /// Take in what has happened. True when there was something.
    fn pump(&mut self) -> Result<bool>;
    /// The same until there is nothing, and the next thing will show on the descriptors.
    fn arm(&mut self) -> Result<bool>;
    /// Take in what peers ask for, and what a connection on its way needs, for a program that makes no call.
    fn attend(&mut self) -> Result<Attended>;
    /// Time has passed in which nothing happened.
    fn look_at_peer(&mut self, now: Instant) -> Result<()>;
    fn cm(&self) -> &Arc<Self::M>;
    fn channels(&self) -> Vec<<<Self::M as ConnectionManager>::P as Provider>::Channel>;
}

/// See the module's documentation.
pub(crate) struct Front<B> {
    wake: Wake,
    settings: Arc<Settings>,
    behind: Mutex<B>,
}

impl<B: Behind> Front<B> {
    pub(crate) fn new(settings: Arc<Settings>, behind: B) -> Result<Self> {
        Ok(Front {
            wake: Wake::new()?,
            settings,
            behind: Mutex::new(behind),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, B> {
        // Whoever panicked left accounts that are checked at each use.
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lock can be had within a moment. Not so where a signal has interrupted its very holder.
    pub(crate) fn is_free(&self) -> bool {
        const TRIES: u32 = 20;
        (0..TRIES).any(|_| match self.behind.try_lock() {
            Ok(_) | Err(TryLockError::Poisoned(_)) => true,
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        })
    }

    pub(crate) fn number(&self) -> RawFd {
        self.wake.number()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Wake all threads that wait: something has changed.
    pub(crate) fn wake_all(&self) {
        self.wake.all();
    }

    /// Take in what has happened, and wake the others when that was something.
    pub(crate) fn pump(&self, behind: &mut B) -> Result<()> {
        if behind.pump()? {
            self.wake.all();
        }
        Ok(())
    }

    /// Go to sleep as soon as the lock is given back.
    pub(crate) fn watch(&self, behind: &mut B) -> Watch<'_, B::M> {
        self.wake.watch(behind.cm(), behind.channels())
    }

    /// The same after taking in everything, so that the next thing shows.
    pub(crate) fn arm(&self, behind: &mut B) -> Result<()> {
        if behind.arm()? {
            self.wake.all();
        }
        Ok(())
    }

    /// Take in what peers ask for, and wake the others when that was something.
    pub(crate) fn attend(&self) -> Result<Attended> {
        let attended = self.lock().attend()?;
        if attended != Attended::Nothing {
            self.wake.all();
        }
        Ok(attended)
    }

    pub(crate) fn look_at_peer(&self) -> Result<()> {
        self.lock().look_at_peer(Instant::now())
    }

    /// Try until it works, or fails. EAGAIN: it would wait and may not; EINTR: a signal came.
    pub(crate) fn until<R>(
        &self,
        patience: Patience,
        mut attempt: impl FnMut(&mut B) -> Result<Option<R>>,
    ) -> Result<R> {
        let may_wait = patience == Patience::OfSocket && !self.settings.is_nonblocking();
        if let Some(done) = attempt(&mut self.lock())? {
            return Ok(done);
        }
        loop {
            let began = Instant::now();
            loop {
                let mut behind = self.lock();
                self.pump(&mut behind)?;
                if let Some(done) = attempt(&mut behind)? {
                    return Ok(done);
                }
                if !may_wait {
                    // A program that asks again and again instead of waiting is to hear of its peer's end, too.
                    behind.look_at_peer(began)?;
                    return Err(would_block());
                }
                drop(behind);
                if began.elapsed() > LOOKS {
                    break;
                }
                // On a busy machine, to yield would cost a whole time slice.
                std::hint::spin_loop();
            }
            let watch = {
                let mut behind = self.lock();
                self.arm(&mut behind)?;
                if let Some(done) = attempt(&mut behind)? {
                    return Ok(done);
                }
                self.watch(&mut behind)
            };
            watch.sleep(LOOK_UP)?;
            drop(watch);
            self.look_at_peer()?;
        }
    }
}
