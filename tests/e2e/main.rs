//! The end-to-end cases: the built `softroce` command, foreign programs, namespaces and captures.
//!
//! One case runs at a time, since most start several processes and some measure pauses. A case that cannot
//! run here (no root, a program missing) is shown as ignored with its reason.
#![forbid(unsafe_code)]

mod analysis;
mod bad_arguments;
mod bandwidth;
mod captures;
mod conformance;
mod crowds;
mod drill;
mod failures;
mod faults;
mod forks;
mod groups;
mod install;
mod lid_addressing;
mod many_processes;
mod matrix;
mod paths;
mod pauses;
mod peers;
mod perftest;
mod pingpong;
mod port_events;
mod pyverbs;
mod rdma_cm;
mod rights;
mod rsockets;
mod rxe;
mod scarcity;
mod targets;
mod ucx;
mod verbs_tools;
mod walk;

use std::process::ExitCode;

use e2e::Case;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let cases = [
        conformance::cases(),
        drill::cases(),
        pingpong::cases(),
        many_processes::cases(),
        pauses::cases(),
        targets::cases(),
        groups::cases(),
        matrix::cases(),
        crowds::cases(),
        bandwidth::cases(),
        captures::cases(),
        analysis::cases(),
        verbs_tools::cases(),
        walk::cases(),
        perftest::cases(),
        forks::cases(),
        lid_addressing::cases(),
        paths::cases(),
        ucx::cases(),
        rdma_cm::cases(),
        rights::cases(),
        port_events::cases(),
        failures::cases(),
        faults::cases(),
        install::cases(),
        pyverbs::cases(),
        bad_arguments::cases(),
        scarcity::cases(),
        rsockets::cases(),
        rxe::cases(),
    ];
    let trials = cases.into_iter().flatten().map(Case::into_trial).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    e2e::program::remove_copies();
    conclusion.exit_code()
}
