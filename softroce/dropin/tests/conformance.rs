//! The conformance suite over the shared object: every case through the real C interface, as a test of its own.
//!
//! The shared object takes the addresses of its devices from the environment, so that this program starts itself anew
//! with addresses of its own.

#[path = "support/common.rs"]
mod common;

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use conformance::Verdict;
use conformance::beds::{
    BedKind, BedOptions, DROP_IN_ADDRESSES, Entry, Interface, NativeOptions, drop_in_addresses, entries,
    run_entry,
};
use libtest_mimic::{Arguments, Failed, Trial};

/// Tells this program, started by itself, that its variables are right.
const STARTED: &str = "SOFTROCE_TEST_STARTED";

fn main() {
    let arguments = Arguments::from_args();
    if std::env::var_os(STARTED).is_none() {
        let own = std::env::current_exe().expect("a test has a path");
        let error = Command::new(own)
            .args(std::env::args_os().skip(1))
            .env(DROP_IN_ADDRESSES, drop_in_addresses())
            .env_remove("SOFTROCE_DEVICES")
            .env(STARTED, "1")
            .exec();
        panic!("this program cannot start itself anew: {error}");
    }
    // Before any id of RDMA CM: from then on those keep a domain of each device, as with the system's librdmacm.
    let mut first = Vec::new();
    let mut trials = Vec::new();
    for (name, interface) in [("lists", Interface::Lists), ("extended", Interface::Extended)] {
        if !may_run(&arguments, &format!("dropin::{name}::")) {
            continue;
        }
        let options = BedOptions {
            native: NativeOptions {
                library: Some(common::drop_in()),
                interface,
                ..NativeOptions::default()
            },
            ..BedOptions::default()
        };
        match entries(BedKind::DropIn, &options) {
            Ok(all) => {
                let (greedy, others): (Vec<_>, Vec<_>) = all.into_iter().partition(uses_up_limits);
                first.extend(greedy.into_iter().map(|entry| trial(name, entry, &options)));
                trials.extend(others.into_iter().map(|entry| trial(name, entry, &options)));
            }
            Err(failure) => trials.push(Trial::test(format!("{name}::opens"), move || Err(failure.into()))),
        }
    }
    first.append(&mut trials);
    libtest_mimic::run(&arguments, first).exit();
}

/// Whether tests whose names begin so may be asked for. Where each test has a process of its own (nextest), those of one
/// interface need not open the devices for the other.
fn may_run(arguments: &Arguments, beginning: &str) -> bool {
    match &arguments.filter {
        Some(name) if arguments.exact => name.starts_with(beginning),
        _ => true,
    }
}

fn trial(interface: &str, entry: Entry, options: &BedOptions) -> Trial {
    let name = format!("dropin::{interface}::{} {}", entry.id, entry.title);
    match entry.missing {
        Some(missing) => Trial::test(name, || Ok(()))
            .with_kind(missing)
            .with_ignored_flag(true),
        None => {
            let options = options.clone();
            Trial::test(name, move || run(&entry, &options))
        }
    }
}

/// Entry B10 of the catalogue.
fn uses_up_limits(entry: &Entry) -> bool {
    entry.id.starts_with("B10")
}

/// Cases run side by side on the same two devices. Those that use up a device's limits run alone.
static DEVICES: RwLock<()> = RwLock::new(());

/// Nothing is tolerated: it is softroce.
fn run(entry: &Entry, options: &BedOptions) -> Result<(), Failed> {
    let uses_up = uses_up_limits(entry);
    let _alone = uses_up.then(|| DEVICES.write().unwrap_or_else(PoisonError::into_inner));
    let _beside = (!uses_up).then(|| DEVICES.read().unwrap_or_else(PoisonError::into_inner));
    match run_entry(entry, options, None).verdict {
        Verdict::Pass => Ok(()),
        Verdict::Deviation(why) => Err(format!("a deviation: {why}").into()),
        Verdict::Skipped(why) => Err(format!("skipped though the list said it would run: {why}").into()),
        Verdict::Fail(why) => Err(why.into()),
    }
}
