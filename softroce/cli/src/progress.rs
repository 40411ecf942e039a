//! Progress on long work, for people: a line that vanishes, and nothing at all when not on a terminal.

use std::cell::Cell;
use std::io::{IsTerminal, Write};

/// A line of progress on standard error.
pub struct Progress {
    title: &'static str,
    total: usize,
    done: Cell<usize>,
    visible: bool,
}

impl Progress {
    /// `total` steps are to come.
    pub fn new(title: &'static str, total: usize) -> Self {
        Progress {
            title,
            total,
            done: Cell::new(0),
            visible: std::io::stderr().is_terminal(),
        }
    }

    /// The next step begins.
    pub fn step(&self, what: &str) {
        let done = self.done.get();
        self.done.set(done + 1);
        if !self.visible {
            return;
        }
        let filled = 24 * done / self.total.max(1);
        let bar: String = (0..24).map(|at| if at < filled { '#' } else { '.' }).collect();
        eprint!("\r\x1b[K{} [{bar}] {done}/{} {what}", self.title, self.total);
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.visible {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }
}
