//! The receive queue: a ring of buffers.
#![forbid(unsafe_code)]

use std::collections::TryReserveError;

use verbs_api::{RecvWr, Sge};

use crate::mutants::{Mutant, is_on};
use crate::pool::{Pool, Pools, Ring, Store, make_room};

/// The receive queues' pools of an engine; a shape is how many entries a request may have.
pub(crate) type ReceivePools = Pools<ReceiveStore>;

/// Requests, and for each its room for entries.
#[derive(Debug)]
pub(crate) struct ReceiveStore {
    max_sge: usize,
    wqes: Vec<RecvWqe>,
    sges: Vec<Sge>,
}

/// The queue. Its requests lie in a pool.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Ring,
}

/// A receive request in the queue.
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
    /// Reserve what the queue may hold. ENOMEM when there is no memory for that.
    pub(crate) fn new(pools: &mut ReceivePools, depth: u32, max_sge: u32) -> verbs_api::Result<Self> {
        let share = pools.join(max_sge as usize, depth)?;
        Ok(ReceiveQueue {
            ring: Ring::new(share, depth),
        })
    }

    /// Forget everything, and what was reserved: the queue is gone.
    pub(crate) fn release(&mut self, pools: &mut ReceivePools) {
        self.clear(pools);
        pools.leave(self.ring.share());
    }

    /// Requests that it may hold.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> u32 {
        self.ring.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Check a request and queue it.
    pub(crate) fn push(&mut self, pools: &mut ReceivePools, request: &RecvWr<'_>) -> Result<(), Refusal> {
        if self.ring.is_full() {
            return Err(Refusal::Full {
                depth: self.ring.depth(),
            });
        }
        let pool = pools.get_mut(self.ring.share());
        let (given, limit) = (request.sges.len(), pool.store().max_sge);
        if given > limit {
            return Err(Refusal::TooManySges { given, limit });
        }
        let slot = self.ring.push(pool);
        pool.store_mut().put(slot, request);
        Ok(())
    }

    /// The oldest request and its entries.
    pub(crate) fn front<'p>(&self, pools: &'p ReceivePools) -> Option<(RecvWqe, &'p [Sge])> {
        if self.is_empty() {
            return None;
        }
        let slot = self.ring.slot(self.ring.head());
        Some(pools.get(self.ring.share()).store().at(slot))
    }

    /// Take the oldest request out.
    pub(crate) fn pop(&mut self, pools: &mut ReceivePools) -> Option<RecvWqe> {
        let (wqe, _) = self.front(pools)?;
        self.ring.pop(self.pool(pools));
        Some(wqe)
    }

    /// Forget everything.
    pub(crate) fn clear(&mut self, pools: &mut ReceivePools) {
        self.ring.clear(pools.get_mut(self.ring.share()));
    }

    /// Hold `depth` requests from now on, at least those that are in it. For the control path. ENOMEM, and nothing
    /// changed, when there is no memory for that.
    pub(crate) fn resize(&mut self, pools: &mut ReceivePools, depth: u32) -> verbs_api::Result<()> {
        assert!(depth >= self.len(), "the caller has checked that all fit");
        let max_sge = self.pool(pools).store().max_sge as u32;
        let mut resized = ReceiveQueue::new(pools, depth, max_sge)?;
        while !self.is_empty() && !is_on(Mutant::ResizeLosesReceives) {
            let from = self.ring.slot(self.ring.head());
            let pool = self.pool(pools);
            let to = resized.ring.push(pool);
            pool.store_mut().copy(from, to);
            self.ring.pop(pool);
        }
        self.release(pools);
        *self = resized;
        Ok(())
    }

    fn pool<'p>(&self, pools: &'p mut ReceivePools) -> &'p mut Pool<ReceiveStore> {
        pools.get_mut(self.ring.share())
    }
}

impl Store for ReceiveStore {
    type Shape = usize;

    fn new(max_sge: usize) -> Self {
        ReceiveStore {
            max_sge,
            wqes: Vec::new(),
            sges: Vec::new(),
        }
    }

    fn shape(&self) -> usize {
        self.max_sge
    }

    fn reserve(&mut self, entries: usize) -> Result<(), TryReserveError> {
        make_room(&mut self.wqes, entries)?;
        make_room(&mut self.sges, entries * self.max_sge)
    }

    fn extend_to(&mut self, entries: usize) {
        self.wqes.resize(entries, RecvWqe::default());
        self.sges.resize(entries * self.max_sge, Sge::default());
    }
}

impl ReceiveStore {
    /// The caller has checked that its entries fit.
    fn put(&mut self, slot: usize, request: &RecvWr<'_>) {
        let start = slot * self.max_sge;
        self.sges[start..start + request.sges.len()].copy_from_slice(request.sges);
        self.wqes[slot] = RecvWqe {
            wr_id: request.wr_id,
            capacity: request.sges.iter().map(|sge| u64::from(sge.length)).sum(),
            sge_count: request.sges.len() as u16,
        };
    }

    fn at(&self, slot: usize) -> (RecvWqe, &[Sge]) {
        let wqe = self.wqes[slot];
        (wqe, &self.sges[slot * self.max_sge..][..wqe.sge_count()])
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.wqes[to] = self.wqes[from];
        let start = from * self.max_sge;
        self.sges
            .copy_within(start..start + self.max_sge, to * self.max_sge);
    }
}
