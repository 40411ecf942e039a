//! What is behind the lock of a stream socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_api::{CmEventKind, CmId, CmPortSpace, ConnectionManager, Provider, Result};

use crate::attendant::Attended;
use crate::connected::{Connected, Ready};
use crate::errors::{Errno, error, not_connected, would_block};
use crate::front::Behind;
use crate::handshake::{Attempt, Connecting, Request};
use crate::options::Settings;

/// The local ACK timeout (code): 0.13 s. A card that is not there is given up after eight of these, which softroce makes
/// about 4 s: longer than a busy machine keeps a process waiting, and shorter than a user waits.
const ACK_TIMEOUT: u8 = 15;

/// See the module's documentation.
pub(super) struct Inner<M: ConnectionManager> {
    pub(super) cm: Arc<M>,
    pub(super) settings: Arc<Settings>,
    pub(super) role: Role<M>,
    /// Of an attempt to connect, or of what a listener listened on: told once.
    pub(super) failure: Option<Errno>,
}

pub(super) enum Role<M: ConnectionManager> {
    Fresh,
    Bound(M::Id),
    Listening { id: M::Id, waiting: Option<Request<M>> },
    Connecting(Box<Connecting<M>>),
    Connected(Box<Connected<M>>),
    Closed,
}

impl<M: ConnectionManager> Behind for Inner<M> {
    type M = M;

    fn pump(&mut self) -> Result<bool> {
        let cm = self.cm.clone();
        match &mut self.role {
            Role::Fresh | Role::Bound(_) | Role::Closed => Ok(false),
            Role::Connected(connected) => connected.pump(&cm),
            Role::Listening { .. } => self.go_on_listening(&cm),
            Role::Connecting(_) => self.go_on_connecting(&cm),
        }
    }

    fn arm(&mut self) -> Result<bool> {
        let cm = self.cm.clone();
        match &mut self.role {
            Role::Connected(connected) => connected.arm(&cm),
            _ => {
                let found = self.pump()?;
                // It may have become connected.
                match &mut self.role {
                    Role::Connected(connected) if found => connected.arm(&cm).map(|_| true),
                    _ => Ok(found),
                }
            }
        }
    }

    fn attend(&mut self) -> Result<Attended> {
        let cm = self.cm.clone();
        let found = self.go_on_connecting(&cm)?;
        Ok(match (&self.role, found) {
            (Role::Connecting(_), true) => Attended::Something,
            (Role::Connecting(_), false) => Attended::Nothing,
            _ => Attended::Over,
        })
    }

    fn channels(&self) -> Vec<<M::P as Provider>::Channel> {
        match &self.role {
            Role::Connected(connected) => vec![connected.channel()],
            _ => Vec::new(),
        }
    }

    fn look_at_peer(&mut self, now: Instant) -> Result<()> {
        match &mut self.role {
            Role::Connected(connected) => connected.look_at_peer(now),
            _ => Ok(()),
        }
    }

    fn cm(&self) -> &Arc<M> {
        &self.cm
    }
}

impl<M: ConnectionManager> Inner<M> {
    fn go_on_listening(&mut self, cm: &M) -> Result<bool> {
        let mut found = false;
        while let Role::Listening { waiting, .. } = &mut self.role
            && waiting.is_none()
            && let Some(event) = cm.wait(Some(Duration::ZERO))?
        {
            found = true;
            if event.kind == CmEventKind::DeviceRemoval {
                drop(event);
                tracing::info!("the device of a listening socket is gone");
                self.failure = Some(Errno::ENETDOWN);
                self.role = Role::Fresh;
            } else {
                *waiting = Request::from_event(event);
            }
        }
        Ok(found)
    }

    /// Why the connection, or the attempt to have one, has failed: told once.
    pub(super) fn take_failure(&mut self) -> Option<Errno> {
        match &mut self.role {
            Role::Connected(connected) => connected.take_failure(),
            _ => self.failure.take(),
        }
    }

    fn go_on_connecting(&mut self, cm: &M) -> Result<bool> {
        let mut found = false;
        while matches!(self.role, Role::Connecting(_))
            && let Some(event) = cm.wait(Some(Duration::ZERO))?
        {
            found = true;
            let Role::Connecting(connecting) = std::mem::replace(&mut self.role, Role::Fresh) else {
                return Ok(true);
            };
            match connecting.handle(event) {
                Attempt::GoesOn(connecting) => self.role = Role::Connecting(connecting),
                Attempt::Done(connected) => self.role = Role::Connected(connected),
                Attempt::Failed(error) => {
                    tracing::info!(%error, "a socket does not connect");
                    self.failure = Some(Errno::from_raw(error.errno()));
                }
            }
        }
        Ok(found)
    }

    pub(super) fn ready(&self) -> Ready {
        match &self.role {
            Role::Connected(connected) => connected.ready(),
            Role::Listening { waiting, .. } => Ready {
                input: waiting.is_some(),
                ..Ready::default()
            },
            Role::Connecting(_) => Ready::default(),
            // As those of TCP.
            Role::Fresh | Role::Bound(_) | Role::Closed => Ready {
                input: self.failure.is_some(),
                output: true,
                hang_up: true,
                error: self.failure.is_some(),
            },
        }
    }

    pub(super) fn connected(&mut self) -> Result<&mut Connected<M>> {
        match &mut self.role {
            Role::Connected(connected) => Ok(connected),
            Role::Connecting(_) => Err(would_block()),
            Role::Closed => Err(closed()),
            Role::Fresh | Role::Bound(_) | Role::Listening { .. } => match self.failure.take() {
                Some(errno) => Err(error(errno, "the socket did not connect")),
                None => Err(not_connected()),
            },
        }
    }

    pub(super) fn id(&self) -> Option<&M::Id> {
        match &self.role {
            Role::Fresh | Role::Closed => None,
            Role::Bound(id) | Role::Listening { id, .. } => Some(id),
            Role::Connecting(connecting) => Some(connecting.id()),
            Role::Connected(connected) => Some(&connected.id),
        }
    }

    /// A new id with the options of the socket.
    pub(super) fn new_id(&self) -> Result<M::Id> {
        let id = self.cm.create_id(CmPortSpace::Tcp, 0)?;
        // A provider that has no choice here has a time that it thinks right.
        let _ = id.set_ack_timeout(ACK_TIMEOUT);
        let options = self.settings.options();
        if options.reuse_address {
            id.set_reuse_address(true)?;
        }
        if options.only_own_family {
            id.set_only_own_family(true)?;
        }
        Ok(id)
    }

    /// Something to do with a connection, if need be after waiting for it to come about.
    pub(super) fn connected_or_wait<R>(
        &mut self,
        act: impl FnOnce(&mut Connected<M>) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        match &self.role {
            Role::Connecting(_) => Ok(None),
            _ => act(self.connected()?),
        }
    }
}

pub(super) fn closed() -> verbs_api::Error {
    error(Errno::EBADF, "the socket is closed")
}
