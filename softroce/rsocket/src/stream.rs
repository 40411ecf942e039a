//! Stream sockets.
//!
//! One lock a socket. Nobody sleeps with it held; whoever finds that something has happened wakes the others
//! ([`wait`](crate::wait)).

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use verbs_api::{CmId, ConnectionManager, Object, Result};

use crate::attendant::Attendant;
use crate::connected::{Ready, Shutdown};
use crate::errors::{Errno, error, not_connected};
use crate::family::Family;
use crate::front::{Front, Patience};
use crate::handshake::Connecting;
use crate::options::{Options, Settings};
use crate::wait::{LOOK_UP, Watch};

use inner::{Inner, Role, closed};

mod data;
mod direct;
mod inner;

pub use data::Amount;

/// Closing waits so long for data to arrive, when the program has not said how long.
const LINGER: Duration = Duration::from_secs(10);

/// Opens event channels of a connection manager.
pub type OpenChannel<M> = Arc<dyn Fn() -> Result<M> + Send + Sync>;

/// A stream socket; see the [crate's documentation](crate).
pub struct StreamSocket<M: ConnectionManager> {
    open: OpenChannel<M>,
    /// While a connection is on its way and no call waits for it. Before what it attends to.
    attendant: Mutex<Option<Attendant>>,
    front: Arc<Front<Inner<M>>>,
}

impl<M: ConnectionManager> fmt::Debug for StreamSocket<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSocket")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

impl<M: ConnectionManager> StreamSocket<M> {
    /// A new socket for addresses of `family`.
    pub fn new(open: &OpenChannel<M>, family: Family) -> Result<Self> {
        let cm = Arc::new(open()?);
        StreamSocket::with_role(open, Settings::new(family, Options::default()), cm, Role::Fresh)
    }

    fn with_role(open: &OpenChannel<M>, settings: Settings, cm: Arc<M>, role: Role<M>) -> Result<Self> {
        let settings = Arc::new(settings);
        let inner = Inner {
            cm,
            settings: settings.clone(),
            role,
            failure: None,
        };
        Ok(StreamSocket {
            open: open.clone(),
            attendant: Mutex::new(None),
            front: Arc::new(Front::new(settings, inner)?),
        })
    }

    fn family(&self) -> Family {
        self.settings().family()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.front.lock()
    }

    /// A descriptor that is the socket's own, for as long as it lives.
    pub fn number(&self) -> RawFd {
        self.front.number()
    }

    /// What the program has set about it.
    pub fn settings(&self) -> &Settings {
        self.front.settings()
    }

    /// Whether no call has it locked for good: at the end of a program, one may be that a signal has interrupted.
    pub fn is_free(&self) -> bool {
        self.front.is_free()
    }

    /// Bind to a local address; port 0 is any.
    pub fn bind(&self, local: SocketAddr) -> Result<()> {
        let local = self.family().inner(local)?;
        let mut inner = self.lock();
        let Role::Fresh = inner.role else {
            return Err(error(Errno::EINVAL, "the socket is bound or connected already"));
        };
        let id = inner.new_id()?;
        id.bind_addr(local)?;
        inner.role = Role::Bound(id);
        Ok(())
    }

    /// Listen for connections, of which `backlog` may wait.
    pub fn listen(&self, backlog: u32) -> Result<()> {
        let mut inner = self.lock();
        match std::mem::replace(&mut inner.role, Role::Fresh) {
            Role::Fresh => {
                let id = inner.new_id()?;
                id.bind_addr(self.family().any())?;
                id.listen(backlog.max(1))?;
                inner.role = Role::Listening { id, waiting: None };
            }
            Role::Bound(id) => {
                if let Err(error) = id.listen(backlog.max(1)) {
                    inner.role = Role::Bound(id);
                    return Err(error);
                }
                inner.role = Role::Listening { id, waiting: None };
            }
            Role::Listening { id, waiting } => inner.role = Role::Listening { id, waiting },
            other => {
                inner.role = other;
                return Err(error(Errno::EINVAL, "a connected socket cannot listen"));
            }
        }
        Ok(())
    }

