//! Who may send what: the accounts of a stream, without any I/O.
//!
//! Positions count bytes since the beginning; the place in a ring is the position modulo its size. A message never
//! crosses the end of a ring. The sender counts what it sent, the receiver tells in credits what it is done with; both
//! counts only grow, and neither overtakes the other.

use std::ops::Range;

use crate::message::{Credit, Violation};

/// What may be sent to the peer.
#[derive(Clone, Copy, Debug)]
pub struct SendWindow {
    ring_bytes: u64,
    messages: u64,
    sent: Credit,
    done: Credit,
}

impl SendWindow {
    /// The peer's ring has `ring_bytes` bytes (at least 1), and `messages` may be on their way (at least 1).
    pub fn new(ring_bytes: u32, messages: u16) -> Self {
        SendWindow {
            ring_bytes: ring_bytes.into(),
            messages: messages.into(),
            sent: Credit::default(),
            done: Credit::default(),
        }
    }

    /// How many bytes the next message may have; 0 is none at all.
    pub fn room(&self) -> usize {
        if self.sent.messages - self.done.messages >= self.messages {
            return 0;
        }
        let free = self.ring_bytes - (self.sent.bytes - self.done.bytes);
        let to_the_end = self.ring_bytes - self.sent.bytes % self.ring_bytes;
        free.min(to_the_end) as usize
    }

    /// A message of `bytes`, at most [`room`](Self::room), goes: where in the ring.
    pub fn send(&mut self, bytes: usize) -> u64 {
        debug_assert!(bytes > 0 && bytes <= self.room());
        let place = self.sent.bytes % self.ring_bytes;
        self.sent.bytes += bytes as u64;
        self.sent.messages += 1;
        place
    }

    /// The peer is done with so much.
    pub fn credit(&mut self, credit: Credit) -> Result<(), Violation> {
        let grows = credit.bytes >= self.done.bytes && credit.messages >= self.done.messages;
        let was_sent = credit.bytes <= self.sent.bytes && credit.messages <= self.sent.messages;
        if !(grows && was_sent) {
            return Err(Violation::Credit);
        }
        self.done = credit;
        Ok(())
    }
}

/// What has arrived from the peer.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWindow {
    ring_bytes: u64,
    messages: u64,
    arrived: Credit,
    taken: u64,
    told: Credit,
}

