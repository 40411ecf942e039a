//! What the analysis finds in captures. One program, so that what it stands on is linked once.

mod checks;
mod hostile;
mod kernel_rxe;
mod support;
