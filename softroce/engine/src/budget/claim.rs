//! Turns: who waits for room, and who was woken to use it.

use std::collections::VecDeque;

/// Where a queue pair stands before a budget. Who was woken goes first, so that one that never waits cannot starve
/// those that do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Claim {
    #[default]
    None,
    Waiting,
    /// Woken: it may use what is free although others still wait.
    Granted,
    /// Woken, and has used some of it.
    Spent,
}

impl Claim {
    pub(super) fn is_woken(self) -> bool {
        match self {
            Claim::Granted | Claim::Spent => true,
            Claim::None | Claim::Waiting => false,
        }
    }

    /// Stand in `line`: at its head after a turn in which nothing could be had, else at its end.
    pub(super) fn enter(&mut self, line: &mut VecDeque<u32>, slot: u32) {
        match std::mem::replace(self, Claim::Waiting) {
            Claim::Waiting => {}
            Claim::Granted => line.push_front(slot),
            Claim::None | Claim::Spent => line.push_back(slot),
        }
    }

    pub(super) fn spend(&mut self) {
        if *self == Claim::Granted {
            *self = Claim::Spent;
        }
    }

    pub(super) fn end_turn(&mut self) {
        if self.is_woken() {
            *self = Claim::None;
        }
    }

    /// The turn ended for want of something else: what was granted and not used yet stays granted.
    pub(super) fn suspend_turn(&mut self) {
        if *self == Claim::Spent {
            *self = Claim::None;
        }
    }
}
