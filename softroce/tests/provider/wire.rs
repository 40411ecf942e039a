//! Two fabrics joined by a cable in memory, and a clock that stands until it is moved.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use roce_wire::icrc::{self, Flow};
use softroce::{Clock, Device, Fabric, FabricCounters, ProgressMode};
use softroce_engine::{PortConfig, RxMeta, Time, TxBatch};
use verbs_api::{Gid, GidEntry, GidType, Mtu, PortState};

type Queue = Arc<Mutex<VecDeque<(RxMeta, Vec<u8>)>>>;

/// One end of the cable.
pub struct Cable {
    own: IpAddr,
    inbox: Queue,
    outbox: Queue,
    counters: FabricCounters,
}

impl Cable {
    pub fn pair() -> (Cable, Cable) {
        let (left, right) = (Queue::default(), Queue::default());
        let end = |last, inbox: &Queue, outbox: &Queue| Cable {
            own: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
            inbox: inbox.clone(),
            outbox: outbox.clone(),
            counters: FabricCounters::default(),
        };
        (end(1, &left, &right), end(2, &right, &left))
    }
}

impl Fabric for Cable {
    fn send(&mut self, batch: &mut TxBatch) {
        for index in 0..batch.packets().len() {
            let packet = batch.packets()[index];
            let flow = Flow {
                src: self.own,
                dst: packet.path.dst,
                source_port: 4791,
                dest_port: 4791,
            };
            let bytes = batch.run_mut(index, 1);
            icrc::seal(&flow, 0, bytes);
            let meta = RxMeta {
                src: self.own,
                dst: packet.path.dst,
                source_port: 4791,
                segment: 0,
                traffic_class: packet.path.traffic_class,
                hop_limit: packet.path.hop_limit,
            };
            self.counters.sent_datagrams += 1;
            self.outbox.lock().unwrap().push_back((meta, bytes.to_vec()));
        }
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let datagrams: Vec<_> = self.inbox.lock().unwrap().drain(..).collect();
        for (meta, bytes) in &datagrams {
            sink(meta, bytes);
        }
        self.counters.received_datagrams += datagrams.len() as u64;
        datagrams.len()
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn counters(&self) -> FabricCounters {
        self.counters
    }

    fn receive_pressure(&mut self) -> bool {
        false
    }

    fn receive_buffer_bytes(&self) -> u32 {
        212_992
    }

    fn port(&mut self) -> PortConfig {
        let entry = GidEntry {
            gid: Gid::from(self.own),
            index: 0,
            port: 1,
            gid_type: GidType::RoceV2,
            interface_index: 1,
        };
        PortConfig {
            state: PortState::Active,
            active_mtu: Mtu::Mtu4096,
            gids: vec![entry],
        }
    }

    fn qpn_slice(&self) -> Range<u32> {
        0x10000..0x20000
    }

    fn close_in_child(&mut self) {}
}

/// A clock that stands until it is moved.
#[derive(Default)]
pub struct StandingClock(AtomicU64);

impl StandingClock {
    pub fn advance_to(&self, time: Time) {
        self.0.fetch_max(time.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for StandingClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Two devices in manual progress, and their clock.
pub fn devices() -> (Device, Device, Arc<StandingClock>) {
    let clock = Arc::new(StandingClock::default());
    let (left, right) = Cable::pair();
    let device = |name, cable: Cable, seed| {
        Device::new(name, Box::new(cable), clock.clone(), ProgressMode::Manual, seed)
    };
    (device("left", left, 1), device("right", right, 2), clock)
}
