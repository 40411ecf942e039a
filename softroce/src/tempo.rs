//! How much slower this machine is than those that the times of [`pace`](crate::pace) and [`worker`](crate::worker) were
//! measured on.
//!
//! An emulated processor takes several times as long for everything. Times that mean "a few system calls", "about a
//! context switch", "so long that the program cannot be polling" then mean something else: a background thread that
//! takes 50 µs of silence for the end of polling interrupts a program in the middle of a round.

use std::os::fd::AsFd;

use crate::clock::monotonic_ns;
use crate::os::{EventFd, is_readable};

/// What a system call that finds nothing takes at most on a real processor, ns. Up to here nothing is changed.
const REAL_NS: u64 = 800;
/// What it takes on the machines that the times are right for, ns.
const USUAL_NS: u64 = 350;
const FACTOR_MAX: u64 = 16;
/// The shortest of so many counts: another may have been interrupted.
const TRIALS: u32 = 16;

/// By how much to multiply such times; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tempo(u64);

impl Tempo {
    /// That of a real processor.
    pub(crate) const USUAL: Tempo = Tempo(1);

    /// Measured now, in a few microseconds, on a descriptor with nothing to read.
    pub(crate) fn measured_on(silent: &EventFd) -> Tempo {
        let trial = |_| {
            let start_ns = monotonic_ns();
            is_readable(silent.as_fd());
            monotonic_ns() - start_ns
        };
        Tempo::of_system_call((0..TRIALS).map(trial).min().unwrap_or(0))
    }

    pub(crate) fn of_system_call(ns: u64) -> Tempo {
        match ns < REAL_NS {
            true => Tempo::USUAL,
            false => Tempo(ns.div_ceil(USUAL_NS).min(FACTOR_MAX)),
        }
    }

    /// A time that is right for a real processor, as one for this machine.
    pub(crate) fn scale(self, ns: u64) -> u64 {
        ns * self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_is_clearly_slow_has_longer_times() {
        assert_eq!(Tempo::of_system_call(0), Tempo::USUAL);
        assert_eq!(Tempo::of_system_call(799), Tempo::USUAL);
        assert_eq!(Tempo::of_system_call(1160).scale(50_000), 200_000, "emulated");
        assert_eq!(Tempo::of_system_call(u64::MAX).scale(50_000), 800_000);
    }
}
