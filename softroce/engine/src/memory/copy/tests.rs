use std::sync::atomic::{AtomicBool, Ordering};

use verbs_api::Buffer;

use super::*;

/// One implementation of the copies.
struct Copies {
    name: &'static str,
    from_program: unsafe fn(*mut u8, *const u8, usize) -> Outcome,
    to_program: unsafe fn(*mut u8, *const u8, usize) -> Outcome,
    compare_swap: unsafe fn(*mut u64, u64, u64, &mut u64) -> Outcome,
    fetch_add: unsafe fn(*mut u64, u64, &mut u64) -> Outcome,
}

fn implementations() -> Vec<Copies> {
    vec![
        Copies {
            name: "this machine's",
            from_program,
            to_program,
            compare_swap,
            fetch_add,
        },
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        Copies {
            name: "portable",
            from_program: portable::from_program,
            to_program: portable::to_program,
            compare_swap: portable::compare_swap,
            fetch_add: portable::fetch_add,
        },
    ]
}

const SPACE: usize = 400;
#[cfg(not(miri))]
const LENGTHS: std::ops::RangeInclusive<usize> = 0..=300;
#[cfg(miri)]
const LENGTHS: std::ops::RangeInclusive<usize> = 0..=33;

#[test]
fn copies_of_every_length_and_alignment_move_exactly_their_bytes() {
    let pattern: Vec<u8> = (0..SPACE).map(|at| (at % 251) as u8 + 1).collect();
    for copies in implementations() {
        for program_skew in 0..16 {
            for own_skew in [0, 1, 4, 12] {
                for length in LENGTHS {
                    let context = format!("{} copy, {program_skew}, {own_skew}, {length}", copies.name);
                    let program = Buffer::from_bytes(&pattern);
                    let mut own = vec![0u8; SPACE];
                    // SAFETY: both ranges lie within their memory: 16 + 300 < 400.
                    let outcome = unsafe {
                        let from = program.as_ptr().add(program_skew);
                        (copies.from_program)(own.as_mut_ptr().add(own_skew), from, length)
                    };
                    assert_eq!(outcome, Outcome::Done);
                    let mut expected = vec![0u8; SPACE];
                    expected[own_skew..own_skew + length]
                        .copy_from_slice(&pattern[program_skew..program_skew + length]);
                    assert_eq!(own, expected, "from the program, {context}");

                    let program = Buffer::new(SPACE);
                    // SAFETY: as above.
                    let outcome = unsafe {
                        let to = program.as_ptr().add(program_skew);
                        (copies.to_program)(to, pattern.as_ptr().add(own_skew), length)
                    };
                    assert_eq!(outcome, Outcome::Done);
                    let mut expected = vec![0u8; SPACE];
                    expected[program_skew..program_skew + length]
                        .copy_from_slice(&pattern[own_skew..own_skew + length]);
                    assert_eq!(program.to_vec(0..SPACE), expected, "to the program, {context}");
                }
            }
        }
    }
}

#[test]
fn atomics_give_the_old_value_and_change_only_their_word() {
    for copies in implementations() {
        let program = Buffer::new(24);
        program.store_u64(8, 5);
        let word = program.as_ptr().wrapping_add(8).cast();
        let mut old = 0;
        let mut seen = Vec::new();
        // SAFETY: the word is aligned and within the buffer.
        unsafe {
            assert_eq!((copies.compare_swap)(word, 4, 9, &mut old), Outcome::Done);
            seen.push((old, program.load_u64(8)));
            assert_eq!(
                (copies.compare_swap)(word, 5, u64::MAX - 1, &mut old),
                Outcome::Done
            );
            seen.push((old, program.load_u64(8)));
            assert_eq!((copies.fetch_add)(word, 3, &mut old), Outcome::Done);
            seen.push((old, program.load_u64(8)));
        }
        assert_eq!(
            seen,
            [(5, 5), (5, u64::MAX - 1), (u64::MAX - 1, 1)],
            "{}",
            copies.name
        );
        assert_eq!((program.load_u64(0), program.load_u64(16)), (0, 0));
    }
}

