//! Where the entries of work queues lie: in memory that the queue pairs of an engine share.
//!
//! A queue takes a segment of [`SEGMENT`] entries when it needs one, and gives it back when it has drained. So an idle
//! queue holds nothing, and busy ones use the memory that was used last, however many queues there are.
//!
//! Taking never fails: a queue reserves all that it may ever hold when it is created, and that is when memory is
//! allocated. It is not written to before it is used, so that it costs address space alone: what is touched is what was
//! in use at once.
#![forbid(unsafe_code)]

mod ring;

pub(crate) use ring::{Ring, segments_for};

use std::collections::TryReserveError;

use verbs_api::{Error, ErrorKind, Result};

/// Entries of a segment.
pub(crate) const SEGMENT: usize = 4;

/// The memory behind the segments of one pool: an array, or several side by side.
pub(crate) trait Store: Sized {
    /// What queues must have in common to share it.
    type Shape: Copy + PartialEq;

    fn new(shape: Self::Shape) -> Self;

    fn shape(&self) -> Self::Shape;

    /// Have room for this many entries without another allocation.
    fn reserve(&mut self, entries: usize) -> Result<(), TryReserveError>;

    /// Have this many entries, within what was reserved.
    fn extend_to(&mut self, entries: usize);
}

/// Segments of one shape.
#[derive(Debug)]
pub(crate) struct Pool<S> {
    store: S,
    segments: Segments,
}

/// Which segments of a pool are free.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Those that were in use and are not; the one given back last is taken first, as it is still in the cache.
    free: Vec<u32>,
    /// Segments that were ever in use: the others have not been touched.
    made: u32,
    /// Those that all queues together may hold.
    reserved: u32,
}

/// The pools of an engine, one for each shape in use.
#[derive(Debug)]
pub(crate) struct Pools<S> {
    /// One that nobody uses any more is empty, and is the next new shape's.
    pools: Vec<Pool<S>>,
}

/// A pool, and how much of it a queue has reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pool: u32,
    segments: u32,
}

impl<S: Store> Pool<S> {
    fn new(shape: S::Shape) -> Self {
        Pool {
            store: S::new(shape),
            segments: Segments::default(),
        }
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    pub(crate) fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Give back a segment whose entries are all done with.
    pub(crate) fn give(&mut self, segment: u32) {
        self.segments.free.push(segment);
    }

    /// Take a segment. The caller holds no more than it has reserved.
    pub(crate) fn take(&mut self) -> u32 {
        if let Some(segment) = self.segments.free.pop() {
            return segment;
        }
        self.take_untouched()
    }

    #[cold]
    fn take_untouched(&mut self) -> u32 {
        let segment = self.segments.made;
        assert!(segment < self.segments.reserved, "more is held than was reserved");
        self.segments.made += 1;
        self.store.extend_to(self.segments.made as usize * SEGMENT);
        segment
    }

    fn reserve(&mut self, segments: u32) -> Result<(), TryReserveError> {
        let total = (self.segments.reserved as usize).saturating_add(segments as usize);
        make_room(&mut self.segments.free, total)?;
        self.store.reserve(total.saturating_mul(SEGMENT))?;
        self.segments.reserved += segments;
        Ok(())
    }

    fn is_unused(&self) -> bool {
        self.segments.reserved == 0
    }
}

impl<S: Store> Pools<S> {
    pub(crate) fn new() -> Self {
        Pools { pools: Vec::new() }
    }

    /// Reserve what a queue of `depth` entries may hold at once. ENOMEM when there is no memory for that.
    pub(crate) fn join(&mut self, shape: S::Shape, depth: u32) -> Result<Share> {
        let segments = segments_for(depth);
        let own = self.pools.iter().position(|pool| pool.store.shape() == shape);
        let pool = match own.or_else(|| self.pools.iter().position(Pool::is_unused)) {
            Some(index) => index,
            None => {
                self.pools.push(Pool::new(shape));
                self.pools.len() - 1
            }
        };
        if self.pools[pool].is_unused() {
            self.pools[pool] = Pool::new(shape);
        }
        self.pools[pool].reserve(segments).map_err(|_| {
            Error::new(
                ErrorKind::NoMemory,
                format!("no memory for a work queue of {depth} requests"),
            )
        })?;
        Ok(Share {
            pool: pool as u32,
            segments,
        })
    }

    /// A queue that holds nothing is gone. The memory goes with the last queue of its shape.
    pub(crate) fn leave(&mut self, share: Share) {
        let pool = &mut self.pools[share.pool as usize];
        pool.segments.reserved -= share.segments;
        if pool.is_unused() {
            *pool = Pool::new(pool.store.shape());
        }
    }

    pub(crate) fn get(&self, share: Share) -> &Pool<S> {
        &self.pools[share.pool as usize]
    }

    pub(crate) fn get_mut(&mut self, share: Share) -> &mut Pool<S> {
        &mut self.pools[share.pool as usize]
    }
}

/// Let `vec` hold `wanted` elements without another allocation. When it must move, it moves what is in it alone: the
/// rest of the memory is not touched, which a reallocation might do.
pub(crate) fn make_room<T>(vec: &mut Vec<T>, wanted: usize) -> Result<(), TryReserveError> {
    if vec.capacity() >= wanted {
        return Ok(());
    }
    let mut larger = Vec::new();
    let generous = wanted.max(vec.capacity().saturating_mul(2));
    larger
        .try_reserve_exact(generous)
        .or_else(|_| larger.try_reserve_exact(wanted))?;
    larger.append(vec);
    *vec = larger;
    Ok(())
}

#[cfg(test)]
mod tests;