    /// The next connection to a listening socket, and its peer. Options are inherited.
    ///
    /// # Errors
    /// EINVAL: it does not listen; ENETDOWN, once: it did, and its device is gone.
    pub fn accept(&self) -> Result<(Self, SocketAddr)> {
        loop {
            let request = self
                .front
                .until(Patience::OfSocket, |inner| match &mut inner.role {
                    Role::Listening { waiting, .. } => Ok(waiting.take()),
                    Role::Closed => Err(closed()),
                    _ => match inner.failure.take() {
                        Some(errno) => Err(error(errno, "the socket listens no more: its device is gone")),
                        None => Err(error(Errno::EINVAL, "the socket does not listen")),
                    },
                })?;
            let options = self.settings().options();
            let cm = Arc::new((self.open)()?);
            let connected = match request.accept(&cm, &options) {
                Ok(connected) => connected,
                // The peer has gone meanwhile.
                Err(error) if error.errno() == Errno::EINVAL as i32 => {
                    tracing::info!(%error, "a request for a connection is gone");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let peer = connected.id.peer_addr();
            let role = Role::Connected(Box::new(connected));
            let settings = Settings::new(self.family(), options);
            let socket = StreamSocket::with_role(&self.open, settings, cm, role)?;
            let peer = self.family().outer(peer.unwrap_or_else(|| self.family().any()));
            return Ok((socket, peer));
        }
    }

    /// Connect to `to`. Non-blocking: EINPROGRESS, then wait until the socket is ready for output.
    pub fn connect(&self, to: SocketAddr) -> Result<()> {
        let to = self.family().inner(to)?;
        self.start_to_connect(to)?;
        let outcome = self.front.until(Patience::OfSocket, |inner| {
            match (&inner.role, inner.failure.take()) {
                (Role::Connected(_), _) => Ok(Some(())),
                (_, Some(errno)) => Err(error(errno, format!("{to} does not accept: {errno}"))),
                (Role::Closed, None) => Err(closed()),
                _ => Ok(None),
            }
        });
        match outcome.as_ref().err().map(|e| Errno::from_raw(e.errno())) {
            Some(Errno::EAGAIN) => {
                self.let_it_come();
                Err(error(Errno::EINPROGRESS, "the connection is on its way"))
            }
            Some(Errno::EINTR) => {
                self.let_it_come();
                outcome
            }
            _ => outcome,
        }
    }

    /// The connection comes about although no call waits for it.
    fn let_it_come(&self) {
        let attendant = match Attendant::start(&self.front) {
            Ok(attendant) => attendant,
            Err(error) => {
                return tracing::warn!(%error, "a connection comes about in the socket's calls only");
            }
        };
        let mut place = self.attendant.lock().unwrap_or_else(PoisonError::into_inner);
        // The one of an attempt that has failed ends outside the lock.
        let before = place.replace(attendant);
        drop(place);
        drop(before);
    }

    fn start_to_connect(&self, to: SocketAddr) -> Result<()> {
        let mut inner = self.lock();
        inner.failure = None;
        let id = match std::mem::replace(&mut inner.role, Role::Fresh) {
            Role::Fresh => inner.new_id()?,
            Role::Bound(id) => id,
            Role::Connecting(connecting) => {
                inner.role = Role::Connecting(connecting);
                return match self.settings().is_nonblocking() {
                    true => Err(error(Errno::EALREADY, "the connection is on its way already")),
                    false => Ok(()),
                };
            }
            other => {
                inner.role = other;
                return Err(error(
                    Errno::EISCONN,
                    "the socket is connected, listens, or is closed",
                ));
            }
        };
        let options = inner.settings.options();
        inner.role = Role::Connecting(Connecting::start(id, to, options)?);
        Ok(())
    }

    /// Its own address.
    pub fn local_addr(&self) -> SocketAddr {
        let local = self.lock().id().and_then(CmId::local_addr);
        self.family().outer(local.unwrap_or_else(|| self.family().any()))
    }

    /// Its peer's. ENOTCONN: there is none.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        match &self.lock().role {
            Role::Connected(connected) => connected.id.peer_addr().map(|peer| self.family().outer(peer)),
            _ => None,
        }
        .ok_or_else(not_connected)
    }

    /// The error that waits (`SO_ERROR`), which is taken by this.
    pub fn take_error(&self) -> Option<i32> {
        let mut inner = self.lock();
        let pumped = self.front.pump(&mut inner);
        let failure = inner.take_failure().map(|errno| errno as i32);
        failure.or_else(|| pumped.err().map(|error| error.errno()))
    }

    /// Close one way or both.
    pub fn shut_down(&self, how: Shutdown) -> Result<()> {
        self.lock().connected()?.shut_down(how)?;
        self.front.wake_all();
        Ok(())
    }

    /// What it is ready for now.
    pub fn ready(&self) -> Result<Ready> {
        let mut inner = self.lock();
        self.front.pump(&mut inner)?;
        Ok(inner.ready())
    }

    /// What it is ready for now; and what to sleep on until that may have changed. After [`LOOK_UP`] of sleep,
    /// [`look_at_peer`](Self::look_at_peer).
    pub fn watch(&self) -> Result<(Ready, Watch<'_, M>)> {
        let mut inner = self.lock();
        self.front.arm(&mut inner)?;
        let watch = self.front.watch(&mut inner);
        Ok((inner.ready(), watch))
    }

    /// Make a peer answer of which nothing was heard for a while: one that is dead shows up as an error.
    pub fn look_at_peer(&self) -> Result<()> {
        self.front.look_at_peer()
    }

    /// End it: what was sent still arrives (but see `SO_LINGER`); calls that wait fail.
    pub fn close(&self) {
        let linger = self.settings().options().linger;
        let is_connected = matches!(self.lock().role, Role::Connected(_));
        if is_connected && linger != Some(Duration::ZERO) {
            let _ = self.shut_down(Shutdown::Both);
            self.wait_for_arrival(Instant::now() + linger.unwrap_or(LINGER));
        }
        let mut inner = self.lock();
        match std::mem::replace(&mut inner.role, Role::Closed) {
            Role::Connected(mut connected) => connected.abort(),
            Role::Fresh | Role::Closed => {}
            Role::Bound(id) | Role::Listening { id, .. } => drop(id.destroy()),
            Role::Connecting(connecting) => drop(connecting),
        }
        drop(inner);
        self.front.wake_all();
    }

    fn wait_for_arrival(&self, until: Instant) {
        loop {
            let watch = {
                let mut inner = self.lock();
                let Ok(()) = self.front.arm(&mut inner) else {
                    return;
                };
                match &inner.role {
                    Role::Connected(connected) if !connected.has_arrived() => {}
                    _ => return,
                }
                self.front.watch(&mut inner)
            };
            let left = until.saturating_duration_since(Instant::now());
            // A signal does not end it: the program could not say what became of its data.
            let _ = watch.sleep(left.min(LOOK_UP));
            if left.is_zero() {
                return;
            }
        }
    }
}
