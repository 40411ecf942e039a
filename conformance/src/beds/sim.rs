//! Two softroce devices in virtual time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softroce::{Cm, Softroce};
use softroce_sim::{Link, Time, World};
use verbs_api::{Context as _, PortState, Provider};

use super::{BedOptions, leftovers, offers};
use crate::outcome::Failure;
use crate::testbed::{Activity, Family, Fate, Need, Network, Passing, Rule, Side, Testbed};

/// The simulator as a bed. It has control over every packet.
pub struct SimBed {
    ends: [<Softroce as Provider>::Context; 2],
    /// The same over IPv6.
    other_family: [<Softroce as Provider>::Context; 2],
    provider: Softroce,
    world: World,
    /// The first packet that [`Network::take_trace`] has not given out.
    next_sent: u64,
    capture: Option<std::path::PathBuf>,
}

impl SimBed {
    /// A new world with two devices, 2 µs apart, and two more with IPv6 addresses.
    pub fn open(options: &BedOptions) -> Result<Self, Failure> {
        #[cfg(feature = "mutations")]
        softroce_sim::choose_mutant(options.mutant);
        let mut world = World::new(options.seed);
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let address_v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        // The left end's devices have even numbers.
        let devices = vec![
            world.add_device("sim0", address(1)),
            world.add_device("sim1", address(2)),
            world.add_device("sim2", address_v6(1)),
            world.add_device("sim3", address_v6(2)),
        ];
        let provider = Softroce::from_devices(devices);
        let ends = [provider.open("sim0")?, provider.open("sim1")?];
        let other_family = [provider.open("sim2")?, provider.open("sim3")?];
        Ok(SimBed {
            ends,
            other_family,
            provider,
            world,
            next_sent: 0,
            capture: options.capture.clone(),
        })
    }

    /// The world beneath.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Drop for SimBed {
    fn drop(&mut self) {
        if let Some(path) = self.capture.take() {
            // A capture that cannot be written is no reason for a verdict; who asked for it sees that it is missing.
            let _ = self.save_capture(&path);
        }
    }
}

fn side(index: usize) -> Side {
    Side::BOTH[index % 2]
}

impl Testbed for SimBed {
    type P = Softroce;
    type Cm = Cm;

    fn connection_manager(&self) -> verbs_api::Result<Cm> {
        Cm::new(&self.provider)
    }

    fn context(&self, side: Side) -> &<Softroce as Provider>::Context {
        &self.ends[side.index()]
    }

    fn device(&self, side: Side, family: Family) -> &<Softroce as Provider>::Context {
        match family {
            Family::Usual => &self.ends[side.index()],
            Family::Other => &self.other_family[side.index()],
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now().as_nanos())
    }

    fn advance(&mut self, until: Duration) -> Activity {
        match self.world.advance(Time::from_nanos(until.as_nanos() as u64)) {
            softroce_sim::Activity::Going => Activity::Going,
            softroce_sim::Activity::Dead => Activity::Dead,
        }
    }

    fn has(&self, need: Need) -> bool {
        let own = matches!(
            need,
            Need::Network
                | Need::BothFamilies
                | Need::MulticastInBothFamilies
                | Need::PortControl
                | Need::VirtualTime
                | Need::ConnectionManager
                | Need::Counters
                | Need::SecretKeys
                | Need::UnseenIdentification
                | Need::ReceiveRoom
        );
        own || offers(&self.ends[0], need)
    }

    fn network(&mut self) -> Option<&mut dyn Network> {
        Some(self)
    }

    fn set_port_up(&mut self, side: Side, up: bool) {
        let state = if up { PortState::Active } else { PortState::Down };
        // Device numbers of the usual family are those of the sides.
        let device = &self.ends[side.index()];
        let (Ok(port), Ok(gids)) = (device.query_port(1), device.gid_table()) else {
            return;
        };
        self.world.set_port(side.index(), state, port.active_mtu, gids);
    }

    fn set_receive_room(&mut self, side: Side, bytes: Option<u64>) {
        // Device numbers of the usual family are those of the sides.
        self.world.set_inbox_capacity(side.index(), bytes);
    }

    fn counters(&self, side: Side) -> Vec<(&'static str, u64)> {
        self.ends[side.index()]
            .device()
            .counters()
            .engine
            .iter()
            .collect()
    }

    fn leftovers(&self) -> Option<String> {
        leftovers(self.ends.iter().chain(&self.other_family))
    }

    fn save_capture(&self, path: &std::path::Path) -> Option<std::io::Result<()>> {
        let write = || {
            self.world
                .write_capture(std::io::BufWriter::new(std::fs::File::create(path)?))
        };
        Some(write())
    }
}

impl Network for SimBed {
    fn set_rule(&mut self, mut rule: Rule) {
        let rule = move |transit: &softroce_sim::Transit<'_>| {
            let at = transit.at.as_nanos();
            match passing(at, transit.from, transit.transmission, transit.bytes).map(|packet| rule(&packet)) {
                Some(Fate::Drop) => softroce_sim::Fate::Drop,
                Some(Fate::Duplicate) => softroce_sim::Fate::Duplicate,
                Some(Fate::Delay(time)) => softroce_sim::Fate::Delay(time.as_nanos() as u64),
                Some(Fate::Corrupt { bit }) => softroce_sim::Fate::Corrupt(bit),
                Some(Fate::Deliver) | None => softroce_sim::Fate::Deliver,
            }
        };
        self.world.set_rule(Some(Box::new(rule)));
    }

    fn clear_rule(&mut self) {
        self.world.set_rule(None);
    }

    fn set_weather(&mut self, loss: u32, duplication: u32, reordering: u32) {
        let link = Link {
            loss_per_mille: loss,
            duplication_per_mille: duplication,
            reordering_per_mille: reordering,
            ..Link::default()
        };
        self.world.set_all_links(link);
    }

    fn take_trace(&mut self) -> Vec<Passing> {
        let (sent, next) = self.world.sent_since(self.next_sent);
        self.next_sent = next;
        sent.iter()
            .filter_map(|s| passing(s.at.as_nanos(), s.from, s.transmission, &s.bytes))
            .collect()
    }

    fn inject_numbered(&mut self, to: Side, udp_payload: &[u8], identification: u16) {
        self.world
            .inject_numbered(to.peer().index(), to.index(), udp_payload, identification);
    }

    fn inject_raw(&mut self, to: Side, udp_payload: &[u8]) {
        self.world.inject(to.peer().index(), to.index(), udp_payload);
    }
}

/// A packet as cases see it; `None` when its headers cannot be read.
fn passing(at_ns: u64, from: usize, transmission: u32, bytes: &[u8]) -> Option<Passing> {
    let packet = roce_wire::parse(bytes).ok()?;
    Some(Passing {
        at: Duration::from_nanos(at_ns),
        from: side(from),
        headers: packet.headers,
        payload: packet.payload.to_vec(),
        transmission,
        bytes: bytes.to_vec(),
    })
}
