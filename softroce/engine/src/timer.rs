//! Deadlines of queue pairs: an indexed binary heap with at most one entry a queue pair.
//!
//! Lazy: an entry may be earlier than what its queue pair wants by now (acknowledgements push deadlines back all the
//! time); its owner then looks again and arms anew. It is never later. Who wants nothing any more has no entry. Nothing allocates but [`Timers::reserve`].

use crate::Time;

const ABSENT: u32 = u32::MAX;

/// The heap.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Deadline and slot, the earliest first (binary heap).
    heap: Vec<(Time, u32)>,
    /// Where in `heap` a slot's entry is, or [`ABSENT`].
    position: Vec<u32>,
}

impl Timers {
    /// Make room for slots `0..count`.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > self.position.len() {
            self.position.resize(count, ABSENT);
            self.heap.reserve(count - self.heap.len());
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|(deadline, _)| *deadline)
    }

    /// The earliest deadline and its slot.
    pub(crate) fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Make sure that `slot` is looked at no later than `deadline`.
    pub(crate) fn arm(&mut self, slot: u32, deadline: Time) {
        let at = self.position[slot as usize];
        if at == ABSENT {
            self.heap.push((deadline, slot));
            let last = self.heap.len() - 1;
            self.position[slot as usize] = last as u32;
            self.sift_up(last);
        } else if deadline < self.heap[at as usize].0 {
            self.heap[at as usize].0 = deadline;
            self.sift_up(at as usize);
        }
    }

    /// Forget the entry of `slot`.
    pub(crate) fn disarm(&mut self, slot: u32) {
        let at = self.position[slot as usize];
        if at != ABSENT {
            self.remove(at as usize);
        }
    }

    /// Take out a slot whose deadline is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let (deadline, slot) = *self.heap.first()?;
        if deadline > now {
            return None;
        }
        self.remove(0);
        Some(slot)
    }

    fn remove(&mut self, at: usize) {
        let (_, slot) = self.heap.swap_remove(at);
        self.position[slot as usize] = ABSENT;
        if at < self.heap.len() {
            self.position[self.heap[at].1 as usize] = at as u32;
            self.sift_down(at);
            self.sift_up(at);
        }
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].0 <= self.heap[at].0 {
                return;
            }
            self.swap(at, parent);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let least = if right < self.heap.len() && self.heap[right].0 < self.heap[left].0 {
                right
            } else {
                left
            };
            if self.heap[at].0 <= self.heap[least].0 {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.position[self.heap[a].1 as usize] = a as u32;
        self.position[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn slots_come_out_in_the_order_of_their_deadlines() {
        let mut timers = Timers::default();
        timers.reserve(100);
        for slot in 0..100u32 {
            timers.arm(slot, at(u64::from(slot * 37 % 100)));
        }
        timers.disarm(50);
        let mut last = at(0);
        for _ in 0..99 {
            let next = timers.next().unwrap();
            assert!(next >= last);
            last = next;
            assert_ne!(timers.pop_due(next), Some(50));
        }
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn arming_again_moves_a_deadline_only_forward() {
        let mut timers = Timers::default();
        timers.reserve(2);
        timers.arm(0, at(10));
        timers.arm(0, at(20));
        assert_eq!(timers.next(), Some(at(10)));
        timers.arm(0, at(5));
        assert_eq!(timers.next(), Some(at(5)));
        assert_eq!(timers.pop_due(at(4)), None);
        assert_eq!(timers.pop_due(at(5)), Some(0));
        assert_eq!(timers.pop_due(at(50)), None);
    }
}
