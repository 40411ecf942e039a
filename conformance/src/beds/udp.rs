//! Two softroce devices over UDP on this machine, each on a loopback address of its own.

use std::cell::OnceCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use softroce::{Cm, Options, ProgressMode, Softroce};
use verbs_api::{ErrorKind, Provider};

use super::wire::{Traffic, Wire, loopback};
use super::{BedOptions, Control, leftovers, offers};
use crate::outcome::Failure;
use crate::testbed::{Activity, Family, Need, Network, Side, Testbed};

/// Addresses tried until two are free.
const TRIES: u32 = 20;
/// Polls without a pause before the bed starts to sleep between them.
const EAGER_POLLS: u32 = 200;
/// How long it then sleeps.
const PAUSE: Duration = Duration::from_micros(100);
/// Within which a packet of the case is dealt with, unless the machine has much else to do.
const SETTLING: Duration = Duration::from_millis(10);
/// A try of 67 ms at least.
const LEAST_TIMEOUT: u8 = 14;

/// The loopback interface has one IPv6 address.
pub(super) const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// The third device.
const IPV6_DEVICE: &str = "softroce2";

/// Real sockets as a bed.
pub struct UdpBed {
    ends: [<Softroce as Provider>::Context; 2],
    provider: Softroce,
    /// One device on the only IPv6 address of the loopback interface, for both ends; opened when a case asks for it.
    other_family: OnceCell<<Softroce as Provider>::Context>,
    /// Control over packets between the two ends, for a case that asked for it.
    wire: Option<Wire<loopback::Sockets>>,
    start: Instant,
    polls: u32,
}

impl UdpBed {
    /// Two devices on two random addresses of 127.0.0.0/8, which needs no right and disturbs nobody.
    pub fn open(options: &BedOptions) -> Result<Self, Failure> {
        let mut tries = 0;
        let (provider, addresses) = loop {
            let addresses = [random_address(), random_address()];
            let setup = Options {
                addresses: vec![addresses[0], addresses[1], IPV6],
                progress: ProgressMode::Auto,
                capture: options.capture.clone(),
                ..Options::default()
            };
            tries += 1;
            match Softroce::new(setup) {
                Err(error) if error.kind() == ErrorKind::AddressInUse && tries < TRIES => {}
                Err(error) => return Err(Failure::new(format!("the UDP bed cannot be opened: {error}"))),
                Ok(provider) => break (provider, addresses),
            }
        };
        let names = provider.devices()?;
        let [left, right, _] = names.as_slice() else {
            return Err(Failure::new(format!(
                "asked for three devices, got {}",
                names.len()
            )));
        };
        let start = Instant::now();
        let wire = match options.control {
            Control::None => None,
            Control::Packets => Some(watched(&provider, addresses, start, options.seed)?),
        };
        let ends = [provider.open(&left.name)?, provider.open(&right.name)?];
        Ok(UdpBed {
            ends,
            provider,
            other_family: OnceCell::new(),
            wire,
            start,
            polls: 0,
        })
    }
}

/// Before its devices open, have the provider ask about each packet.
fn watched(
    provider: &Softroce,
    addresses: [IpAddr; 2],
    start: Instant,
    seed: u64,
) -> Result<Wire<loopback::Sockets>, Failure> {
    let traffic = Traffic::new(start, seed);
    provider.faults().watch(Box::new(loopback::Watcher {
        traffic: traffic.clone(),
        left: addresses[0],
    }));
    let sockets = loopback::Sockets::bind(addresses)
        .map_err(|error| Failure::new(format!("no socket to forge packets with: {error}")))?;
    Ok(Wire::new(traffic, sockets))
}

pub(super) fn random_address() -> IpAddr {
    let random = RandomState::new().build_hasher().finish().to_le_bytes();
    // 127.0.0.x is left to programs that people start by hand.
    IpAddr::V4(Ipv4Addr::new(
        127,
        1 + random[0] % 254,
        random[1],
        1 + random[2] % 254,
    ))
}

impl Testbed for UdpBed {
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
            Family::Other => self.other_family.get_or_init(|| {
                self.provider
                    .open(IPV6_DEVICE)
                    .expect("the bed has a second family only where ::1 is an address")
            }),
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
            Need::BothFamilies => UdpSocket::bind((IPV6, 0)).is_ok(),
            // The loopback interface has no route for it unless root gave it one.
            Need::MulticastInBothFamilies => {
                self.has(Need::BothFamilies)
                    && offers(self.device(Side::Left, Family::Other), Need::Multicast)
            }
            Need::ConnectionManager
            | Need::Counters
            | Need::Network
            | Need::SecretKeys
            | Need::UnseenIdentification => true,
            _ => offers(&self.ends[0], need),
        }
    }

    fn network(&mut self) -> Option<&mut dyn Network> {
        self.wire.as_mut().map(|wire| wire as &mut dyn Network)
    }

    fn save_capture(&self, path: &std::path::Path) -> Option<std::io::Result<()>> {
        Some(self.wire.as_ref()?.traffic.save(path))
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
        leftovers(self.ends.iter().chain(self.other_family.get()))
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn least_timeout(&self) -> u8 {
        LEAST_TIMEOUT
    }

    fn settling(&self) -> Duration {
        match self.wire {
            Some(_) => SETTLING,
            None => Duration::ZERO,
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(15)
    }
}
