//! Devices of libibverbs as a bed: one in loopback, or two. Also softroce's drop-in, which is the same provider over
//! another library.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use verbs_api::{Context as _, Gid, GidEntry, GidType, Provider};
use verbs_native::{Cm, DropIn, Interface, Native};

use super::offers;
use super::tolerances::Tolerances;
use super::wire::bridge::{Bridge, Frames, mac_of};
use super::wire::{Traffic, Wire};
use crate::outcome::{Failure, Verdict};
use crate::requirements::{self, Certainty};
use crate::testbed::{Activity, Family, Need, Network, Side, Testbed};

/// The library of the system, as the system finds it.
const SYSTEM_LIBRARY: &str = "libibverbs.so.1";
/// The variable that tells the drop-in on which addresses to make devices. The process must have been started with it:
/// two addresses for the two ends, and perhaps one of the other IP family.
pub const DROP_IN_ADDRESSES: &str = "SOFTROCE_ADDRESS";
/// The drop-in's devices: left, right, other family.
const DROP_IN_DEVICES: [&str; 3] = ["softroce0", "softroce1", "softroce2"];
/// Waiting for what must come, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(15);
/// Polls without a pause before the bed starts to sleep between them.
const EAGER_POLLS: u32 = 200;
/// How long it then sleeps.
const PAUSE: Duration = Duration::from_micros(100);

/// Which library and which device.
#[derive(Clone, Debug, Default)]
pub struct NativeOptions {
    /// The library: a path, or a name for the system's own search. `None` for the system's; the drop-in must be named.
    pub library: Option<PathBuf>,
    /// No device: the first that there is. One: it talks to itself. Two: left and right.
    pub devices: Vec<String>,
    /// Which entry of the GID tables; `None` for the first of RoCEv2 with an IPv4 address, or else the first of RoCEv2.
    pub gid_index: Option<u32>,
    /// By which interface requests are posted.
    pub interface: Interface,
    /// The network interfaces at the far ends of the two devices' own, left and right: what arrives at one leaves at the
    /// other, and cases control the packets. `None`: the devices' way to each other is not ours.
    pub wire: Option<[String; 2]>,
    /// How long to wait for something that must come; `None` for 15 s. Slow machines (an emulated one) need more.
    pub patience: Option<Duration>,
}

impl NativeOptions {
    fn patience(&self) -> Duration {
        self.patience.unwrap_or(PATIENCE)
    }

    /// When a case counts as hanging.
    pub(super) fn limit(&self) -> Duration {
        self.patience() * 10
    }
}

/// One end: a device, and which GIDs of it to use.
struct End {
    context: <Native as Provider>::Context,
    usual: GidEntry,
    other: Option<GidEntry>,
}

/// Where a GID stands: (port, index).
fn place(entry: &GidEntry) -> (u8, u32) {
    (entry.port, entry.index)
}

/// Join a group at the IP layer, for as long as the socket lives. The kernel's rxe does not do that, and gets only what
/// somebody else on its interface asks for.
fn join(group: IpAddr, own: &GidEntry) -> std::io::Result<UdpSocket> {
    match (group, own.gid.ip()) {
        (IpAddr::V4(group), IpAddr::V4(interface)) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.join_multicast_v4(&group, &interface)?;
            Ok(socket)
        }
        (IpAddr::V6(group), IpAddr::V6(_)) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            socket.join_multicast_v6(&group, own.interface_index)?;
            Ok(socket)
        }
        _ => Err(std::io::ErrorKind::InvalidInput.into()),
    }
}

/// A device of libibverbs, or two, as a bed.
pub struct NativeBed {
    native: Native,
    ends: [End; 2],
    /// Devices of their own for the other IP family.
    other_family: Option<<Native as Provider>::Context>,
    tolerances: Option<Arc<Tolerances>>,
    /// Members of groups at the IP layer.
    groups: Vec<UdpSocket>,
    /// Control over the packets between the devices.
    wire: Option<Wire<Frames>>,
    /// Where the packets that pass the wire go in the end.
    capture: Option<PathBuf>,
    /// Whether what the provider does not offer is no failure.
    may_lack: bool,
    patience: Duration,
    start: Instant,
    polls: u32,
}

