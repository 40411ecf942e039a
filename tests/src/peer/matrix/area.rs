//! Where messages lie in an end's memory, and what is in them.

use std::ops::Range;

use anyhow::{Result, bail};
use verbs_api::Buffer;

use crate::peer::Role;

/// The parts of an end's registered memory, all of one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// What it sends and writes, and what its peer reads.
    Out,
    /// Where its receives put messages.
    Received,
    /// Where its peer writes.
    Written,
    /// Where its own reads and atomics put answers.
    Fetched,
}

/// Messages of all sizes and their guards fit.
const AREA: usize = (1 << 20) + (64 << 10);
/// Bytes before each message that nobody may touch. The messages that follow lie at addresses of any alignment that
/// way, as the sizes are odd.
const GUARD: usize = 48;
/// What areas are filled with before.
const UNTOUCHED: u8 = 0xee;
const LARGEST: usize = 1 << 20;

/// All of an end's memory, bytes.
pub const MEMORY: usize = 4 * AREA;

/// The sizes of a connected service's messages at this path MTU.
pub fn sizes(mtu: usize) -> [usize; 7] {
    [0, 1, mtu - 1, mtu, mtu + 1, 3 * mtu + 5, LARGEST]
}

impl Area {
    /// Where it begins.
    pub fn start(self) -> usize {
        AREA * match self {
            Area::Out => 0,
            Area::Received => 1,
            Area::Written => 2,
            Area::Fetched => 3,
        }
    }

    /// Where the messages of these sizes lie in it: one behind the other, a guard before each.
    pub fn slots(self, sizes: &[usize]) -> Vec<Range<usize>> {
        let mut next = self.start();
        let slots = sizes.iter().map(|size| {
            let start = next + GUARD;
            next = start + size;
            start..next
        });
        slots.collect()
    }

    /// Fills it with what tells untouched bytes.
    pub fn wipe(self, buffer: &Buffer) {
        buffer.fill(self.start()..self.start() + AREA, UNTOUCHED);
    }

    /// Writes these messages.
    pub fn write(self, buffer: &Buffer, sizes: &[usize], seed: Seed) {
        for (i, slot) in self.slots(sizes).into_iter().enumerate() {
            buffer.write(slot.start, &seed.message(i, slot.len()));
        }
    }

    /// Whether nothing has touched it since it was wiped.
    pub fn check_untouched(self, buffer: &Buffer) -> Result<()> {
        self.check(buffer, &[], Seed(0))
    }

    /// Whether exactly these messages are in it, and nothing has touched the bytes around them.
    pub fn check(self, buffer: &Buffer, sizes: &[usize], seed: Seed) -> Result<()> {
        let mut expected = vec![UNTOUCHED; AREA];
        for (i, slot) in self.slots(sizes).into_iter().enumerate() {
            let message = seed.message(i, slot.len());
            expected[slot.start - self.start()..slot.end - self.start()].copy_from_slice(&message);
        }
        let got = buffer.to_vec(self.start()..self.start() + AREA);
        if got == expected {
            return Ok(());
        }
        let at = got
            .iter()
            .zip(&expected)
            .position(|(got, wanted)| got != wanted)
            .unwrap_or_default();
        let slots = self.slots(sizes);
        let place = slots.iter().position(|slot| at + self.start() < slot.end);
        let place = place.map_or("behind all messages".to_owned(), |i| {
            let offset = (at + self.start()) as i64 - slots[i].start as i64;
            format!("byte {offset} of the message of {} bytes", sizes[i])
        });
        bail!(
            "{place} is {:#04x}, not {:#04x} (area {self:?})",
            got[at],
            expected[at]
        )
    }
}

/// What tells the messages of one round from all others.
#[derive(Debug, Clone, Copy)]
pub struct Seed(u64);

impl Seed {
    /// For messages that this end makes up.
    pub fn new(of: Role, operation: u64, round: u64) -> Seed {
        Seed(round << 16 | operation << 8 | u64::from(of == Role::Listener))
    }

    /// Message `i`: no eight bytes of it are like others, so that a packet in the wrong place is seen.
    pub fn message(self, i: usize, length: usize) -> Vec<u8> {
        let words = (0u64..).map(|word| mixed(self.0 << 40 ^ (i as u64) << 32 ^ word));
        words.flat_map(u64::to_le_bytes).take(length).collect()
    }
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of `x`.
pub fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use verbs_api::Buffer;

    use super::{AREA, Area, MEMORY, Seed, sizes};
    use crate::peer::Role;

    #[test]
    fn the_messages_of_every_mtu_fit_into_an_area() {
        for mtu in [256, 1024, 4096] {
            let slots = Area::Fetched.slots(&sizes(mtu));
            assert!(slots.last().is_some_and(|slot| slot.end <= MEMORY));
        }
        assert_eq!(Area::Fetched.start() + AREA, MEMORY);
    }

    #[test]
    fn a_wrong_byte_and_a_touched_guard_are_found() {
        let (buffer, sizes) = (Buffer::new(MEMORY), sizes(1024));
        let seed = Seed::new(Role::Caller, 3, 1);
        Area::Written.wipe(&buffer);
        Area::Written.write(&buffer, &sizes, seed);
        assert!(Area::Written.check(&buffer, &sizes, seed).is_ok());
        let slot = Area::Written.slots(&sizes)[4].clone();
        for at in [slot.start - 1, slot.start + 7, slot.end] {
            let before = buffer.load_u8(at);
            buffer.write(at, &[before ^ 1]);
            assert!(Area::Written.check(&buffer, &sizes, seed).is_err(), "{at}");
            buffer.write(at, &[before]);
        }
        assert!(
            Area::Written
                .check(&buffer, &sizes, Seed::new(Role::Listener, 3, 1))
                .is_err()
        );
    }
}
