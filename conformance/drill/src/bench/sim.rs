//! The embedded engine in virtual time.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use softroce::Softroce;
use softroce_sim::{Time, World};
use verbs_api::{Gid, Provider};

use super::{Activity, Bench, Seal, Seen, read};
use crate::call::{Call, Reply};
use crate::dut::LocalDut;

/// Indices of the world's devices. Nothing runs on the second: its address is the played end's.
const DUT: usize = 0;
const PLAYED: usize = 1;

const PLAYED_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// One engine and a played peer, 2 µs apart, in virtual time: the same script gives the same packets at the same
/// times, always.
pub struct SimBench {
    dut: LocalDut<Softroce>,
    world: World,
    next_sent: u64,
}

impl SimBench {
    /// A new world; everything random in it follows from `seed`.
    pub fn new(seed: u64) -> io::Result<Self> {
        let mut world = World::new(seed);
        let devices = vec![
            world.add_device("dut", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))),
            world.add_device("played", PLAYED_ADDRESS),
        ];
        let provider = Softroce::from_devices(devices);
        let context = provider.open("dut").map_err(io::Error::other)?;
        let dut = LocalDut::new(context, 1, 0).map_err(io::Error::other)?;
        Ok(SimBench {
            dut,
            world,
            next_sent: 0,
        })
    }
}

impl Bench for SimBench {
    fn call(&mut self, call: &Call) -> io::Result<Reply> {
        Ok(self.dut.call(call))
    }

    fn inject(&mut self, udp_payload: &[u8], seal: Seal) -> io::Result<()> {
        match seal {
            Seal::Right => self.world.inject_sealed(PLAYED, DUT, udp_payload),
            // The bytes end in zeroes, which no packet of ours has as its ICRC but by a chance of 2^-32.
            Seal::Wrong => self.world.inject(PLAYED, DUT, udp_payload),
        }
        Ok(())
    }

    fn take_seen(&mut self) -> io::Result<Vec<Seen>> {
        let (sent, next) = self.world.sent_since(self.next_sent);
        self.next_sent = next;
        let own = sent.iter().filter(|sent| sent.from == DUT);
        Ok(own
            .filter_map(|sent| {
                let packet = read(&sent.bytes)?;
                Some(Seen {
                    at: Duration::from_nanos(sent.at.as_nanos()),
                    headers: packet.headers,
                    payload: packet.payload.to_vec(),
                    icrc_is_valid: true,
                })
            })
            .collect())
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now().as_nanos())
    }

    fn advance(&mut self, until: Duration) -> io::Result<Activity> {
        let until = Time::from_nanos(until.as_nanos() as u64);
        Ok(match self.world.advance(until) {
            softroce_sim::Activity::Going => Activity::Going,
            softroce_sim::Activity::Dead => Activity::Dead,
        })
    }

    fn played_gid(&self) -> [u8; 16] {
        Gid::from(PLAYED_ADDRESS).0
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn slack(&self) -> Duration {
        Duration::from_micros(5)
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn save_capture(&self, path: &Path) -> io::Result<()> {
        let file = std::fs::File::create(path)?;
        self.world.write_capture(io::BufWriter::new(file))
    }
}