/// The library, opened once in a process: it cannot be closed.
fn provider(library: &Path, drop_in: DropIn) -> Result<Native, Failure> {
    static OPEN: Mutex<Option<HashMap<PathBuf, Native>>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    if let Some(native) = open.get(library) {
        return Ok(native.clone());
    }
    let native = Native::open_library(library, drop_in).map_err(|error| Failure::new(error.to_string()))?;
    open.insert(library.to_owned(), native.clone());
    Ok(native)
}

impl NativeBed {
    /// The devices of these options.
    ///
    /// # Errors
    /// No library, no device, no right to it, no GID: the failure says what to do.
    pub fn open(options: &NativeOptions) -> Result<Self, Failure> {
        let library = options.library.as_deref().unwrap_or(Path::new(SYSTEM_LIBRARY));
        let native = provider(library, DropIn::Refused)?.with_interface(options.interface);
        let (left, right) = match options.devices.as_slice() {
            [] => {
                let first = first_device(&native, library)?;
                (first.clone(), first)
            }
            [only] => (only.clone(), only.clone()),
            [left, right] => (left.clone(), right.clone()),
            more => {
                return Err(Failure::new(format!(
                    "{} devices were named; one talks to itself, two talk to each other",
                    more.len()
                )));
            }
        };
        let ends = [
            end(&native, &left, options.gid_index)?,
            end(&native, &right, options.gid_index)?,
        ];
        let tolerances = Tolerances::of(&ends[0].context);
        let start = Instant::now();
        let wire = match &options.wire {
            None => None,
            Some(interfaces) => Some(between(&ends, interfaces, start)?),
        };
        Ok(NativeBed {
            native,
            ends,
            other_family: None,
            tolerances,
            groups: Vec::new(),
            wire,
            capture: None,
            may_lack: true,
            patience: options.patience(),
            start,
            polls: 0,
        })
    }

    /// Two devices of the drop-in, which `options.library` names. The process was started with addresses for them
    /// ([`DROP_IN_ADDRESSES`]).
    pub fn open_drop_in(options: &NativeOptions) -> Result<Self, Failure> {
        let Some(library) = &options.library else {
            return Err(Failure::new("the bed dropin needs the path of the drop-in"));
        };
        let native = provider(library, DropIn::Accepted)?.with_interface(options.interface);
        let [left, right, other] = DROP_IN_DEVICES;
        let ends = [end(&native, left, Some(0))?, end(&native, right, Some(0))?];
        Ok(NativeBed {
            ends,
            other_family: native.open(other).ok(),
            native,
            tolerances: None,
            groups: Vec::new(),
            wire: None,
            capture: None,
            may_lack: false,
            patience: options.patience(),
            start: Instant::now(),
            polls: 0,
        })
    }

    /// Write the packets that pass the wire to this file in the end; without a wire nobody sees any.
    pub fn with_capture(mut self, capture: Option<PathBuf>) -> Self {
        self.capture = capture;
        self
    }

    /// The documented deviations of this kind of device.
    pub fn tolerances(&self) -> Option<&Tolerances> {
        self.tolerances.as_deref()
    }
}

impl Drop for NativeBed {
    fn drop(&mut self) {
        if let Some(path) = self.capture.take() {
            // As on the simulator: who asked for it sees that it is missing.
            let _ = self.save_capture(&path);
        }
    }
}

