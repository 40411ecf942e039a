//! The copies in plain Rust: relaxed atomics of the widest size that the alignment allows.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::Outcome;

/// The next piece to move: the largest of 8, 4, 2, 1 bytes that is aligned at `address` and fits in `left`.
fn piece(address: usize, left: usize) -> usize {
    let aligned = 1 << address.trailing_zeros().min(3);
    let fitting = 1 << left.ilog2().min(3);
    usize::min(aligned, fitting)
}

/// Copy `length` bytes of the program's memory to ours.
///
/// # Safety
/// Both ranges are valid, and `to` is exclusively ours.
pub(in super::super) unsafe fn from_program(to: *mut u8, from: *const u8, length: usize) -> Outcome {
    let mut done = 0;
    while done < length {
        // SAFETY: `done` is within both ranges.
        let (to, from) = unsafe { (to.add(done), from.add(done).cast_mut()) };
        let size = piece(from.addr(), length - done);
        // SAFETY: `size` bytes are valid at both, and `from` is aligned to it.
        unsafe {
            match size {
                8 => to
                    .cast::<u64>()
                    .write_unaligned(AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed)),
                4 => to
                    .cast::<u32>()
                    .write_unaligned(AtomicU32::from_ptr(from.cast()).load(Ordering::Relaxed)),
                2 => to
                    .cast::<u16>()
                    .write_unaligned(AtomicU16::from_ptr(from.cast()).load(Ordering::Relaxed)),
                _ => to.write(AtomicU8::from_ptr(from).load(Ordering::Relaxed)),
            }
        }
        done += size;
    }
    fence(Ordering::Acquire);
    Outcome::Done
}

/// Copy `length` bytes of ours to the program's memory.
///
/// # Safety
/// Both ranges are valid, and nobody writes to `from`.
pub(in super::super) unsafe fn to_program(to: *mut u8, from: *const u8, length: usize) -> Outcome {
    let mut done = 0;
    while done < length {
        // SAFETY: `done` is within both ranges.
        let (to, from) = unsafe { (to.add(done), from.add(done)) };
        let size = piece(to.addr(), length - done);
        if done + size == length {
            // Before the last piece: whoever sees it, sees all.
            fence(Ordering::Release);
        }
        // SAFETY: `size` bytes are valid at both, and `to` is aligned to it.
        unsafe {
            match size {
                8 => AtomicU64::from_ptr(to.cast())
                    .store(from.cast::<u64>().read_unaligned(), Ordering::Relaxed),
                4 => AtomicU32::from_ptr(to.cast())
                    .store(from.cast::<u32>().read_unaligned(), Ordering::Relaxed),
                2 => AtomicU16::from_ptr(to.cast())
                    .store(from.cast::<u16>().read_unaligned(), Ordering::Relaxed),
                _ => AtomicU8::from_ptr(to).store(from.read(), Ordering::Relaxed),
            }
        }
        done += size;
    }
    Outcome::Done
}

/// Atomically replace `*word` by `swap` if it equals `compare`; its old value goes to `old`.
///
/// # Safety
/// `word` is valid and aligned, `old` is ours.
pub(in super::super) unsafe fn compare_swap(
    word: *mut u64,
    compare: u64,
    swap: u64,
    old: &mut u64,
) -> Outcome {
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(word) };
    *old = match word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) {
        Ok(value) | Err(value) => value,
    };
    Outcome::Done
}

/// Atomically add to `*word`; its old value goes to `old`.
///
/// # Safety
/// `word` is valid and aligned, `old` is ours.
pub(in super::super) unsafe fn fetch_add(word: *mut u64, add: u64, old: &mut u64) -> Outcome {
    // SAFETY: the caller's promise.
    *old = unsafe { AtomicU64::from_ptr(word) }.fetch_add(add, Ordering::AcqRel);
    Outcome::Done
}

/// A fault cannot be caught here.
#[allow(dead_code)] // The test build of other machines has it beside their own.
pub(super) fn code_range() -> Range<usize> {
    0..0
}
