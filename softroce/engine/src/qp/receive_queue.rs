//! The receive queue: a ring of buffers, allocated once.

use verbs_api::{RecvWr, Sge};

/// The ring.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Box<[RecvWqe]>,
    sges: Box<[Sge]>,
    depth: u32,
    max_sge: usize,
    head: u64,
    /// The request of this number lies in the first place. An empty queue begins there again, so that one of many that
    /// are seldom used needs little of the processor's cache.
    base: u64,
    tail: u64,
}

/// A receive request in the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    /// Bytes that fit.
    pub(crate) capacity: u64,
    sge_count: u16,
}

impl RecvWqe {
    /// Its entries.
    pub(crate) fn sge_count(&self) -> usize {
        usize::from(self.sge_count)
    }
}

/// Why a request does not fit the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Full { depth: u32 },
    TooManySges { given: usize, limit: usize },
}

impl ReceiveQueue {
    pub(crate) fn new(depth: u32, max_sge: u32) -> Self {
        let slots = depth.max(1).next_power_of_two() as usize;
        ReceiveQueue {
            ring: vec![RecvWqe::default(); slots].into_boxed_slice(),
            sges: vec![Sge::default(); slots * max_sge as usize].into_boxed_slice(),
            depth,
            max_sge: max_sge as usize,
            head: 0,
            base: 0,
            tail: 0,
        }
    }

    /// Requests that it may hold.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Entries that a request may have.
    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> u32 {
        (self.tail - self.head) as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    fn slot(&self, number: u64) -> usize {
        ((number - self.base) & (self.ring.len() as u64 - 1)) as usize
    }

    /// Check a request and queue it.
    pub(crate) fn push(&mut self, request: &RecvWr<'_>) -> Result<(), Refusal> {
        if self.tail - self.head >= u64::from(self.depth) {
            return Err(Refusal::Full { depth: self.depth });
        }
        if request.sges.len() > self.max_sge {
            return Err(Refusal::TooManySges {
                given: request.sges.len(),
                limit: self.max_sge,
            });
        }
        if self.is_empty() {
            self.base = self.tail;
        }
        let slot = self.slot(self.tail);
        let start = slot * self.max_sge;
        self.sges[start..start + request.sges.len()].copy_from_slice(request.sges);
        self.ring[slot] = RecvWqe {
            wr_id: request.wr_id,
            capacity: request.sges.iter().map(|sge| u64::from(sge.length)).sum(),
            sge_count: request.sges.len() as u16,
        };
        self.tail += 1;
        Ok(())
    }

    /// The oldest request and its entries.
    pub(crate) fn front(&self) -> Option<(RecvWqe, &[Sge])> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.head);
        let wqe = self.ring[slot];
        let start = slot * self.max_sge;
        Some((wqe, &self.sges[start..start + usize::from(wqe.sge_count)]))
    }

    /// Take the oldest request out.
    pub(crate) fn pop(&mut self) -> Option<RecvWqe> {
        let (wqe, _) = self.front()?;
        self.head += 1;
        Some(wqe)
    }

    /// Hold `depth` requests from now on, at least those that are in it. Allocates: for the control path.
    pub(crate) fn resize(&mut self, depth: u32) {
        assert!(depth >= self.len(), "the caller has checked that all fit");
        let mut resized = ReceiveQueue::new(depth, self.max_sge as u32);
        while let Some((wqe, sges)) = self.front() {
            let request = RecvWr {
                wr_id: wqe.wr_id,
                sges,
            };
            resized
                .push(&request)
                .expect("there is room for what fitted before");
            self.head += 1;
        }
        *self = resized;
    }

    /// Forget everything.
    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }
}
