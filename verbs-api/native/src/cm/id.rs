//! Ids: their beginning and end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use verbs_api::{CmPortSpace, Object, PeerParameters, Refused, Result};
use verbs_sys::ibv_gid;

use super::CmId;
use super::channel::Channel;
use super::manager::{Manager, RawId, Turn};
use crate::Native;
use crate::qp::Bound;

/// An id of the library. It is there as long as somebody holds this: its owner, or an event that was taken.
#[derive(Debug)]
pub(super) struct IdInner {
    pub(super) raw: RawId,
    pub(super) manager: Arc<Manager>,
    pub(super) provider: Native,
    pub(super) space: CmPortSpace,
    pub(super) taken: Taken,
    is_gone: AtomicBool,
    state: Mutex<IdState>,
}

/// What changes of it.
#[derive(Debug)]
pub(super) struct IdState {
    pub(super) channel: Arc<Channel>,
    pub(super) part: Part,
    pub(super) qp: Option<Bound>,
    pub(super) groups: Vec<Group>,
}

/// What can be said next about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing that concerns us: a listener, or a connection in the hands of the library.
    Other,
    /// A peer waits for an answer, and has offered this.
    Requested(PeerParameters),
    /// The peer has replied, and the program makes its queue pair ready itself.
    Replied,
    /// We have disconnected.
    Ended,
}

/// A group that the id has joined, or is joining.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) address: std::net::SocketAddr,
    pub(super) cookie: u64,
    pub(super) membership: Membership,
}

/// How far that is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Membership {
    /// Asked for.
    Asked,
    /// There, without a queue pair.
    Without,
    /// There, with the queue pair attached to this.
    Attached { group: ibv_gid, lid: u16 },
}

impl IdInner {
    pub(super) fn new(
        turn: &mut Turn<'_>,
        raw: RawId,
        channel: &Arc<Channel>,
        provider: &Native,
        space: CmPortSpace,
        part: Part,
    ) -> Arc<IdInner> {
        let inner = Arc::new(IdInner {
            raw,
            manager: channel.manager.clone(),
            provider: provider.clone(),
            space,
            taken: Taken::default(),
            is_gone: AtomicBool::new(false),
            state: Mutex::new(IdState {
                channel: channel.clone(),
                part,
                qp: None,
                groups: Vec::new(),
            }),
        });
        turn.know(&inner);
        inner
    }

    /// Always within a turn, if there is one too.
    pub(super) fn lock(&self) -> MutexGuard<'_, IdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn at a moment when all events of the id that were taken are acknowledged.
    pub(super) fn turn_without_events(&self) -> Turn<'_> {
        loop {
            self.taken.wait_for_none();
            let turn = self.manager.turn();
            if self.taken.is_none() {
                return turn;
            }
        }
    }

    fn end(&self, mut turn: Turn<'_>) -> Result<()> {
        turn.destroy_id(self.raw)?;
        self.is_gone.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for IdInner {
    fn drop(&mut self) {
        if !*self.is_gone.get_mut() {
            // A refusal leaves it to the library: there is nobody to tell.
            let _ = self.end(self.manager.turn());
        }
    }
}

impl Object for CmId {
    /// Waits until its events that were taken are dropped.
    fn destroy(self) -> Result<(), Refused<Self>> {
        let ended = self.inner.end(self.inner.turn_without_events());
        ended.map_err(|error| Refused { object: self, error })
    }
}

/// How many events of an id a program has taken and not dropped yet.
#[derive(Debug, Default)]
pub(super) struct Taken {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Taken {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self) {
        *self.lock() += 1;
    }

    pub(super) fn acknowledge(&self) {
        *self.lock() -= 1;
        self.changed.notify_all();
    }

    fn is_none(&self) -> bool {
        *self.lock() == 0
    }

    fn wait_for_none(&self) {
        let none = self.changed.wait_while(self.lock(), |count| *count > 0);
        drop(none.unwrap_or_else(PoisonError::into_inner));
    }
}
