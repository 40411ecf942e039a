//! A work queue as a ring of entries, which lie in segments of a pool.
#![forbid(unsafe_code)]

use super::{Pool, SEGMENT, Share, Store};

/// Places of a queue's entries. Entries are named by a number that only grows.
#[derive(Debug)]
pub(crate) struct Ring {
    share: Share,
    depth: u32,
    /// Segments that the ring has room for.
    span: u32,
    /// The oldest entry.
    head: u64,
    /// The entry of this number stands in the first place. An empty ring begins there again.
    base: u64,
    /// The next one to be pushed.
    tail: u64,
    /// The segment of the first places; here because a queue that is seldom used needs no other.
    first: u32,
    /// Those behind it, in order of the places. Only those of entries in the ring mean something.
    others: Box<[u32]>,
}

/// Segments that `depth` entries lie in at most, wherever the first of them stands.
pub(crate) fn segments_for(depth: u32) -> u32 {
    match depth {
        0 => 0,
        depth => (depth + SEGMENT as u32 - 2) / SEGMENT as u32 + 1,
    }
}

impl Ring {
    /// An empty ring whose `share` was reserved for this depth.
    pub(crate) fn new(share: Share, depth: u32) -> Self {
        let span = segments_for(depth).max(1);
        Ring {
            share,
            depth,
            span,
            head: 0,
            base: 0,
            tail: 0,
            first: 0,
            others: vec![0; span as usize - 1].into_boxed_slice(),
        }
    }

    pub(crate) fn share(&self) -> Share {
        self.share
    }

    /// Entries that it may hold.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Entries in it.
    pub(crate) fn len(&self) -> u32 {
        (self.tail - self.head) as u32
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.head >= u64::from(self.depth)
    }

    /// Which place of the ring's segments an entry stands in, and in which place of that segment.
    #[inline]
    fn place(&self, number: u64) -> (u32, usize) {
        let place = number - self.base;
        let segment = (place / SEGMENT as u64) as u32;
        let around = if segment >= self.span {
            segment - self.span
        } else {
            segment
        };
        (around, place as usize % SEGMENT)
    }

    #[inline]
    fn segment(&self, place: u32) -> u32 {
        match place {
            0 => self.first,
            place => self.others[place as usize - 1],
        }
    }

    /// Where in the pool's store entry `number` lies, which is in the ring.
    #[inline]
    pub(crate) fn slot(&self, number: u64) -> usize {
        debug_assert!(self.head <= number && number < self.tail);
        let (place, offset) = self.place(number);
        self.segment(place) as usize * SEGMENT + offset
    }

    /// One entry more: where it lies. The caller has checked that the ring is not full.
    pub(crate) fn push<S: Store>(&mut self, pool: &mut Pool<S>) -> usize {
        debug_assert!(!self.is_full());
        let (place, offset) = self.place(self.tail);
        if offset == 0 {
            let segment = pool.take();
            match place {
                0 => self.first = segment,
                place => self.others[place as usize - 1] = segment,
            }
        }
        self.tail += 1;
        self.segment(place) as usize * SEGMENT + offset
    }

    /// The oldest entry is done with. There is one.
    pub(crate) fn pop<S: Store>(&mut self, pool: &mut Pool<S>) {
        debug_assert!(!self.is_empty());
        let (place, offset) = self.place(self.head);
        self.head += 1;
        if offset + 1 == SEGMENT || self.is_empty() {
            pool.give(self.segment(place));
            self.begin_again();
        }
    }

    /// Take the newest entry back. There is one.
    pub(crate) fn unpush<S: Store>(&mut self, pool: &mut Pool<S>) {
        debug_assert!(!self.is_empty());
        self.tail -= 1;
        let (place, offset) = self.place(self.tail);
        if offset == 0 || self.is_empty() {
            pool.give(self.segment(place));
            self.begin_again();
        }
    }

    /// Forget all entries.
    pub(crate) fn clear<S: Store>(&mut self, pool: &mut Pool<S>) {
        while !self.is_empty() {
            self.pop(pool);
        }
    }

    /// Let places begin anew where that changes no entry's: when there is none, and after each round.
    fn begin_again(&mut self) {
        let round = u64::from(self.span) * SEGMENT as u64;
        if self.is_empty() {
            self.base = self.tail;
        } else if self.head - self.base >= round {
            self.base += round;
        }
    }
}