impl ReceiveWindow {
    /// Our ring has `ring_bytes` bytes (at least 1), and `messages` may be on their way (at least 1).
    pub fn new(ring_bytes: u32, messages: u16) -> Self {
        ReceiveWindow {
            ring_bytes: ring_bytes.into(),
            messages: messages.into(),
            arrived: Credit::default(),
            taken: 0,
            told: Credit::default(),
        }
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> usize {
        (self.arrived.bytes - self.taken) as usize
    }

    /// A message of `bytes` has arrived, whose immediate was `immediate`.
    pub fn arrive(&mut self, bytes: u32, immediate: u32) -> Result<(), Violation> {
        let bytes = u64::from(bytes);
        let free = self.ring_bytes - (self.arrived.bytes - self.taken);
        let to_the_end = self.ring_bytes - self.arrived.bytes % self.ring_bytes;
        if bytes == 0 || bytes != u64::from(immediate) || bytes > free.min(to_the_end) {
            return Err(Violation::Data);
        }
        self.arrived.bytes += bytes;
        self.arrived.messages += 1;
        Ok(())
    }

    /// Where in the ring the first `bytes` unread ones lie, at most [`readable`](Self::readable): one range, or two around
    /// the end.
    pub fn places(&self, bytes: usize) -> [Range<usize>; 2] {
        debug_assert!(bytes <= self.readable());
        let ring = self.ring_bytes as usize;
        let start = (self.taken % self.ring_bytes) as usize;
        let first = bytes.min(ring - start);
        [start..start + first, 0..bytes - first]
    }

    /// So many were read and their room is free, at most [`readable`](Self::readable).
    pub fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.readable());
        self.taken += bytes as u64;
    }

    /// All that the peer should know by now.
    pub fn credit(&self) -> Credit {
        Credit {
            bytes: self.taken,
            messages: self.arrived.messages,
        }
    }

    /// Whether the peer should be told: it has used up half of something. So there are never more than three credits on
    /// their way that it has not taken notice of: to cause another it must have seen the one before the last.
    pub fn owes_credit(&self) -> bool {
        let bytes = self.taken - self.told.bytes;
        let messages = self.arrived.messages - self.told.messages;
        bytes > 0 && 2 * bytes >= self.ring_bytes || messages > 0 && 2 * messages >= self.messages
    }

    /// The peer is told of [`credit`](Self::credit) now.
    pub fn told(&mut self) {
        self.told = self.credit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_ends_at_the_ring_s_end_and_the_next_begins_at_its_start() {
        let mut window = SendWindow::new(10, 100);
        assert_eq!(window.send(7), 0);
        assert_eq!(window.room(), 3);
        window
            .credit(Credit {
                bytes: 5,
                messages: 1,
            })
            .unwrap();
        assert_eq!(window.room(), 3);
        assert_eq!(window.send(3), 7);
        assert_eq!(window.room(), 5);
        assert_eq!(window.send(5), 0);
        assert_eq!(window.room(), 0);
    }

    #[test]
    fn messages_are_limited_apart_from_bytes() {
        let mut window = SendWindow::new(1000, 2);
        window.send(1);
        window.send(1);
        assert_eq!(window.room(), 0);
        window
            .credit(Credit {
                bytes: 0,
                messages: 1,
            })
            .unwrap();
        assert_eq!(window.room(), 998);
    }

    #[test]
    fn a_credit_takes_nothing_back_and_gives_no_more_than_was_sent() {
        let mut window = SendWindow::new(10, 10);
        window.send(4);
        window.send(4);
        let credit = |bytes, messages| Credit { bytes, messages };
        assert_eq!(window.credit(credit(9, 2)), Err(Violation::Credit));
        assert_eq!(window.credit(credit(8, 3)), Err(Violation::Credit));
        window.credit(credit(4, 2)).unwrap();
        assert_eq!(window.credit(credit(3, 2)), Err(Violation::Credit));
        assert_eq!(window.credit(credit(4, 1)), Err(Violation::Credit));
        assert_eq!(window.credit(credit(u64::MAX, u64::MAX)), Err(Violation::Credit));
        window.credit(credit(4, 2)).unwrap();
    }

    #[test]
    fn data_that_lies_about_its_length_or_has_no_room_is_refused() {
        let mut window = ReceiveWindow::new(10, 4);
        assert_eq!(window.arrive(0, 0), Err(Violation::Data));
        assert_eq!(window.arrive(4, 5), Err(Violation::Data));
        assert_eq!(window.arrive(11, 11), Err(Violation::Data));
        window.arrive(8, 8).unwrap();
        assert_eq!(window.arrive(3, 3), Err(Violation::Data));
        window.take(8);
        // There is room for ten, but it would cross the end.
        assert_eq!(window.arrive(3, 3), Err(Violation::Data));
        window.arrive(2, 2).unwrap();
        assert_eq!(window.readable(), 2);
    }

    #[test]
    fn a_credit_is_owed_after_half_of_the_bytes_or_messages() {
        let mut window = ReceiveWindow::new(10, 4);
        window.arrive(6, 6).unwrap();
        window.take(4);
        assert!(!window.owes_credit());
        window.take(1);
        assert!(window.owes_credit());
        window.told();
        assert!(!window.owes_credit());
        window.arrive(1, 1).unwrap();
        window.arrive(1, 1).unwrap();
        assert!(window.owes_credit());
        assert_eq!(
            window.credit(),
            Credit {
                bytes: 5,
                messages: 3
            }
        );
    }

    proptest! {
        /// Whatever a peer says, the accounts stay within the rings.
        #[test]
        fn hostile_numbers_never_lead_out_of_a_ring(
            ring_bytes in 1_u32..100,
            messages in 1_u16..5,
            steps in proptest::collection::vec((any::<u8>(), 0_u64..120, 0_u64..8, any::<bool>()), 1..100),
        ) {
            let mut sender = SendWindow::new(ring_bytes, messages);
            let mut receiver = ReceiveWindow::new(ring_bytes, messages);
            for (kind, bytes, messages, is_huge) in steps {
                match kind % 4 {
                    0 => {
                        let immediate = bytes as u32 ^ u32::from(is_huge && kind > 200);
                        let _ = receiver.arrive(bytes as u32, immediate);
                    }
                    1 => receiver.take((bytes as usize).min(receiver.readable())),
                    2 if sender.room() > 0 => {
                        let length = (bytes as usize).clamp(1, sender.room());
                        let place = sender.send(length);
                        prop_assert!(place + length as u64 <= ring_bytes.into());
                    }
                    _ => {
                        let _ = sender.credit(match is_huge {
                            true => Credit { bytes: u64::MAX - bytes, messages },
                            false => Credit { bytes, messages },
                        });
                    }
                }
                prop_assert!(receiver.readable() <= ring_bytes as usize);
                prop_assert!(sender.room() <= ring_bytes as usize);
                for place in receiver.places(receiver.readable()) {
                    prop_assert!(place.end <= ring_bytes as usize);
                }
            }
        }

        /// Any sizes, any order of sending, reading and credits: every byte arrives once and in order, and neither side
        /// ever stands still while the other is done.
        #[test]
        fn a_stream_through_two_windows_is_whole(
            ring_bytes in 1_u32..200,
            messages in 1_u16..20,
            steps in proptest::collection::vec((1_usize..300, 0_usize..300), 1..300),
        ) {
            let mut sender = SendWindow::new(ring_bytes, messages);
            let mut receiver = ReceiveWindow::new(ring_bytes, messages);
            let mut ring = vec![0_u8; ring_bytes as usize];
            let (mut sent, mut read) = (0_u64, 0_u64);
            for (want, take) in steps {
                let bytes = want.min(sender.room());
                if bytes > 0 {
                    let place = sender.send(bytes) as usize;
                    for slot in &mut ring[place..place + bytes] {
                        *slot = sent as u8;
                        sent += 1;
                    }
                    receiver.arrive(bytes as u32, bytes as u32).unwrap();
                }
                let take = take.min(receiver.readable());
                for byte in receiver.places(take).into_iter().flatten() {
                    prop_assert_eq!(ring[byte], read as u8);
                    read += 1;
                }
                receiver.take(take);
                if receiver.owes_credit() {
                    sender.credit(receiver.credit()).unwrap();
                    receiver.told();
                }
                prop_assert!(sender.room() > 0 || receiver.readable() > 0);
            }
            prop_assert_eq!(sent, read + receiver.readable() as u64);
        }
    }
}
