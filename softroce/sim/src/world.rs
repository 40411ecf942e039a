//! Devices, links and the clock together.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use softroce::{Clock, Device, Faults, ProgressMode};
use softroce_engine::{Path, Time};
use verbs_api::{GidEntry, Mtu, PortState};

use crate::capture;
use crate::clock::VirtualClock;
use crate::fabric::{Port, SimFabric};
use crate::link::{Link, Rule};
use crate::network::{Network, NetworkCounters, flow};
use crate::trace::Sent;
use softroce_faults::{Random, Rules, Tally};

/// Receive buffer of a device unless told otherwise: that of a Linux socket.
const RECEIVE_BUFFER_BYTES: u32 = 212_992;
/// Rounds in which devices may work without time passing; more means that they never come to rest.
const ROUNDS_AT_ONE_TIME: u32 = 100_000;
/// A timer that is due and stays due is asked again after so long, rather than for ever at the same moment.
const OVERDUE_STEP_NS: u64 = 1_000;

/// Whether anything can still happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Packets are in flight, or timers run.
    Going,
    /// Neither.
    Dead,
}

/// Why [`World::run_until`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Someone waits, but nothing is in flight and no timer runs.
    DeadLock {
        /// Since when.
        at: Time,
    },
    /// The time is over.
    TimeOver {
        /// Which.
        limit: Time,
    },
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stuck::DeadLock { at } => {
                write!(
                    f,
                    "dead lock at {at}: someone waits, but no packet is in flight and no timer runs"
                )
            }
            Stuck::TimeOver { limit } => write!(f, "not finished at {limit}"),
        }
    }
}

impl std::error::Error for Stuck {}

/// Devices in virtual time.
pub struct World {
    clock: Arc<VirtualClock>,
    network: Arc<Mutex<Network>>,
    devices: Vec<Device>,
    ports: Vec<Arc<Mutex<Port>>>,
    seeds: Random,
    faults: Arc<Faults>,
}

