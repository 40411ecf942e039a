//! What the analysis finds in captures. One program, so that what it stands on is linked once.

mod checks;
#[path = "../fuzz/harness.rs"]
mod harness;
mod hostile;
mod kernel_rxe;
mod support;
