//! The beds: softroce in the simulator, softroce over UDP on this machine, and any device of an installed libibverbs, or
//! of softroce's drop-in in its place. The feature `sim` brings the first alone.

#[cfg(feature = "beds")]
mod entry;
#[cfg(feature = "beds")]
mod native;
mod sim;
#[cfg(feature = "beds")]
mod tolerances;
#[cfg(feature = "beds")]
mod udp;
#[cfg(feature = "beds")]
mod wire;

#[cfg(feature = "beds")]
pub use entry::{BedKind, Entry, entries, run_entry};
#[cfg(feature = "beds")]
pub use native::{DROP_IN_ADDRESSES, NativeBed, NativeOptions, drop_in_addresses};
pub use sim::SimBed;
#[cfg(feature = "beds")]
pub use tolerances::{Tolerance, Tolerances, all as all_tolerances};
#[cfg(feature = "beds")]
pub use udp::UdpBed;

use std::path::PathBuf;

use softroce::Softroce;
#[cfg(feature = "beds")]
pub use verbs_native::Interface;

use verbs_api::{AtomicCap, CompletionQueue, Context, CqInit, Provider};

use crate::testbed::Need;

/// `IBV_DEVICE_AUTO_PATH_MIG`.
const AUTO_PATH_MIGRATION: u64 = 1 << 4;

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
    #[cfg(feature = "beds")]
    pub native: NativeOptions,
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
        | Need::Counters
        | Need::SecretKeys
        | Need::UnseenIdentification
        | Need::ReceiveRoom
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
        Need::OnDemand => can.on_demand_paging,
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

/// The seed of the case `id` in a run with this one: each case has its own, and the same one in every build.
pub fn seed_of(seed: u64, id: &str) -> u64 {
    // FNV-1a
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3_u64)
    });
    seed ^ hash
}
