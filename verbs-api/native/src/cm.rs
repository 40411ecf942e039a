//! Connections by address and port: [`verbs_api::ConnectionManager`] over librdmacm, which is opened at run time.
//!
//! What is behind it is the kernel's connection manager (modules rdma_cm and rdma_ucm), or that of softroce's drop-in, which
//! has librdmacm in itself.
//!
//! - All calls of the library are made in turns ([`manager`]); [`verbs_api::ConnectionManager::wait`] sleeps outside of them.
//! - An event is copied and given back to the library at once; destroying its id waits until the program has dropped the copy.
//! - An id keeps its channel, and an event its id. What is dropped goes when nothing is left that needs it.
//! - The library gets numbers of queue pairs, never pointers ([`transition`]).

use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use verbs_api::{CmEvent, CmPortSpace, ConnectionManager, Provider, Result};

use crate::channel::wait_readable;
use crate::context::Inner;
use crate::library::Maker;
use crate::{Context, Interface, Native};

mod channel;
mod event;
mod id;
mod library;
mod manager;
mod transition;
mod verbs;

use channel::Channel;
use id::{IdInner, Part};
use library::Library;
use manager::Manager;

/// The library of the system, as the system finds it.
const SYSTEM_LIBRARY: &str = "librdmacm.so.1";
/// Events that a channel which nobody listens to any more is emptied of.
const LAST_EVENTS_MAX: usize = 4096;

/// An event channel of librdmacm.
pub struct Cm {
    channel: Arc<Channel>,
    provider: Native,
}

/// An id of librdmacm: one end of a connection to be, or a listener.
#[derive(Debug)]
pub struct CmId {
    inner: Arc<IdInner>,
}

impl Native {
    /// A new event channel of the librdmacm that belongs to this libibverbs: `librdmacm.so.1` as the system finds it, or the
    /// drop-in, when that is open in its place.
    ///
    /// # Errors
    /// `Unsupported`: there is no such library, or the kernel has no connection manager; the message says what to do.
    /// `NotFound`: it stands on another libibverbs.
    pub fn connection_manager(&self) -> Result<Cm> {
        self.connection_manager_of(&self.managers.usual)
    }

    /// The same with the library of this path (or bare name, for the system's own search).
    pub fn connection_manager_of(&self, path: &Path) -> Result<Cm> {
        let manager = self.managers.open(self, path)?;
        Ok(Cm {
            channel: Arc::new(Channel::new(&manager)?),
            provider: self.clone(),
        })
    }
}

/// What the channels of a provider share.
#[derive(Debug)]
pub(crate) struct Managers {
    usual: PathBuf,
    opened: Mutex<HashMap<PathBuf, Arc<Manager>>>,
    /// The devices of ids, by name: one context each, which closes with its last user.
    contexts: Mutex<HashMap<(String, Interface), Weak<Inner>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Managers {
    /// Those that go with this libibverbs.
    pub(crate) fn beside(verbs: &Path, maker: Maker) -> Managers {
        Managers {
            usual: match maker {
                Maker::Softroce => verbs.to_owned(),
                Maker::Other => PathBuf::from(SYSTEM_LIBRARY),
            },
            opened: Mutex::default(),
            contexts: Mutex::default(),
        }
    }

    /// The library, opened once.
    fn open(&self, provider: &Native, path: &Path) -> Result<Arc<Manager>> {
        let mut opened = lock(&self.opened);
        if let Some(manager) = opened.get(path) {
            return Ok(manager.clone());
        }
        let manager = Arc::new(Manager::new(Library::open(path, &provider.library)?));
        opened.insert(path.to_owned(), manager.clone());
        Ok(manager)
    }

    fn shared_context(&self, provider: &Native, name: &str) -> Result<Context> {
        let mut contexts = lock(&self.contexts);
        let key = (name.to_owned(), provider.interface);
        if let Some(inner) = contexts.get(&key).and_then(Weak::upgrade) {
            return Ok(Context(inner));
        }
        let context = provider.open(name)?;
        contexts.insert(key, Arc::downgrade(&context.0));
        Ok(context)
    }
}

impl ConnectionManager for Cm {
    type P = Native;
    type Id = CmId;

    fn create_id(&self, space: CmPortSpace, cookie: u64) -> Result<CmId> {
        let mut turn = self.channel.manager.turn();
        let raw = turn.create_id(self.channel.raw, space, cookie)?;
        let inner = IdInner::new(&mut turn, raw, &self.channel, &self.provider, space, Part::Other);
        Ok(CmId { inner })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the channel, which `self` keeps alive.
        unsafe { BorrowedFd::borrow_raw(self.channel.fd) }
    }

    /// The descriptor never blocks, whatever the program sets: this waits by polling it, and EAGAIN does not occur.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CmEvent<Cm>>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) || !wait_readable(self.fd(), left)? {
                return Ok(None);
            }
        }
    }
}

impl Drop for Cm {
    /// Ids may keep the channel. Requests that wait on it are refused, as nobody will hear of them.
    fn drop(&mut self) {
        for _ in 0..LAST_EVENTS_MAX {
            match self.take() {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
}

impl fmt::Debug for Cm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cm").field("fd", &self.channel.fd).finish()
    }
}