/// Rounds of the tests with two threads.
const ROUNDS: u64 = if cfg!(miri) { 100 } else { 1_000_000 };

/// Ends the other thread's loop, also when this one fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A word that shows whether it is whole: all its bytes agree.
fn whole(round: u64) -> u64 {
    (round & 0xff) * 0x0101_0101_0101_0101
}

fn is_whole(word: u64) -> bool {
    word == whole(word & 0xff)
}

#[test]
fn an_aligned_word_written_to_the_program_is_never_seen_torn() {
    // 3 ragged bytes, a word, 5 ragged bytes: the word is in the middle of an odd copy.
    for copies in implementations() {
        let program = Buffer::new(64);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for offset in [8, 16, 24, 32] {
                        let word = program.load_u64(offset);
                        assert!(
                            is_whole(word),
                            "{} copy tore {word:#018x} at {offset}",
                            copies.name
                        );
                    }
                }
            });
            let _end = EndOnDrop(&is_over);
            for round in 0..ROUNDS {
                let data = whole(round).to_ne_bytes().repeat(5);
                // Word boundaries of the data and of the program agree: both begin 3 bytes before one.
                // SAFETY: 38 bytes from offset 5 lie within 64; the data have 40.
                let outcome =
                    unsafe { (copies.to_program)(program.as_ptr().add(5), data[..38].as_ptr(), 38) };
                assert_eq!(outcome, Outcome::Done);
            }
        });
    }
}

#[test]
fn an_aligned_word_that_the_program_stores_is_never_read_torn() {
    for copies in implementations() {
        let program = Buffer::new(64);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    for offset in [8, 16, 24, 32] {
                        program.store_u64(offset, whole(round));
                    }
                    round += 1;
                }
            });
            let _end = EndOnDrop(&is_over);
            for _ in 0..ROUNDS {
                let mut own = [0u8; 38];
                // SAFETY: 38 bytes from offset 5 lie within 64.
                let outcome = unsafe { (copies.from_program)(own.as_mut_ptr(), program.as_ptr().add(5), 38) };
                assert_eq!(outcome, Outcome::Done);
                for offset in [3, 11, 19, 27] {
                    let word = u64::from_ne_bytes(own[offset..offset + 8].try_into().unwrap());
                    assert!(is_whole(word), "{} copy tore {word:#018x}", copies.name);
                }
            }
        });
    }
}

#[test]
fn who_sees_the_last_byte_of_a_write_sees_all_of_it() {
    // 8 whole words, then a ragged byte that counts rounds, as a program that spins on the last byte has it.
    const LENGTH: usize = 65;
    for copies in implementations() {
        let program = Buffer::new(128);
        let seen = std::sync::atomic::AtomicU64::new(0);
        // Each hands the processor over twice: dear where others work too.
        let is_quick = std::env::var_os("SOFTROCE_QUICK").is_some();
        let rounds = if is_quick { ROUNDS / 200 } else { ROUNDS / 20 };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for round in 1..=rounds {
                    while program.load_u8(64) != round as u8 {
                        std::thread::yield_now();
                    }
                    for word in 0..8 {
                        assert_eq!(
                            program.load_u64(word * 8),
                            round,
                            "{} copy, word {word}",
                            copies.name
                        );
                    }
                    seen.store(round, Ordering::Release);
                }
            });
            for round in 1..=rounds {
                let mut data = round.to_ne_bytes().repeat(8);
                data.push(round as u8);
                // SAFETY: 65 bytes lie within 128.
                let outcome = unsafe { (copies.to_program)(program.as_ptr(), data.as_ptr(), LENGTH) };
                assert_eq!(outcome, Outcome::Done);
                while seen.load(Ordering::Acquire) != round && !reader.is_finished() {
                    std::thread::yield_now();
                }
            }
        });
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod faults;
