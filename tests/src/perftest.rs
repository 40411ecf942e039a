//! perftest over every combination of what it offers: which are run, how one is run, and what came of each.
//!
//! The same code runs them on softroce and, in the VM, on the kernel's rxe. What came of a run there is kept in
//! `data/perftest/rxe.tsv`, what must come of it here in `data/perftest/softroce.tsv`; `docs/perftest.md` shows both.

mod matrix;
mod pair;
mod record;
mod report;

pub use matrix::{Combination, Interface, matrix};
pub use pair::{Bench, Verdict};
pub use record::{Record, disagreement};
pub use report::report;
