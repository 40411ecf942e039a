//! Copies between the engine's own buffers and the program's memory.
//!
//! # Contract
//! - The program's side may be read and written by others meanwhile. Every aligned 8-byte word of the program's
//!   memory that lies wholly within the copy moves as one access, never torn; so do the aligned 4-, 2- and 1-byte
//!   pieces of the ragged edges. Programs rely on it: they spin on words and flags that a peer writes.
//! - Writes go up: whoever sees the last word, or the last ragged byte, also sees all before it (release order).
//!   Reads go up, and later reads of the engine come after them (acquire order).
//! - The engine's own side is plain memory of any alignment.
//! - Nothing happens for 0 bytes.
//!
//! To Rust such accesses would be data races, and atomics of mixed sizes over the same bytes are not defined either.
//! So the code is assembly: an access from outside of the language, as a card's would be.
//!
//! # Why 16 bytes at a time
//! x86 processors with AVX document that an aligned 16-byte access is one access; older ones split it in two halves
//! of 8 bytes. Either way an aligned 8-byte word stays whole. `rep movs`, the obvious choice, documents no width at
//! all, and stores out of order, though it may be faster.
//!
//! # Memory that is gone
//! Programs unmap memory that is still registered, and a card does not care, since it pinned the pages. Here the
//! copy faults. All code that touches the program's memory lies in the section `softroce_copy`, and nothing else
//! does: leaf functions that leave the stack alone and return 0. A signal handler can so turn a fault inside of
//! [`copy_code_range`] into a return of 1, which ends here as [`Outcome::Faulted`]. The portable twin, for other
//! processors, has no such way out.

use std::ops::Range;

/// Whether a fault of the copy can be caught.
pub(super) const CATCHES_FAULTS: bool = cfg!(all(target_arch = "x86_64", target_os = "linux", not(miri)));

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Outcome {
    /// All bytes moved.
    Done,
    /// The program's memory is not there; some bytes may have moved.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", not(miri))),
        expect(dead_code, reason = "the portable copy catches no faults")
    )]
    Faulted,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[path = "copy/x86_64.rs"]
mod machine;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
#[path = "copy/portable.rs"]
mod machine;

pub(super) use machine::{compare_swap, fetch_add, from_program, to_program};

/// The addresses of the code that touches registered memory, and so faults when a program has unmapped it.
///
/// A SIGSEGV or SIGBUS handler that finds the instruction pointer in this range may end the access as a protection
/// error instead of the program: on x86-64 it sets rax to 1, rip to the word at rsp, and adds 8 to rsp. Faults
/// elsewhere are not the engine's and belong to the handler that was there before. Empty where a fault cannot be
/// caught (other processors than x86-64).
pub fn copy_code_range() -> Range<usize> {
    machine::code_range()
}

// The twin is compiled and tested everywhere.
#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri)))]
#[path = "copy/portable.rs"]
mod portable;

#[cfg(test)]
mod tests;