/// Control over the packets between two devices.
fn between(ends: &[End; 2], interfaces: &[String; 2], start: Instant) -> Result<Wire<Frames>, Failure> {
    let bridge = Bridge::between(interfaces)
        .map_err(|error| Failure::new(format!("the wire between the devices cannot be had: {error}")))?;
    let traffic = Traffic::new(start, 1);
    bridge.set_traffic(Some(traffic.clone()));
    let forger = Frames {
        bridge,
        addresses: [ends[0].usual.gid.ip(), ends[1].usual.gid.ip()],
        macs: [
            mac_of(ends[0].usual.interface_index),
            mac_of(ends[1].usual.interface_index),
        ],
    };
    Ok(Wire::new(traffic, forger))
}

fn first_device(native: &Native, library: &Path) -> Result<String, Failure> {
    let devices = native
        .devices()
        .map_err(|error| Failure::new(error.to_string()))?;
    match devices.into_iter().next() {
        Some(device) => Ok(device.name),
        None => Err(Failure::new(format!(
            "{} finds no RDMA device on this machine. A card's driver brings one; so does, as root, \
             `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE`",
            library.display()
        ))),
    }
}

fn end(native: &Native, device: &str, gid_index: Option<u32>) -> Result<End, Failure> {
    let context = native
        .open(device)
        .map_err(|error| Failure::new(format!("device {device}: {error}")))?;
    let table = context
        .gid_table()
        .map_err(|error| Failure::new(format!("device {device}: {error}")))?;
    let is_v4 = |entry: &&GidEntry| entry.gid.ip().is_ipv4();
    let routed = || table.iter().filter(|entry| entry.gid_type == GidType::RoceV2);
    let usual = match gid_index {
        Some(index) => table.iter().find(|entry| entry.index == index),
        None => routed().find(is_v4).or_else(|| routed().next()).or(table.first()),
    };
    let Some(usual) = usual else {
        return Err(Failure::new(format!(
            "device {device} has no GID{}; its GIDs follow the addresses of its network interface: is that up, and has \
             it an address? (ibv_devinfo -v lists them)",
            gid_index
                .map(|index| format!(" at index {index}"))
                .unwrap_or_default()
        )));
    };
    let other = routed().find(|entry| entry.gid.ip().is_ipv4() != usual.gid.ip().is_ipv4());
    Ok(End {
        usual: usual.clone(),
        other: other.cloned(),
        context,
    })
}

impl Testbed for NativeBed {
    type P = Native;
    type Cm = Cm;

    /// EOPNOTSUPP: the system has no librdmacm, or its kernel no connection manager.
    fn connection_manager(&self) -> verbs_api::Result<Cm> {
        self.native.connection_manager()
    }

    fn context(&self, side: Side) -> &<Native as Provider>::Context {
        &self.ends[side.index()].context
    }

    fn device(&self, side: Side, family: Family) -> &<Native as Provider>::Context {
        match (family, &self.other_family) {
            (Family::Other, Some(context)) => context,
            (Family::Other, None) | (Family::Usual, _) => self.context(side),
        }
    }

    fn gid_index(&self, side: Side, family: Family) -> (u8, u32) {
        let end = &self.ends[side.index()];
        match (family, &self.other_family) {
            (Family::Usual, _) => place(&end.usual),
            (Family::Other, Some(_)) => (1, 0),
            (Family::Other, None) => place(end.other.as_ref().unwrap_or(&end.usual)),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn advance(&mut self, until: Duration) -> Activity {
        self.polls += 1;
        if self.polls < EAGER_POLLS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE.min(until.saturating_sub(self.now())));
            self.polls %= 4 * EAGER_POLLS;
        }
        Activity::Going
    }

