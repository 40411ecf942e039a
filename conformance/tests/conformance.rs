//! Every case on every bed as a test of its own. What a bed lacks is shown as ignored, with the reason.
//!
//! The simulator's seed is that of `SOFTROCE_SEED`, or 1.

use std::path::PathBuf;

use conformance::Verdict;
use conformance::beds::{BedKind, BedOptions, Entry, entries, run_entry};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let seed = std::env::var("SOFTROCE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut trials = Vec::new();
    for bed in BedKind::OWN {
        match entries(bed, &BedOptions::default()) {
            Ok(all) => trials.extend(all.into_iter().map(|entry| trial(entry, seed))),
            Err(failure) => trials.push(Trial::test(format!("{bed}::opens"), move || Err(failure.into()))),
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(entry: Entry, seed: u64) -> Trial {
    let name = format!("{}::{} {}", entry.bed, entry.id, entry.title);
    match entry.missing {
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
