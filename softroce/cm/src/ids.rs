//! Communication IDs: not to be guessed, and not used again soon.

use std::hash::{DefaultHasher, Hasher};

/// Gives numbers: the process's part of the address in the upper 8 bits, so that answers find the process, and 24 bits
/// that follow from the seed.
#[derive(Debug)]
pub(crate) struct Ids {
    prefix: u32,
    seed: u64,
    /// How many numbers were drawn.
    drawn: u64,
}

impl Ids {
    pub(crate) fn new(prefix: u8, seed: u64) -> Self {
        Ids {
            prefix: u32::from(prefix) << 24,
            seed,
            drawn: 0,
        }
    }

    /// 64 bits. Peers see some of them (transaction ids, starting PSNs), and must not learn the others by that: so not a
    /// generator that can be turned back, but a keyed hash (SipHash) of seed and count.
    pub(crate) fn random(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_u64(self.drawn);
        hasher.finish()
    }

    /// A number that is not `taken`, and not 0.
    pub(crate) fn next(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        // Far fewer than half of the 2^24 are in use, so this ends after a few steps.
        loop {
            let id = self.prefix | (self.random() >> 40) as u32;
            if id & 0x00ff_ffff != 0 && !taken(id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_one_others() {
        let draw = |seed| {
            let mut ids = Ids::new(7, seed);
            [ids.random(), ids.random(), ids.next(|_| false).into()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(3)[2] >> 24, 7);
    }

    #[test]
    fn a_number_that_is_taken_is_not_given() {
        let (mut one, mut other) = (Ids::new(1, 5), Ids::new(1, 5));
        let first = one.next(|_| false);
        assert_ne!(other.next(|id| id == first), first);
    }
}
