//! Asynchronous events of a context: a bounded queue with a descriptor that is readable while it holds something.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbs_api::{AsyncEvent, AsyncEventGuard, EventKind, EventSource};

use crate::lock::{Mutex, MutexGuard};
use crate::os::EventFd;
use crate::unacknowledged::Unacknowledged;

/// Events that may wait; a program that never looks loses those beyond.
const CAPACITY: usize = 1024;

/// The queue of one context.
#[derive(Debug)]
pub(crate) struct AsyncQueue {
    raised: EventFd,
    waiting: Mutex<VecDeque<Waiting>>,
}

/// Which handle of an object an event is told to: an XRC target may have several, and each is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventHandle(usize);

impl EventHandle {
    /// The handle whose acknowledgements `unacknowledged` counts, as long as it lives.
    pub(crate) fn of(unacknowledged: &Arc<Unacknowledged>) -> Self {
        EventHandle(Arc::as_ptr(unacknowledged) as usize)
    }
}

#[derive(Debug)]
struct Waiting {
    event: AsyncEvent,
    unacknowledged: Arc<Unacknowledged>,
}

impl AsyncQueue {
    /// Empty.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(AsyncQueue {
            raised: EventFd::new()?,
            waiting: Mutex::new(VecDeque::with_capacity(CAPACITY)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock()
    }

    /// Readable while an event waits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.raised.as_fd()
    }

    /// Append an event of the object whose acknowledgements `unacknowledged` counts.
    pub(crate) fn push(&self, kind: EventKind, source: EventSource, unacknowledged: &Arc<Unacknowledged>) {
        let mut waiting = self.lock();
        if waiting.len() == CAPACITY {
            tracing::warn!(?kind, ?source, "nobody reads asynchronous events; one is lost");
            return;
        }
        waiting.push_back(Waiting {
            event: AsyncEvent { kind, source },
            unacknowledged: unacknowledged.clone(),
        });
        if waiting.len() == 1 {
            self.raised.raise();
        }
    }

    /// Whether no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The oldest event, and whom it is told to.
    pub(crate) fn pop(&self) -> Option<(AsyncEventGuard, EventHandle)> {
        let mut waiting = self.lock();
        let Waiting {
            event,
            unacknowledged,
        } = waiting.pop_front()?;
        if waiting.is_empty() {
            self.raised.lower();
        }
        unacknowledged.add();
        let handle = EventHandle::of(&unacknowledged);
        let guard = AsyncEventGuard::new(event, move || unacknowledged.acknowledge());
        Some((guard, handle))
    }

    /// Forget events of an object that is being destroyed.
    pub(crate) fn purge(&self, of: &Arc<Unacknowledged>) {
        let mut waiting = self.lock();
        let before = waiting.len();
        waiting.retain(|entry| !Arc::ptr_eq(&entry.unacknowledged, of));
        if waiting.is_empty() && before != 0 {
            self.raised.lower();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::{poll_entry, wait_readable};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    fn readable(queue: &AsyncQueue) -> bool {
        wait_readable(&mut [poll_entry(queue.fd().as_raw_fd())], Some(Duration::ZERO))
    }

    #[test]
    fn the_descriptor_is_readable_while_an_event_waits() {
        let queue = AsyncQueue::new().unwrap();
        let object = Arc::new(Unacknowledged::default());
        assert!(!readable(&queue) && queue.pop().is_none());
        queue.push(EventKind::CommEst, EventSource::Qp(7), &object);
        queue.push(EventKind::SqDrained, EventSource::Qp(7), &object);
        assert!(readable(&queue));
        assert_eq!(queue.pop().unwrap().0.event().kind, EventKind::CommEst);
        assert!(readable(&queue));
        assert_eq!(
            queue.pop().unwrap().0.event(),
            AsyncEvent {
                kind: EventKind::SqDrained,
                source: EventSource::Qp(7)
            }
        );
        assert!(!readable(&queue));
        object.wait();
    }

    #[test]
    fn events_of_a_destroyed_object_are_gone_and_others_stay() {
        let queue = AsyncQueue::new().unwrap();
        let (one, two) = (
            Arc::new(Unacknowledged::default()),
            Arc::new(Unacknowledged::default()),
        );
        queue.push(EventKind::CommEst, EventSource::Qp(1), &one);
        queue.push(EventKind::CommEst, EventSource::Qp(2), &two);
        queue.purge(&one);
        assert_eq!(queue.pop().unwrap().0.event().source, EventSource::Qp(2));
        queue.push(EventKind::CommEst, EventSource::Qp(2), &two);
        queue.purge(&two);
        assert!(!readable(&queue));
    }

    #[test]
    fn a_program_that_never_looks_loses_only_the_newest() {
        let queue = AsyncQueue::new().unwrap();
        let object = Arc::new(Unacknowledged::default());
        for qpn in 0..CAPACITY as u32 + 5 {
            queue.push(EventKind::CommEst, EventSource::Qp(qpn), &object);
        }
        let taken = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!(taken, CAPACITY);
    }
}
