//! The beds: softroce in the simulator, softroce over UDP on this machine, and any device of an installed libibverbs, or
//! of softroce's drop-in in its place.

mod native;
mod sim;
mod tolerances;
mod udp;
mod wire;

pub use native::{DROP_IN_ADDRESSES, NativeBed, NativeOptions, drop_in_addresses};
pub use sim::SimBed;
pub use tolerances::{Tolerance, Tolerances, all as all_tolerances};
pub use udp::UdpBed;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use softroce::Softroce;
pub use verbs_native::Interface;

use verbs_api::{AtomicCap, CompletionQueue, Context, CqInit, Provider};

use crate::case::{Case, Mode};
use crate::cases;
use crate::outcome::Failure;
use crate::runner::{LIMIT, Outcome, run_case};
use crate::testbed::{Need, Testbed};

/// `IBV_DEVICE_AUTO_PATH_MIG`.
const AUTO_PATH_MIGRATION: u64 = 1 << 4;

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

/// Whether a case needs control over packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// It does not: packets travel as they do in any program.
    #[default]
    None,
    /// It sees, loses and forges packets.
    Packets,
}

/// What a bed is opened with.
#[derive(Clone, Debug, Default)]
pub struct BedOptions {
    /// Everything random on the simulator follows from it.
    pub seed: u64,
    /// Write every packet here. The simulator keeps packets in any case.
    pub capture: Option<PathBuf>,
    /// Whether the case controls the packets; the simulator lets it in any case.
    pub control: Control,
    /// An error that the simulated devices are to have.
    #[cfg(feature = "mutations")]
    pub mutant: Option<softroce_sim::Mutant>,
    /// Which library and device, for the beds on libibverbs.
    pub native: NativeOptions,
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
        seed: options.seed ^ hash(entry.id),
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

/// What follows from the device.
fn offers<C: Context>(context: &C, need: Need) -> bool {
    let can = context.capabilities();
    let attr = || context.query_device().unwrap_or_default();
    match need {
        Need::Network
        | Need::BothFamilies
        | Need::MulticastInBothFamilies
        | Need::PortControl
        | Need::VirtualTime
        | Need::ConnectionManager => false,
        Need::Uc => can.qp_uc,
        Need::Ud => can.qp_ud,
        Need::Multicast => can.multicast,
        Need::Xrc => can.qp_xrc,
        Need::Srq => can.srq,
        Need::Atomics => attr().atomic_cap != AtomicCap::None,
        Need::AtomicWrite => can.atomic_write,
        Need::Flush => can.flush,
        Need::Rereg => can.rereg_mr,
        Need::NullMr => can.null_mr,
        Need::ZeroBased => can.zero_based,
        Need::DeviceMemory => can.device_memory,
        Need::MwType1 => can.mw_type1,
        Need::MwType2 => can.mw_type2,
        Need::PathMigration => attr().device_cap_flags & AUTO_PATH_MIGRATION != 0,
        Need::ResizeCq => can.resize_cq,
        Need::ModerateCq => context
            .create_cq(&CqInit::new(1))
            .is_ok_and(|cq| cq.moderate(1, 1).is_ok()),
        Need::Timestamps => can.cq_timestamps,
    }
}

/// The objects on these devices, if there are any.
fn leftovers<'a>(contexts: impl IntoIterator<Item = &'a <Softroce as Provider>::Context>) -> Option<String> {
    let objects = contexts
        .into_iter()
        .map(|context| (context.name(), context.device().objects()));
    let left: Vec<String> = objects
        .filter(|(_, objects)| !objects.is_zero())
        .map(|(name, objects)| format!("{name}: {objects:?}"))
        .collect();
    (!left.is_empty()).then(|| left.join(", "))
}

/// FNV-1a, so that each case has its own seed, and the same one in every build.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
