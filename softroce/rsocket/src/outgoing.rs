//! The accounts of what is posted and not completed yet: places in the send ring, and slots in the send queue.

use std::collections::VecDeque;

/// Which sends may take which slots: the last ones are kept for what must not wait behind data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Data and direct writes.
    Data,
    /// Control messages, mappings, and looking whether the peer is alive.
    Control,
}

/// Slots that data leaves alone: for a credit, the end of data, and a look at the peer.
pub(crate) const RESERVED: usize = 3;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Outgoing {
    ring_bytes: usize,
    head: usize,
    used: usize,
    slots: usize,
    /// Bytes in the ring of each send that has not completed, oldest first.
    posted: VecDeque<usize>,
}

impl Outgoing {
    /// A ring of so many bytes, and a send queue of `slots`, more than [`RESERVED`].
    pub(crate) fn new(ring_bytes: usize, slots: usize) -> Self {
        debug_assert!(slots > RESERVED);
        Outgoing {
            ring_bytes,
            head: 0,
            used: 0,
            slots,
            posted: VecDeque::with_capacity(slots),
        }
    }

    /// Whether a send of this class can be posted.
    pub(crate) fn has_slot(&self, class: Class) -> bool {
        let kept = match class {
            Class::Data => RESERVED,
            Class::Control => 0,
        };
        self.posted.len() + kept < self.slots
    }

    /// Bytes that one send can have in the ring.
    pub(crate) fn room(&self) -> usize {
        (self.ring_bytes - self.used).min(self.ring_bytes - self.head)
    }

    /// A place for so many bytes, at most [`room`](Self::room).
    pub(crate) fn place(&self, bytes: usize) -> usize {
        debug_assert!(bytes <= self.room());
        self.head
    }

    /// A send was posted, with so many bytes at the place.
    pub(crate) fn post(&mut self, bytes: usize) {
        self.head = (self.head + bytes) % self.ring_bytes;
        self.used += bytes;
        self.posted.push_back(bytes);
    }

    /// The oldest has completed.
    pub(crate) fn complete(&mut self) {
        if let Some(bytes) = self.posted.pop_front() {
            self.used -= bytes;
        }
    }

    /// Whether all have.
    pub(crate) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_round_and_never_cross_the_end() {
        let mut out = Outgoing::new(10, 8);
        assert_eq!((out.place(7), out.room()), (0, 10));
        out.post(7);
        assert_eq!((out.place(3), out.room()), (7, 3));
        out.post(2);
        assert_eq!((out.place(1), out.room()), (9, 1));
        out.complete();
        assert_eq!(out.room(), 1);
        out.post(1);
        assert_eq!((out.place(7), out.room()), (0, 7));
        out.complete();
        out.complete();
        assert!(out.is_empty());
        assert_eq!(out.room(), 10);
    }

    #[test]
    fn data_leaves_slots_to_control() {
        let mut out = Outgoing::new(10, RESERVED + 1);
        assert!(out.has_slot(Class::Data));
        out.post(0);
        assert!(!out.has_slot(Class::Data));
        for _ in 0..RESERVED {
            assert!(out.has_slot(Class::Control));
            out.post(0);
        }
        assert!(!out.has_slot(Class::Control));
        out.complete();
        assert!(out.has_slot(Class::Control) && !out.has_slot(Class::Data));
    }
}
