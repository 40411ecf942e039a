//! Keys of regions: unpredictable, and mapped back to the region without a search.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a key above the tag.
pub(super) const INDEX_BITS: u32 = 24;
const HALF_BITS: u32 = INDEX_BITS / 2;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
const ROUNDS: usize = 4;

/// A secret permutation of the 24-bit numbers: a Feistel network whose round function multiplies 64 secret bits
/// with 64 others. It turns the id of a region (place and generation) into the upper 24 bits of its keys, and back:
/// all regions have different keys, a key comes back no sooner than its id, and a peer that knows some keys learns
/// nothing of the next.
#[derive(Debug)]
pub(super) struct KeyPermutation {
    secrets: [(u64, u64); ROUNDS],
    /// The index that was looked up last, above its id: most often it is asked for again.
    last: AtomicU64,
}

impl KeyPermutation {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let keys = KeyPermutation {
            secrets: std::array::from_fn(|_| (split_mix(&mut state), split_mix(&mut state))),
            last: AtomicU64::new(0),
        };
        keys.last.store(keys.id_found_of(0).into(), Ordering::Relaxed);
        keys
    }

    /// The upper 24 bits of the key of `id`.
    pub(super) fn index_of(&self, id: u32) -> u32 {
        let (mut left, mut right) = (id >> HALF_BITS & HALF_MASK, id & HALF_MASK);
        for secret in &self.secrets {
            (left, right) = (right, left ^ round(*secret, right));
        }
        left << HALF_BITS | right
    }

    /// The id whose key has these upper 24 bits.
    #[inline]
    pub(super) fn id_of(&self, index: u32) -> u32 {
        let last = self.last.load(Ordering::Relaxed);
        if (last >> 32) as u32 == index {
            return last as u32;
        }
        let id = self.id_found_of(index);
        self.last
            .store(u64::from(index) << 32 | u64::from(id), Ordering::Relaxed);
        id
    }

    fn id_found_of(&self, index: u32) -> u32 {
        let (mut left, mut right) = (index >> HALF_BITS & HALF_MASK, index & HALF_MASK);
        for secret in self.secrets.iter().rev() {
            (left, right) = (right ^ round(*secret, left), left);
        }
        left << HALF_BITS | right
    }
}

/// 12 bits that depend on all of `half` and `secret`.
#[inline]
fn round((a, b): (u64, u64), half: u32) -> u32 {
    let product = u128::from(a ^ u64::from(half)) * u128::from(b ^ u64::from(half) << 32);
    let folded = (product >> 64) as u64 ^ product as u64;
    (folded >> 26) as u32 & HALF_MASK
}

/// The next number of the SplitMix64 sequence (Steele, Lea, Flood 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_its_own_index_and_is_found_by_it() {
        let keys = KeyPermutation::new(7);
        let mut seen = vec![false; 1 << INDEX_BITS];
        for id in 0..1 << INDEX_BITS {
            let index = keys.index_of(id);
            assert!(
                !std::mem::replace(&mut seen[index as usize], true),
                "index {index:#x} came twice"
            );
            assert_eq!(keys.id_of(index), id);
        }
    }

    #[test]
    fn neighbouring_ids_and_neighbouring_seeds_have_unrelated_indices() {
        let mut differences = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let keys = KeyPermutation::new(seed);
            for id in 0..64 {
                differences.insert(keys.index_of(id) ^ keys.index_of(id + 1));
            }
        }
        // 4096 draws out of 2^24 seldom meet.
        assert!(
            differences.len() > 4_080,
            "only {} different steps",
            differences.len()
        );
    }
}
