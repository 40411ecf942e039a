//! CRC-32 of runs of bytes, in one of two ways. Both give the same; which is faster depends on the machine.
//!
//! - **Tables or instructions**: `crc32fast` multiplies without carries where the processor can. An emulated one takes
//!   a hundred times as long for that, and without it there are tables: a look at memory for each byte.
//! - **Words**: shifts and XORs of whole words alone, which even an emulated processor does at nearly full speed.
//!
//! How words do it: a CRC is the remainder of a division, so adding multiples of the generator changes nothing.
//! x^300 + x^155 + x^117 + x^89 + 1 is one (S. Russell, "Chorba", arXiv 2412.16398, 2024). A word is struck out by
//! adding it, as so many multiples, to the bits 145, 183, 211 and 300 places behind: eight shifts and ten XORs for
//! eight bytes. What is left in the end are the few words on which the last ones were added.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether long runs go by words. No order with other memory is needed, as both ways give the same.
static BY_WORDS: AtomicBool = AtomicBool::new(false);

const WORD_LEN: usize = 8;
/// Words behind the one that is struck out, up to the last that something is added to.
const REACH: usize = 5;
const REACH_LEN: usize = REACH * WORD_LEN;
/// Below this length tables are fast enough everywhere.
const WORDS_LEN_MIN: usize = 128;
/// What the two ways are tried on, bytes: a small packet, so that trying takes a moment.
const TRIAL_LEN: usize = 1024;
const TRIALS: u32 = 4;

/// The CRC of what had `crc`, and then `bytes`. (The CRC of nothing is 0.)
pub(crate) fn append(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= WORDS_LEN_MIN && BY_WORDS.load(Ordering::Relaxed) {
        append_by_words(crc, bytes)
    } else {
        append_by_instructions(crc, bytes)
    }
}

/// Try both ways with this clock, ns, and use the faster one from now on.
pub(crate) fn choose(mut now_ns: impl FnMut() -> u64) {
    let trial = [0x5a; TRIAL_LEN];
    let mut shortest = |way: fn(u32, &[u8]) -> u32| {
        let mut once = |_| {
            let start = now_ns();
            std::hint::black_box(way(0, std::hint::black_box(&trial)));
            now_ns().saturating_sub(start)
        };
        // The shortest of several: the first one also loads code and tables, and another may be interrupted.
        (0..TRIALS).map(&mut once).min()
    };
    let by_instructions = shortest(append_by_instructions);
    BY_WORDS.store(shortest(append_by_words) < by_instructions, Ordering::Relaxed);
}

fn append_by_instructions(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// `bytes` are at least as many as a word reaches.
fn append_by_words(crc: u32, bytes: &[u8]) -> u32 {
    let struck_len = (bytes.len() - REACH_LEN) / WORD_LEN * WORD_LEN;
    let (struck, rest) = bytes.split_at(struck_len);
    // A register that holds something is as good as one that holds nothing, and that something on the next bytes.
    let mut added = [u64::from(!crc), 0, 0, 0, 0];
    // In groups, so that words of the loop's state need not move from place to place.
    let mut groups = struck.chunks_exact(REACH_LEN);
    for group in &mut groups {
        strike_out(group, &mut added);
    }
    strike_out(groups.remainder(), &mut added);
    let mut last = [0; REACH_LEN + WORD_LEN];
    let last = &mut last[..rest.len()];
    last.copy_from_slice(rest);
    for (byte, more) in last
        .iter_mut()
        .zip(added.iter().flat_map(|word| word.to_le_bytes()))
    {
        *byte ^= more;
    }
    append_by_instructions(!0, last)
}

/// Strike out whole words. `added` is what earlier ones have added to the next words.
#[inline(always)]
fn strike_out(words: &[u8], added: &mut [u64; REACH]) {
    for bytes in words.as_chunks::<WORD_LEN>().0 {
        // The first bit of the run is the lowest one of its first byte, so "behind" is to the left.
        let word = u64::from_le_bytes(*bytes) ^ added[0];
        *added = [
            added[1],
            added[2] ^ (word << (145 - 128)) ^ (word << (183 - 128)),
            added[3] ^ (word >> (192 - 145)) ^ (word >> (192 - 183)) ^ (word << (211 - 192)),
            added[4] ^ (word >> (256 - 211)) ^ (word << (300 - 256)),
            word >> (320 - 300),
        ];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_ways_know_the_check_value_of_the_polynomial() {
        assert_eq!(append_by_instructions(0, b"123456789"), 0xcbf4_3926);
        let long = [b'a'; 300];
        assert_eq!(append_by_words(0, &long), append_by_instructions(0, &long));
    }

    proptest! {
        #[test]
        fn words_and_instructions_give_the_same(crc: u32, bytes in proptest::collection::vec(any::<u8>(), WORDS_LEN_MIN..600)) {
            prop_assert_eq!(append_by_words(crc, &bytes), append_by_instructions(crc, &bytes));
        }
    }

    #[test]
    fn every_length_and_every_place_of_a_run_is_right() {
        let bytes: Vec<u8> = (0..5000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for start in 0..8 {
            for len in (REACH_LEN..400).chain([1024, 4096, 4111, 4112, 4113]) {
                let run = &bytes[start..start + len];
                assert_eq!(
                    append_by_words(7, run),
                    append_by_instructions(7, run),
                    "{len} from {start}"
                );
            }
        }
    }

    #[test]
    fn the_way_that_took_less_time_is_used() {
        // Each trial reads the clock twice. The first trials are those of the instructions.
        let clock = |slow_ones: std::ops::Range<u32>| {
            let (mut reads, mut now) = (0, 0);
            move || {
                now += if slow_ones.contains(&reads) { 100 } else { 10 };
                reads += 1;
                now
            }
        };
        choose(clock(0..2 * TRIALS));
        assert!(BY_WORDS.load(Ordering::Relaxed));
        choose(clock(0..0));
        assert!(!BY_WORDS.load(Ordering::Relaxed), "nothing is won");
        choose(clock(2 * TRIALS..4 * TRIALS));
        assert!(!BY_WORDS.load(Ordering::Relaxed));
    }
}
