//! Beds by their names, and cases on them without their types.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::{BedOptions, Control, NativeBed, SimBed, UdpBed, seed_of};
use crate::case::{Case, Mode};
use crate::cases;
use crate::outcome::Failure;
use crate::runner::{LIMIT, Outcome, run_case};
use crate::testbed::{Need, Testbed};

/// Which bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BedKind {
    /// Two devices in virtual time, with faults.
    Sim,
    /// Two devices over UDP on two loopback addresses.
    Udp,
    /// One device of libibverbs in loopback, or two.
    Native,
    /// Two devices of softroce's drop-in, through its C interface.
    DropIn,
}

impl BedKind {
    /// All of them.
    pub const ALL: [BedKind; 4] = [BedKind::Sim, BedKind::Udp, BedKind::Native, BedKind::DropIn];

    /// Those that need nothing but this program.
    pub const OWN: [BedKind; 2] = [BedKind::Sim, BedKind::Udp];

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            BedKind::Sim => "sim",
            BedKind::Udp => "udp",
            BedKind::Native => "native",
            BedKind::DropIn => "dropin",
        }
    }
}

impl fmt::Display for BedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BedKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        BedKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("there is no bed {name:?}; the beds are sim, udp, native and dropin"))
    }
}

/// A case on a bed, without its types.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which bed.
    pub bed: BedKind,
    /// The case's id.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The requirements that it shows.
    pub requirements: &'static [&'static str],
    /// What it is made with.
    pub mode: Mode,
    /// Its priority.
    pub priority: u8,
    /// Why it cannot run on this bed, if so.
    pub missing: Option<&'static str>,
    control: Control,
    index: usize,
}

impl Entry {
    /// The entry of a case that is in no list, for reports on cases of one's own. [`run_entry`] is not for it.
    pub fn of<B: Testbed>(bed: BedKind, case: &Case<B>) -> Self {
        Entry {
            bed,
            id: case.id,
            title: case.title,
            requirements: case.requirements,
            mode: case.mode,
            priority: case.priority,
            missing: None,
            control: match case.needs.contains(&Need::Network) {
                true => Control::Packets,
                false => Control::None,
            },
            index: usize::MAX,
        }
    }
}

/// All cases on one bed. Opens the bed once, to ask what it has.
///
/// # Errors
/// The bed cannot be opened; the failure says why and what to do.
pub fn entries(bed: BedKind, options: &BedOptions) -> Result<Vec<Entry>, Failure> {
    match bed {
        BedKind::Sim => Ok(entries_on(bed, &SimBed::open(options)?)),
        BedKind::Udp => Ok(entries_on(bed, &UdpBed::open(options)?)),
        BedKind::Native => Ok(entries_on(bed, &NativeBed::open(&options.native)?)),
        BedKind::DropIn => Ok(entries_on(bed, &NativeBed::open_drop_in(&options.native)?)),
    }
}

fn entries_on<B: Testbed>(kind: BedKind, bed: &B) -> Vec<Entry> {
    let cases = cases::all::<B>().into_iter().enumerate();
    cases
        .map(|(index, case)| Entry {
            missing: case.missing(bed),
            index,
            ..Entry::of(kind, &case)
        })
        .collect()
}

/// Run one case on a new bed. With `on_failure`, the packets of a failed case are written there, if the bed has them.
pub fn run_entry(entry: &Entry, options: &BedOptions, on_failure: Option<&Path>) -> Outcome {
    let options = BedOptions {
        seed: seed_of(options.seed, entry.id),
        control: entry.control,
        ..options.clone()
    };
    let native_limit = options.native.limit();
    match entry.bed {
        BedKind::Sim => run_case(
            move || SimBed::open(&options),
            cases::all().swap_remove(entry.index),
            on_failure,
            LIMIT,
        ),
        BedKind::Udp => run_case(
            move || UdpBed::open(&options),
            cases::all().swap_remove(entry.index),
            on_failure,
            LIMIT,
        ),
        BedKind::Native => run_case(
            move || Ok(NativeBed::open(&options.native)?.with_capture(options.capture)),
            cases::all().swap_remove(entry.index),
            on_failure,
            native_limit,
        ),
        BedKind::DropIn => run_case(
            move || NativeBed::open_drop_in(&options.native),
            cases::all().swap_remove(entry.index),
            on_failure,
            native_limit,
        ),
    }
}
