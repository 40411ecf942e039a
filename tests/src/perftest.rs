//! perftest over every combination of what it offers: which are run, how one is run, and what came of each.
//!
//! The same code runs them on softroce and, in the VM, on the kernel's rxe. What came of a run there is kept in
//! `data/perftest/rxe.tsv`, for comparison.

mod matrix;
mod pair;
mod record;

pub use matrix::{Combination, Interface, matrix};
pub use pair::{Bench, Verdict};
pub use record::Record;
