//! The way of a simulated device into the network.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;
use softroce::faults::Mishaps;
use softroce::{Clock, Fabric, FabricCounters, Faults};
use softroce_engine::{PortConfig, RxMeta, Time, TxBatch};
use softroce_faults::{Event, Numbers};
use verbs_api::{Error, Gid, GidEntry, GidType, Mtu, PortState, Result};

use crate::clock::VirtualClock;
use crate::network::Network;

/// Datagrams handed over in one round.
const ROUND: usize = 64;

/// What can be changed about a device's port while it runs.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) config: PortConfig,
    pub(crate) changed: bool,
    faults: Arc<Faults>,
    /// What fault rules have made of it.
    mishaps: Mishaps,
}

impl Port {
    pub(crate) fn new(address: IpAddr, active_mtu: Mtu, faults: Arc<Faults>) -> Self {
        let gid = GidEntry {
            gid: Gid::from(address),
            index: 0,
            port: 1,
            gid_type: GidType::RoceV2,
            interface_index: 0,
        };
        Port {
            config: PortConfig {
                state: PortState::Active,
                active_mtu,
                gids: vec![gid],
            },
            changed: false,
            faults,
            mishaps: Mishaps::default(),
        }
    }

    /// When a fault rule does something to the device next.
    pub(crate) fn next_mishap(&self) -> Option<Time> {
        self.mishaps.next_ns(&self.faults).map(Time::from_nanos)
    }
}

/// One device's end of the simulated network.
pub struct SimFabric {
    network: Arc<Mutex<Network>>,
    port: Arc<Mutex<Port>>,
    clock: Arc<VirtualClock>,
    index: usize,
    receive_buffer_bytes: u32,
    counters: FabricCounters,
}

impl SimFabric {
    pub(crate) fn new(
        network: Arc<Mutex<Network>>,
        port: Arc<Mutex<Port>>,
        clock: Arc<VirtualClock>,
        index: usize,
        receive_buffer_bytes: u32,
    ) -> Self {
        SimFabric {
            network,
            port,
            clock,
            index,
            receive_buffer_bytes,
            counters: FabricCounters::default(),
        }
    }
}

impl Fabric for SimFabric {
    fn send(&mut self, batch: &mut TxBatch) {
        let now = self.clock.now();
        let is_down = self.port.lock().mishaps.is_down();
        let mut network = self.network.lock();
        for packet in batch.packets() {
            self.counters.sent_datagrams += 1;
            self.counters.sent_bytes += u64::from(packet.len);
            match is_down {
                true => network.counters.lost += 1,
                false => network.send(now, self.index, &packet.path, batch.bytes(packet)),
            }
        }
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let is_down = self.port.lock().mishaps.is_down();
        for round in 0..ROUND {
            // The lock is not held while the engine works.
            let Some(datagram) = self.network.lock().inboxes[self.index].pop() else {
                return round;
            };
            if is_down {
                self.network.lock().counters.lost += 1;
                continue;
            }
            self.counters.received_datagrams += 1;
            self.counters.received_bytes += datagram.bytes.len() as u64;
            sink(&datagram.meta, &datagram.bytes);
        }
        ROUND
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn counters(&self) -> FabricCounters {
        let receive_overflows = self.network.lock().inboxes[self.index].overflows;
        FabricCounters {
            receive_overflows,
            ..self.counters
        }
    }

    fn receive_pressure(&mut self) -> bool {
        self.network.lock().inboxes[self.index].pressed()
    }

    fn receive_buffer_bytes(&self) -> u32 {
        self.receive_buffer_bytes
    }

    fn port(&mut self) -> PortConfig {
        let mut port = self.port.lock();
        port.changed = false;
        let faults = port.faults.clone();
        port.mishaps.hear(&faults);
        let mut config = port.config.clone();
        port.mishaps.apply(&mut config);
        config
    }

    fn port_changed(&mut self) -> bool {
        let port = self.port.lock();
        port.changed || port.next_mishap().is_some_and(|due| due <= self.clock.now())
    }

    fn disturbance(&mut self) -> Option<(Event, Numbers)> {
        self.port.lock().mishaps.disturbance()
    }

    fn qpn_slice(&self) -> Range<u32> {
        // Slices differ, so that a packet that reaches the wrong device finds no queue pair there.
        let slice = 1 + (self.index as u32 % 255);
        slice << 16..(slice + 1) << 16
    }

    fn join(&mut self, group: IpAddr) -> Result<()> {
        if !group.is_multicast() {
            return Err(Error::invalid(format!("{group} is no multicast address")));
        }
        let mut network = self.network.lock();
        if group.is_ipv4() != network.address(self.index).is_ipv4() {
            return Err(Error::invalid(format!(
                "{group} is of another family than the device's address"
            )));
        }
        network.groups.insert((group, self.index));
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> Result<()> {
        self.network.lock().groups.remove(&(group, self.index));
        Ok(())
    }

    fn has_multicast(&self) -> bool {
        true
    }

    fn close_in_child(&mut self) {}
}