impl World {
    /// An empty world. Everything in it that is random follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut seeds = Random::new(seed);
        let network = Arc::new(Mutex::new(Network::new(seeds.next_u64())));
        let clock = Arc::<VirtualClock>::default();
        let faults = Faults::new(clock.clone());
        network.lock().set_faults(faults.clone());
        World {
            clock,
            faults,
            network,
            devices: Vec::new(),
            ports: Vec::new(),
            seeds,
        }
    }

    /// A new device with one GID and a path MTU up to 4096. Devices are numbered from 0 in the order of their making.
    pub fn add_device(&mut self, name: &str, address: IpAddr) -> Device {
        let index = self.network.lock().attach(address);
        let port = Arc::new(Mutex::new(Port::new(address, Mtu::Mtu4096, self.faults.clone())));
        let fabric = SimFabric::new(
            self.network.clone(),
            port.clone(),
            self.clock.clone(),
            index,
            RECEIVE_BUFFER_BYTES,
        );
        let seed = self.seeds.next_u64();
        let device = Device::with_faults(
            name,
            Box::new(fabric),
            self.clock.clone(),
            (ProgressMode::Manual, seed),
            self.faults.clone(),
        )
        .expect("a device without a thread takes nothing of the system");
        self.devices.push(device.clone());
        self.ports.push(port);
        device
    }

    /// The devices, by their numbers.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Let everything happen that happens now, then move the clock to the next event, but not beyond `until`.
    pub fn advance(&mut self, until: Time) -> Activity {
        self.settle();
        let now = self.now();
        let timers = self.devices.iter().filter_map(Device::next_timeout);
        let mishaps = self.ports.iter().filter_map(|port| port.lock().next_mishap());
        let next = timers
            .chain(mishaps)
            .chain(self.network.lock().next_arrival())
            .min();
        let Some(next) = next else {
            self.clock.move_to(until);
            return Activity::Dead;
        };
        let next = if next <= now { now + OVERDUE_STEP_NS } else { next };
        self.clock.move_to(next.min(until));
        let now = self.now();
        self.network.lock().deliver(now);
        self.settle();
        Activity::Going
    }

    /// Until no device has anything to do at this moment.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_AT_ONE_TIME {
            let worked = self.devices.iter().filter(|device| device.progress()).count();
            if worked == 0 {
                return;
            }
        }
        panic!(
            "after {ROUNDS_AT_ONE_TIME} rounds at {} the devices still find work: a live lock",
            self.now()
        );
    }

    /// Advance until `done`, for `patience_ns` at most.
    pub fn run_until(&mut self, patience_ns: u64, mut done: impl FnMut() -> bool) -> Result<(), Stuck> {
        let limit = self.now() + patience_ns;
        loop {
            if done() {
                return Ok(());
            }
            if self.now() >= limit {
                return Err(Stuck::TimeOver { limit });
            }
            let before = self.now();
            if self.advance(limit) == Activity::Dead {
                return if done() {
                    Ok(())
                } else {
                    Err(Stuck::DeadLock { at: before })
                };
            }
        }
    }

    /// Advance for `nanos`.
    pub fn run_for(&mut self, nanos: u64) {
        let until = self.now() + nanos;
        while self.now() < until {
            self.advance(until);
        }
    }

    /// How packets travel from one device to another, from now on.
    pub fn set_link(&mut self, from: usize, to: usize, link: Link) {
        self.network.lock().set_link(from, to, link);
    }

    /// How packets travel everywhere, from now on.
    pub fn set_all_links(&mut self, link: Link) {
        self.network.lock().set_all_links(link);
    }

    /// The link now.
    pub fn link(&self, from: usize, to: usize) -> Link {
        self.network.lock().link(from, to)
    }

    /// Ask `rule` about every packet from now on; `None` asks nobody.
    pub fn set_rule(&mut self, rule: Option<Rule>) {
        self.network.lock().set_rule(rule);
    }

    /// Have these fault rules at work from now on, or none: about packets where they are sent and where they arrive, about
    /// verbs calls and about completions, of all devices together. Events happen to every device. Times are virtual.
    pub fn set_faults(&mut self, rules: Option<Rules>) {
        match rules {
            Some(rules) => self.faults.load(rules),
            None => self.faults.clear(),
        }
        for device in &self.devices {
            device.faults_changed().expect("no process has forked");
        }
    }

    /// What each fault rule has done so far.
    pub fn fault_tallies(&self) -> Vec<Tally> {
        self.faults.tallies()
    }

    /// Let a device lose what arrives while more than `bytes` of datagrams wait for it; `None` is without limit.
    pub fn set_inbox_capacity(&mut self, device: usize, bytes: Option<u64>) {
        self.network.lock().inboxes[device].capacity_bytes = bytes;
    }

    /// Change state, MTU or GIDs of a device's port, as an administrator does.
    pub fn set_port(&mut self, device: usize, state: PortState, active_mtu: Mtu, gids: Vec<GidEntry>) {
        let mut port = self.ports[device].lock();
        port.config = softroce_engine::PortConfig {
            state,
            active_mtu,
            gids,
        };
        port.changed = true;
    }

    /// Forge a packet: `udp_payload` (BTH to ICRC, as it is) arrives at `to` as if `from` had sent it.
    pub fn inject(&mut self, from: usize, to: usize, udp_payload: &[u8]) {
        let now = self.now();
        let mut network = self.network.lock();
        let path = path(&network, from, to);
        network.inject(now, from, to, &path, udp_payload.into());
    }

    /// The same with a right ICRC in the last four bytes.
    pub fn inject_sealed(&mut self, from: usize, to: usize, udp_payload: &[u8]) {
        self.inject_numbered(from, to, udp_payload, 0);
    }

    /// The same, with an ICRC that is right if the IPv4 header, which no device sees, has this identification.
    pub fn inject_numbered(&mut self, from: usize, to: usize, udp_payload: &[u8], identification: u16) {
        let flow = flow(&path(&self.network.lock(), from, to));
        let mut bytes = udp_payload.to_vec();
        roce_wire::icrc::seal(&flow, identification, &mut bytes);
        self.inject(from, to, &bytes);
    }

    /// The packets that devices sent from number `first` on, and the number to go on with.
    pub fn sent_since(&self, first: u64) -> (Vec<Sent>, u64) {
        self.network.lock().trace.since(first)
    }

    /// What the network has done.
    pub fn counters(&self) -> NetworkCounters {
        self.network.lock().counters
    }

    /// A number that follows from every packet sent so far and its time; remote addresses are left out, which the
    /// host's allocator chooses.
    pub fn trace_hash(&self) -> u64 {
        self.network.lock().trace.hash()
    }

    /// Write the packets sent, forged ones too (the last 64 MiB of them), as pcapng.
    pub fn write_capture(&self, output: impl io::Write) -> io::Result<()> {
        capture::write(self.network.lock().trace.packets(), output)
    }
}

fn path(network: &Network, from: usize, to: usize) -> Path {
    Path {
        src: network.address(from),
        dst: network.address(to),
        source_port: 0xC000,
        traffic_class: 0,
        hop_limit: 64,
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now())
            .field("devices", &self.devices.len())
            .finish()
    }
}