    fn has(&self, need: Need) -> bool {
        match need {
            Need::BothFamilies => {
                self.other_family.is_some() || self.ends.iter().all(|end| end.other.is_some())
            }
            Need::MulticastInBothFamilies => {
                self.has(Need::BothFamilies)
                    && Side::BOTH.iter().all(|side| {
                        offers(self.device(*side, Family::Usual), Need::Multicast)
                            && offers(self.device(*side, Family::Other), Need::Multicast)
                    })
            }
            Need::Network => self.wire.is_some(),
            // What the system lacks otherwise the cases find out, with its reason. iWARP's only GID is a MAC address, to
            // which nothing can be bound.
            Need::ConnectionManager => self.ends.iter().all(|end| end.usual.gid_type == GidType::RoceV2),
            _ => self.ends.iter().all(|end| offers(&end.context, need)),
        }
    }

    fn network(&mut self) -> Option<&mut dyn Network> {
        self.wire.as_mut().map(|wire| wire as &mut dyn Network)
    }

    fn save_capture(&self, path: &Path) -> Option<std::io::Result<()>> {
        Some(self.wire.as_ref()?.traffic.save(path))
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn least_timeout(&self) -> u8 {
        // 134 ms, and 537 ms on a machine that is known to be slow.
        if self.patience > PATIENCE { 17 } else { 15 }
    }

    fn settling(&self) -> Duration {
        match self.wire {
            // 100 ms on an emulated machine, of which 30 s of patience is asked.
            Some(_) => self.patience / 300,
            None => Duration::ZERO,
        }
    }

    fn slack(&self) -> Duration {
        self.patience / 5
    }

    fn tolerance(&self, id: &str, seen: &str) -> Option<String> {
        self.tolerances.as_ref()?.documented(id, seen)
    }

    fn verdict(&self, id: &str, requirements: &[&str], failure: &Failure) -> Verdict {
        let seen = failure.to_string();
        if self.may_lack && failure.is_unsupported() {
            return Verdict::Skipped(format!("unsupported: {seen}"));
        }
        if let Some(reason) = self.tolerance(id, &seen) {
            return Verdict::Deviation(format!("{seen} (documented: {reason})"));
        }
        if self.may_lack && rest_on_assumptions(requirements) {
            return Verdict::Deviation(format!(
                "{seen} (what is required is an assumption of ours, not checked against the specification)"
            ));
        }
        match self.tolerances.as_ref().and_then(|known| known.otherwise(id)) {
            Some(documented) => {
                Verdict::Fail(format!("{seen} (documented is another deviation: {documented})"))
            }
            None => Verdict::Fail(seen),
        }
    }

    fn expect_group(&mut self, side: Side, group: Gid) {
        if !self.may_lack {
            // Softroce joins by itself.
            return;
        }
        let end = &self.ends[side.index()];
        let group = group.ip();
        let own = [Some(&end.usual), end.other.as_ref()];
        let own = own
            .into_iter()
            .flatten()
            .find(|entry| entry.gid.ip().is_ipv4() == group.is_ipv4());
        // Where it fails, the case sees that nothing arrives.
        self.groups.extend(own.and_then(|own| join(group, own).ok()));
    }

    fn leftovers(&self) -> Option<String> {
        let contexts = self.ends.iter().map(|end| &end.context).chain(&self.other_family);
        let left: Vec<String> = contexts
            .filter_map(|context| Some(format!("{}: {}", context.name(), context.objects()?)))
            .collect();
        (!left.is_empty()).then(|| left.join(", "))
    }
}

/// Whether all of these requirements are assumptions.
fn rest_on_assumptions(ids: &[&str]) -> bool {
    let known = requirements::all();
    let is_assumed = |id: &&str| {
        known
            .iter()
            .any(|each| each.id == *id && each.certainty == Certainty::Assumed)
    };
    !ids.is_empty() && ids.iter().all(is_assumed)
}

/// Addresses for the drop-in's devices, as [`DROP_IN_ADDRESSES`] takes them: two random ones of the loopback interface,
/// and its IPv6 address.
pub fn drop_in_addresses() -> String {
    let [left, right] = [(); 2].map(|()| super::udp::random_address());
    format!("{left},{right},{}", super::udp::IPV6)
}
