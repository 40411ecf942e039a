//! Two network interfaces of this machine, each the far end of a device's, and in the middle the case.
//!
//! Frames that arrive at one leave at the other, but for RoCE packets, about which the case is asked. It works with any
//! two devices, takes the right to raw sockets (root), and exists once in a process: a device that is opened anew finds
//! the same wire.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roce_wire::ethernet::Ethernet;
use roce_wire::frame::parse_ethernet;
use roce_wire::icrc::Flow;
use roce_wire::ip::Ip;
use roce_wire::udp::UDP_LEN;

use super::traffic::{Marks, emit, flipped};
use super::{FORGED_PORT, Forger, Traffic, flow, socket};
use crate::testbed::{Fate, Side};

/// The longest frame: an IP packet and a tagged Ethernet header.
const FRAME_MAX: usize = (1 << 16) + 18;
/// Frames taken from one interface before the other gets its turn.
const ROUND: usize = 64;
/// Frames held back at most; what comes on top is lost.
const HELD_MAX: usize = 8192;
/// How long the bridge sleeps at most.
const NAP: Duration = Duration::from_millis(100);

type Mac = [u8; 6];

/// Two interfaces joined.
pub(in crate::beds) struct Bridge {
    /// Left and right.
    ports: [File; 2],
    /// Whose packets these are now; nobody's between two cases.
    traffic: Mutex<Option<Arc<Traffic>>>,
    /// The devices' addresses on the link, as they show in what they send.
    macs: Mutex<[Option<Mac>; 2]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    /// The bridge between these interfaces; there is one for as long as the process lives.
    pub(in crate::beds) fn between(interfaces: &[String; 2]) -> io::Result<Arc<Bridge>> {
        static OPEN: Mutex<Option<HashMap<[String; 2], Arc<Bridge>>>> = Mutex::new(None);
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        if let Some(bridge) = open.get(interfaces) {
            return Ok(bridge.clone());
        }
        let port = |name: &String| {
            socket::frames_of(name)
                .map_err(|error| io::Error::new(error.kind(), format!("network interface {name}: {error}")))
        };
        let bridge = Arc::new(Bridge {
            ports: [port(&interfaces[0])?, port(&interfaces[1])?],
            traffic: Mutex::new(None),
            macs: Mutex::default(),
        });
        let worker = bridge.clone();
        std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || worker.run())?;
        open.insert(interfaces.clone(), bridge.clone());
        Ok(bridge)
    }

    /// Ask this case from now on, or nobody.
    pub(in crate::beds) fn set_traffic(&self, traffic: Option<Arc<Traffic>>) {
        *lock(&self.traffic) = traffic;
    }

    fn run(&self) {
        let mut buffer = vec![0; FRAME_MAX];
        let mut held: BTreeMap<(Instant, u64), (Side, Vec<u8>)> = BTreeMap::new();
        let mut number = 0;
        loop {
            for from in Side::BOTH {
                for _ in 0..ROUND {
                    // An interface that is down for a while is no reason to end.
                    let Ok(length) = (&self.ports[from.index()]).read(&mut buffer) else {
                        break;
                    };
                    let frame = &buffer[..length];
                    if let Some((delay, frame)) = self.carry(from, frame)
                        && held.len() < HELD_MAX
                    {
                        number += 1;
                        held.insert((Instant::now() + delay, number), (from.peer(), frame));
                    }
                }
            }
            while let Some(first) = held.first_entry().filter(|first| first.key().0 <= Instant::now()) {
                let (to, frame) = first.remove();
                self.put(to, &frame);
            }
            let next = held
                .first_key_value()
                .map_or(NAP, |((due, _), _)| due.saturating_duration_since(Instant::now()));
            socket::wait([&self.ports[0], &self.ports[1]], next.min(NAP));
        }
    }

    /// A frame has arrived from this end. Returned is what goes on later.
    fn carry(&self, from: Side, frame: &[u8]) -> Option<(Duration, Vec<u8>)> {
        if let Ok((ethernet, ..)) = Ethernet::parse(frame) {
            lock(&self.macs)[from.index()] = Some(ethernet.src);
        }
        let to = from.peer();
        let fate = match (parse_ethernet(frame), lock(&self.traffic).clone()) {
            (Ok(parsed), Some(traffic)) if parsed.is_roce() => {
                let marks = Marks {
                    class: parsed.ip.traffic_class(),
                    identification: match parsed.ip {
                        Ip::V4(header) => header.identification,
                        Ip::V6(_) => 0,
                    },
                };
                (
                    traffic.judge(from, &parsed.flow(), marks, parsed.payload),
                    parsed.ethernet.map_or(0, |ethernet| ethernet.len()) + parsed.ip.len() + UDP_LEN,
                )
            }
            _ => (Fate::Deliver, 0),
        };
        match fate {
            (Fate::Deliver, _) => self.put(to, frame),
            (Fate::Drop, _) => {}
            (Fate::Duplicate, _) => {
                self.put(to, frame);
                self.put(to, frame);
            }
            (Fate::Delay(time), _) => return Some((time, frame.to_vec())),
            (Fate::Corrupt { bit }, headers) => {
                let (front, payload) = frame.split_at(headers);
                self.put(to, &[front, &flipped(payload, bit)].concat());
            }
        }
        None
    }

    /// To one end's device. What its interface refuses is a lost frame.
    fn put(&self, to: Side, frame: &[u8]) {
        let _ = (&self.ports[to.index()]).write(frame);
    }
}

/// Forges packets on a bridge.
pub(in crate::beds) struct Frames {
    pub(in crate::beds) bridge: Arc<Bridge>,
    /// The devices' addresses.
    pub(in crate::beds) addresses: [IpAddr; 2],
    /// Their addresses on the link, where they are known without having sent anything.
    pub(in crate::beds) macs: [Option<Mac>; 2],
}

impl Forger for Frames {
    fn flow(&self, to: Side) -> Flow {
        flow(
            self.addresses[to.peer().index()],
            self.addresses[to.index()],
            FORGED_PORT,
        )
    }

    fn send(&mut self, to: Side, bytes: &[u8]) -> io::Result<()> {
        let seen = *lock(&self.bridge.macs);
        let mac = |side: Side| self.macs[side.index()].or(seen[side.index()]);
        let unknown =
            || io::Error::other("an end's address on the link is not known yet: it has sent nothing");
        let ethernet = Ethernet {
            dst: mac(to).ok_or_else(unknown)?,
            src: mac(to.peer()).ok_or_else(unknown)?,
            vlan: None,
        };
        let frame = emit(Some(ethernet), &self.flow(to), Marks::default(), bytes)?;
        (&self.bridge.ports[to.index()]).write_all(&frame)
    }
}

/// The link address of the interface with this number.
pub(in crate::beds) fn mac_of(interface_index: u32) -> Option<Mac> {
    let interfaces = std::fs::read_dir("/sys/class/net").ok()?;
    let is_it = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("ifindex"))
            .is_ok_and(|text| text.trim().parse() == Ok(interface_index))
    };
    let found = interfaces.flatten().find(|entry| is_it(&entry.path()))?;
    let text = std::fs::read_to_string(found.path().join("address")).ok()?;
    let bytes: Option<Vec<u8>> = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes?.try_into().ok()
}
