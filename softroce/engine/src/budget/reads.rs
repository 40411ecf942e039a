//! How many bytes may be on their way toward us: READ responses, which our own socket must hold.

use std::collections::VecDeque;

use super::Claim;

/// READ responses that the engine has asked for. They have no acknowledgement, and our own socket buffer bounds them.
#[derive(Debug)]
pub(crate) struct ReadBudget {
    limit: u32,
    /// Payload bytes that one READ request asks for at most.
    request_limit: u32,
    outstanding: u32,
    waiting: VecDeque<u32>,
    claims: Vec<Claim>,
}

impl ReadBudget {
    pub(crate) fn new(receive_buffer_bytes: u32) -> Self {
        // The rest is for what peers send unasked.
        let limit = (receive_buffer_bytes / 5 * 2).max(16 << 10);
        ReadBudget {
            limit,
            request_limit: limit / 2,
            outstanding: 0,
            waiting: VecDeque::new(),
            claims: Vec::new(),
        }
    }

    /// How many packets of `mtu` bytes one request may ask for.
    pub(crate) fn packets_a_request(&self, mtu: u32) -> u32 {
        (self.request_limit / mtu).max(1)
    }

    /// Room for slots `0..count`.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > self.claims.len() {
            self.claims.resize(count, Claim::default());
            self.waiting.reserve(count - self.waiting.len());
        }
    }

    /// Whether queue pair `slot` may ask for `bytes` now.
    pub(crate) fn admits(&self, slot: u32, bytes: u32) -> bool {
        let is_next = self.waiting.is_empty() || self.claims[slot as usize].is_woken();
        is_next && (self.outstanding == 0 || self.outstanding + bytes <= self.limit)
    }

    /// Queue pair `slot` asks for `bytes`.
    pub(crate) fn charge(&mut self, slot: u32, bytes: u32) {
        self.outstanding += bytes;
        self.claims[slot as usize].spend();
    }

    /// Give `bytes` back.
    pub(crate) fn refund(&mut self, bytes: u32) {
        debug_assert!(
            bytes <= self.outstanding,
            "refund of {bytes} with {} asked for",
            self.outstanding
        );
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }

    /// Queue `slot` until there is room.
    pub(crate) fn wait(&mut self, slot: u32) {
        self.claims[slot as usize].enter(&mut self.waiting, slot);
    }

    /// `slot` has had its turn and does not wait.
    pub(crate) fn end_turn(&mut self, slot: u32) {
        self.claims[slot as usize].end_turn();
    }

    /// `slot` waits for its peer's window now, and for nothing here. A READ needs both: one that lost its place here
    /// whenever it had to wait there, and there whenever here, would go round for ever with others like it.
    pub(crate) fn suspend_turn(&mut self, slot: u32) {
        self.claims[slot as usize].suspend_turn();
    }

    /// The next slot that may try again.
    pub(crate) fn wake(&mut self) -> Option<u32> {
        if self.outstanding > self.limit / 2 {
            return None;
        }
        let slot = self.waiting.pop_front()?;
        self.claims[slot as usize] = Claim::Granted;
        Some(slot)
    }

    /// `slot` asks no longer.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.waiting.retain(|waiting| *waiting != slot);
        self.claims[slot as usize] = Claim::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_among_reads_outlives_a_wait_for_the_peer() {
        let mut reads = ReadBudget::new(100_000);
        reads.reserve(4);
        reads.charge(0, 40_000);
        reads.wait(1);
        reads.wait(2);
        reads.refund(40_000);
        assert_eq!(reads.wake(), Some(1));
        reads.suspend_turn(1);
        assert!(
            reads.admits(1, 20_000),
            "its turn comes again without waiting here"
        );
        assert!(!reads.admits(3, 20_000), "others were first");
        reads.charge(1, 20_000);
        reads.suspend_turn(1);
        assert!(!reads.admits(1, 20_000), "it has used its place");
    }

    #[test]
    fn reads_are_woken_when_half_of_the_budget_is_free() {
        let mut reads = ReadBudget::new(100_000);
        reads.reserve(4);
        assert_eq!(reads.packets_a_request(4096), 4);
        reads.charge(0, 40_000);
        assert!(!reads.admits(1, 1));
        reads.wait(1);
        reads.refund(10_000);
        assert_eq!(reads.wake(), None);
        reads.refund(10_000);
        assert_eq!(reads.wake(), Some(1));
        assert!(reads.admits(1, 20_000));
    }
}
