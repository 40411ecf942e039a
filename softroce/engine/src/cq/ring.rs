//! The ring that programs poll, and how it grows under their hands.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam_queue::ArrayQueue;
use verbs_api::Wc;

use super::MAX_CQE;

/// Completions on their way from the engine to polling threads: bounded, shared.
///
/// The engine pushes under its owner's exclusive access, and waits for nobody; any thread takes at any time, one after
/// the other. When a queue pair's completions are removed, the takers wait, so that those of others stay in order. It grows by a further segment,
/// which takes all that comes from then on; what waits in an earlier segment is popped first. Each segment is at least
/// twice as large as the one before it, so there are few, and all together are no larger than the last one twice.
#[derive(Debug)]
pub struct CompletionRing {
    first: Segment,
    /// Of whoever takes completions out.
    taking: Mutex<()>,
    /// Counts the beginnings and ends of removals: odd while one is under way, and the ring may look empty.
    removals: AtomicU32,
    /// Completions that it may hold; never more than the last segment has room for.
    capacity: AtomicU32,
}

#[derive(Debug)]
struct Segment {
    queue: ArrayQueue<Wc>,
    /// Once it is there, nothing is pushed to this segment any more.
    next: OnceLock<Box<Segment>>,
}

impl Segment {
    fn new(cqe: u32) -> Self {
        Segment {
            queue: ArrayQueue::new(cqe as usize),
            next: OnceLock::new(),
        }
    }
}

impl CompletionRing {
    pub(super) fn new(cqe: u32) -> Self {
        CompletionRing {
            first: Segment::new(cqe),
            taking: Mutex::new(()),
            removals: AtomicU32::new(0),
            capacity: AtomicU32::new(cqe),
        }
    }

    /// Take the oldest completion.
    pub fn pop(&self) -> Option<Wc> {
        if self.has_none() {
            return None;
        }
        let _taking = self.lock();
        self.pop_locked()
    }

    /// Move the oldest completions to `out`; how many.
    pub fn take(&self, out: &mut [Wc]) -> usize {
        if self.has_none() {
            return 0;
        }
        let _taking = self.lock();
        let mut taken = 0;
        while taken < out.len() {
            let Some(wc) = self.pop_locked() else { break };
            out[taken] = wc;
            taken += 1;
        }
        taken
    }

    /// Remove the completions of the queue pair `qpn`; all others stay, in order.
    pub(super) fn remove(&self, qpn: u32) {
        let _taking = self.lock();
        self.removals.fetch_add(1, Ordering::SeqCst);
        // Once around: each goes to the end again, but for those to remove.
        for _ in 0..self.len() {
            let Some(wc) = self.pop_locked() else { break };
            if wc.qp_num != qpn {
                self.push(wc)
                    .expect("the place of one that was just taken is free");
            }
        }
        self.removals.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether it was surely empty a moment ago, without the lock: programs that spin find nothing most of the time.
    fn has_none(&self) -> bool {
        let before = self.removals.load(Ordering::SeqCst);
        before.is_multiple_of(2) && self.is_empty() && self.removals.load(Ordering::SeqCst) == before
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop_locked(&self) -> Option<Wc> {
        let mut segment = &self.first;
        loop {
            // Asked before the pop: what that leaves empty then stays empty.
            let next = segment.next.get();
            if let Some(wc) = segment.queue.pop() {
                return Some(wc);
            }
            match next {
                Some(next) => segment = next,
                None if segment.next.get().is_none() => return None,
                // It grew meanwhile, and may have been pushed to before.
                None => {}
            }
        }
    }

    /// Completions waiting.
    pub fn len(&self) -> usize {
        self.segments().map(|segment| segment.queue.len()).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.segments().all(|segment| segment.queue.is_empty())
    }

    /// Completions that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed) as usize
    }

    /// Room for so many more. Polling threads can only make it more.
    pub(super) fn room(&self) -> u32 {
        (self.capacity().saturating_sub(self.len())) as u32
    }

    /// Append a completion. The caller knows that there is room, and is the only one who pushes or resizes.
    pub(super) fn push(&self, wc: Wc) -> Result<(), Wc> {
        self.last().queue.push(wc)
    }

    /// Let it hold `cqe` completions; the caller has checked that no more are waiting. Memory is never given back: a
    /// thread may be popping from any segment.
    pub(super) fn resize(&self, cqe: u32) {
        let last = self.last();
        let room = last.queue.capacity() as u32;
        if cqe > room {
            let next = Segment::new(cqe.max(MAX_CQE.min(2 * room)));
            last.next
                .set(Box::new(next))
                .expect("the last segment has no next one, and only the engine resizes");
        }
        self.capacity.store(cqe, Ordering::Relaxed);
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        std::iter::successors(Some(&self.first), |segment| {
            segment.next.get().map(|next| &**next)
        })
    }

    fn last(&self) -> &Segment {
        let mut segment = &self.first;
        while let Some(next) = segment.next.get() {
            segment = next;
        }
        segment
    }

    /// Completions that all segments together have memory for.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> usize {
        self.segments().map(|segment| segment.queue.capacity()).sum()
    }
}
