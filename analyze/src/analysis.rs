//! The second look: judges every packet.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use roce_wire::Qpn;
use roce_wire::pcap::{Direction, Record};

use crate::connection::Connection;
use crate::copies::Copies;
use crate::finding::{Finding, Scope};
use crate::reading::{Flow, Integrity, Observation, Options, Reading, Service, Sighting};
use crate::report::{End, Ending, Report, SenderReport};
use crate::survey::Plan;

/// Connections that are judged; packets of others are counted.
pub const MAX_CONNECTIONS: usize = 8192;
/// From here on each connection gets less memory.
const CROWD: usize = 256;
/// Addresses that are told apart.
const SENDERS_MAX: usize = 4096;
/// Fewer packets with a wrong ICRC may have been spoilt on their way, all of them.
const SPOILT_BY_CHANCE: u64 = 4;

#[derive(Debug, Default)]
struct Sender {
    packets: u64,
    migrated: u64,
    wrong_icrc: u64,
    first_frame: u64,
}

/// Judges the packets of a capture. Made by [`crate::Survey::analysis`]; feed it the same records again.
#[derive(Debug)]
pub struct Analysis {
    plans: HashMap<Flow, Plan>,
    /// Both ends were captured.
    has_copies: bool,
    reading: Reading,
    copies: Copies,
    connections: Vec<Connection>,
    index: HashMap<Flow, usize>,
    senders: BTreeMap<IpAddr, Sender>,
    totals: Report,
}

impl Analysis {
    pub(crate) fn new(options: Options, plans: HashMap<Flow, Plan>, has_copies: bool) -> Self {
        Analysis {
            plans,
            has_copies,
            reading: Reading::new(options),
            copies: Copies::default(),
            connections: Vec::new(),
            index: HashMap::new(),
            senders: BTreeMap::new(),
            totals: Report::default(),
        }
    }

    /// Takes the next record in.
    pub fn record(&mut self, record: &Record<'_>) {
        // Out, so that the packet may borrow it while the rest is changed.
        let mut reading = std::mem::take(&mut self.reading);
        match reading.observe(record) {
            Observation::Packet(sighting) => self.packet(&sighting),
            Observation::Malformed => self.totals.malformed += 1,
            Observation::Cut => self.totals.cut_headers += 1,
            Observation::Joined => self.totals.joined += 1,
            Observation::Other => self.totals.other += 1,
        }
        self.reading = reading;
    }

    fn packet(&mut self, sighting: &Sighting<'_>) {
        self.totals.roce += 1;
        self.totals.first_ns = self.totals.first_ns.or(sighting.time_ns);
        self.totals.last_ns = sighting.time_ns.or(self.totals.last_ns);
        if self.copies.is_copy(sighting) {
            self.totals.copies += 1;
            if let (Some(Direction::Inbound), Some(at)) = (sighting.direction, self.index.get(&sighting.flow))
            {
                self.connections[*at].arrival(sighting);
            }
            return;
        }
        self.totals.wrong_icrc += u64::from(sighting.integrity == Integrity::Wrong);
        self.note_sender(sighting);
        if sighting.flow.service == Service::Cnp {
            self.notification(sighting);
            return;
        }
        let at = match self.index.get(&sighting.flow) {
            Some(at) => *at,
            None => match self.open(sighting.flow) {
                Some(at) => at,
                None => {
                    self.totals.not_judged += 1;
                    return;
                }
            },
        };
        self.connections[at].packet(sighting);
    }

    fn open(&mut self, flow: Flow) -> Option<usize> {
        let at = self.connections.len();
        if at == MAX_CONNECTIONS {
            return None;
        }
        let plan = self.plans.get(&flow).copied().unwrap_or_default();
        let connection = Connection::new(flow, plan, self.plans.len() > CROWD, self.has_copies);
        for flow in connection.flows() {
            self.index.insert(flow, at);
        }
        self.connections.push(connection);
        Some(at)
    }

    fn note_sender(&mut self, sighting: &Sighting<'_>) {
        let src = sighting.flow.src;
        if sighting.flow.service == Service::Cnp
            || (self.senders.len() == SENDERS_MAX && !self.senders.contains_key(&src))
        {
            return;
        }
        let sender = self.senders.entry(src).or_default();
        if sender.packets == 0 {
            sender.first_frame = sighting.number;
        }
        sender.packets += 1;
        sender.migrated += u64::from(sighting.headers.bth.migrated);
        sender.wrong_icrc += u64::from(sighting.integrity == Integrity::Wrong);
    }

    fn notification(&mut self, sighting: &Sighting<'_>) {
        self.totals.notifications += 1;
        let services = [Service::Rc, Service::Xrc, Service::Uc, Service::Ud];
        let flow = |service| Flow {
            service,
            ..sighting.flow
        };
        if let Some(at) = services
            .iter()
            .find_map(|service| self.index.get(&flow(*service)))
        {
            self.connections[*at].notification(sighting);
        }
    }

    /// The report. `ending` is how reading the capture ended.
    pub fn finish(self, ending: Ending) -> Report {
        let mut lacks = Vec::new();
        if ending.dropped > 0 {
            lacks.push(format!(
                "the capture says that it has lost {} packets",
                ending.dropped
            ));
        }
        if self.totals.cut_headers > 0 {
            lacks.push(format!(
                "{} packets are cut within their headers (snap length)",
                self.totals.cut_headers
            ));
        }
        if self.totals.joined > 0 {
            lacks.push(format!(
                "{} datagrams hold several packets, joined by the interface (segmentation offload)",
                self.totals.joined
            ));
        }
        let connections = self.connections.into_iter().enumerate();
        let senders = self.senders.into_iter();
        Report {
            frames: self.reading.count(),
            dropped: ending.dropped,
            damage: ending.damage,
            senders: senders
                .map(|(address, sender)| judge_sender(address, &sender))
                .collect(),
            connections: connections
                .map(|(at, connection)| connection.finish(at + 1, &lacks))
                .collect(),
            ..self.totals
        }
    }
}

fn judge_sender(address: IpAddr, sender: &Sender) -> SenderReport {
    let by = End::of(address, None::<Qpn>);
    let mut findings = Vec::new();
    let mut add = |requirement, expected: &str, seen: String| {
        findings.push(Finding {
            requirement,
            by,
            frames: vec![sender.first_frame],
            expected: expected.to_owned(),
            seen,
            count: sender.packets,
            scope: Scope::Packet,
        });
    };
    if sender.wrong_icrc == sender.packets && sender.packets >= SPOILT_BY_CHANCE {
        let seen = format!("a wrong one in each of its {} packets", sender.packets);
        add("ICRC-1", "a right ICRC", seen);
    }
    if sender.migrated == 0 && sender.packets > 0 {
        let seen = format!("it is not set in any of its {} packets", sender.packets);
        add(
            "WIRE-5",
            "the migrated bit while no path migration is armed",
            seen,
        );
    }
    SenderReport {
        address,
        packets: sender.packets,
        findings,
    }
}
