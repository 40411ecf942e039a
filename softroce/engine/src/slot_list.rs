//! Lists of queue pairs, by slot: each stands in a list at most once, and nothing allocates but [`SlotList::reserve`].

use std::collections::VecDeque;

/// A first-in-first-out list.
#[derive(Debug, Default)]
pub(crate) struct SlotList {
    queue: VecDeque<u32>,
    is_listed: Vec<bool>,
}

impl SlotList {
    /// Make room for slots `0..count`.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > self.is_listed.len() {
            self.is_listed.resize(count, false);
            self.queue.reserve(count - self.queue.len());
        }
    }

    /// Add at the end, unless it is in the list.
    pub(crate) fn push(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_listed[slot as usize], true) {
            self.queue.push_back(slot);
        }
    }

    /// Put one that was just taken back at the front.
    pub(crate) fn push_front(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_listed[slot as usize], true) {
            self.queue.push_front(slot);
        }
    }

    /// Take the first.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.queue.pop_front()?;
        self.is_listed[slot as usize] = false;
        Some(slot)
    }

    /// Take one out, wherever it is. Slow: for the control path.
    pub(crate) fn remove(&mut self, slot: u32) {
        if std::mem::replace(&mut self.is_listed[slot as usize], false) {
            self.queue.retain(|listed| *listed != slot);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
