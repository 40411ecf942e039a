//! Every case on every bed as a test of its own. What a bed lacks is shown as ignored, with the reason.
//!
//! The simulator's seed is that of `SOFTROCE_SEED`, or 1. Where there is little time (`SOFTROCE_QUICK=1`), cases with faults
//! and played peers run in virtual time alone: on sockets they wait for real time-outs.

use std::path::PathBuf;

use conformance::beds::{BedKind, BedOptions, Entry, entries, run_entry};
use conformance::{Mode, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let seed = std::env::var("SOFTROCE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let is_quick = std::env::var_os("SOFTROCE_QUICK").is_some();
    let mut trials = Vec::new();
    for bed in BedKind::OWN {
        if !may_run(&arguments, bed.name()) {
            continue;
        }
        match entries(bed, &BedOptions::default()) {
            Ok(all) => trials.extend(all.into_iter().map(|entry| trial(entry, seed, is_quick))),
            Err(failure) => trials.push(Trial::test(format!("{bed}::opens"), move || Err(failure.into()))),
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whether tests whose names begin so may be asked for. Where each test has a process of its own (nextest), those of one
/// bed need not open the others.
fn may_run(arguments: &Arguments, beginning: &str) -> bool {
    match &arguments.filter {
        Some(name) if arguments.exact => name.starts_with(beginning),
        _ => true,
    }
}

/// Why a case is left out now, if so.
fn left_out(entry: &Entry, is_quick: bool) -> Option<&'static str> {
    let waits = entry.bed == BedKind::Udp && entry.mode != Mode::Verbs;
    entry
        .missing
        .or((is_quick && waits).then_some("it waits for real time-outs, and the checks are the quick ones"))
}

fn trial(entry: Entry, seed: u64, is_quick: bool) -> Trial {
    let name = format!("{}::{} {}", entry.bed, entry.id, entry.title);
    match left_out(&entry, is_quick) {
        Some(missing) => Trial::test(name, || Ok(()))
            .with_kind(missing)
            .with_ignored_flag(true),
        None => Trial::test(name, move || run(&entry, seed)),
    }
}

fn run(entry: &Entry, seed: u64) -> Result<(), Failed> {
    let capture =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}.pcapng", entry.bed, entry.id));
    let outcome = run_entry(
        entry,
        &BedOptions {
            seed,
            ..BedOptions::default()
        },
        Some(&capture),
    );
    match outcome.verdict {
        Verdict::Pass | Verdict::Deviation(_) => Ok(()),
        Verdict::Skipped(why) => Err(format!("skipped though the list said it would run: {why}").into()),
        Verdict::Fail(why) => Err(match outcome.capture {
            Some(capture) => format!("{why}\npackets: {}", capture.display()).into(),
            None => why.into(),
        }),
    }
}
