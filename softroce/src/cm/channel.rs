//! The queue of an event channel, with a descriptor that is readable while it holds something.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_api::{Acknowledge, CmEvent, CmEventKind, DatagramPeer, Error, ErrorKind, PeerParameters, Result};

use super::id::IdInner;
use super::{Cm, CmId};
use crate::lock::Mutex;
use crate::os::{EventFd, poll_entry, wait_readable};

/// An event that waits.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) id: Arc<IdInner>,
    pub(super) kind: CmEventKind,
    pub(super) status: i32,
    pub(super) request: Option<Arc<IdInner>>,
    pub(super) private_data: Vec<u8>,
    pub(super) peer: PeerParameters,
    pub(super) datagram_peer: Option<DatagramPeer>,
    pub(super) group_cookie: u64,
}

impl Queued {
    /// An event without more to say.
    pub(super) fn new(id: &Arc<IdInner>, kind: CmEventKind, status: i32) -> Queued {
        Queued {
            id: id.clone(),
            kind,
            status,
            request: None,
            private_data: Vec::new(),
            peer: PeerParameters::default(),
            datagram_peer: None,
            group_cookie: 0,
        }
    }

    pub(super) fn into_event(self) -> CmEvent<Cm> {
        let id = self.id;
        CmEvent {
            kind: self.kind,
            cookie: id.cookie(),
            request: self.request.map(|inner| CmId { inner }),
            status: self.status,
            private_data: self.private_data,
            peer: self.peer,
            datagram_peer: self.datagram_peer,
            group_cookie: self.group_cookie,
            acknowledge: Acknowledge::new(move || id.unacknowledged.acknowledge()),
        }
    }

    /// Nobody will see it: a request that it brings is refused. Outside all gates.
    pub(super) fn refuse(self) {
        if let Some(inner) = self.request {
            drop(CmId { inner });
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ChannelShared {
    raised: EventFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    is_closed: bool,
}

impl ChannelShared {
    pub(super) fn new() -> io::Result<Self> {
        Ok(ChannelShared {
            raised: EventFd::new()?,
            queue: Mutex::default(),
        })
    }

    /// Append an event. Back it comes when nobody listens any more. Each id has a handful at most, so the ids bound it.
    #[allow(clippy::result_large_err, reason = "the event itself, on the way to its end")]
    pub(super) fn push(&self, event: Queued) -> Result<(), Queued> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(event);
        }
        queue.waiting.push_back(event);
        if queue.waiting.len() == 1 {
            self.raised.raise();
        }
        Ok(())
    }

    /// The oldest event; it counts as unacknowledged from now on.
    fn take(&self) -> Option<Queued> {
        let mut queue = self.queue.lock();
        let event = queue.waiting.pop_front()?;
        event.id.unacknowledged.add();
        if queue.waiting.is_empty() {
            self.raised.lower();
        }
        Some(event)
    }

    /// Take out what waits for an id.
    pub(super) fn remove(&self, id: &Arc<IdInner>) -> Vec<Queued> {
        let mut queue = self.queue.lock();
        let (of_id, others): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut queue.waiting)
            .into_iter()
            .partition(|event| Arc::ptr_eq(&event.id, id));
        queue.waiting = others;
        if queue.waiting.is_empty() && !of_id.is_empty() {
            self.raised.lower();
        }
        of_id.into()
    }

    /// Have those look who sleep on the descriptor.
    pub(super) fn wake(&self) {
        self.raised.raise();
    }

    /// Nobody listens any more; what waited.
    pub(super) fn close(&self) -> Vec<Queued> {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        std::mem::take(&mut queue.waiting).into()
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<Option<Queued>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if timeout.is_none() && self.raised.is_nonblocking() {
                return Err(Error::new(
                    ErrorKind::Again,
                    "the event channel is non-blocking and has no event",
                ));
            }
            wait_readable(&mut [poll_entry(self.raised.as_fd().as_raw_fd())], left);
        }
    }
}

impl AsFd for ChannelShared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raised.as_fd()
    }
}
