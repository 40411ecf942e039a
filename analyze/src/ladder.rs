//! Packet ladders: two lifelines, an arrow a packet.
//!
//! Feed a [`Builder`] the records of a capture; it gives a [`Ladder`] for each pair of addresses. A ladder prints as
//! text, or as SVG for a page ([`page`]).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use roce_wire::pcap::Record;
use roce_wire::{Psn, Syndrome};

use crate::copies::Copies;
use crate::reading::{Flow, Integrity, Observation, Options, Reading, Service, Sighting};
use crate::report::Report;

mod html;
mod svg;
mod text;

pub use html::{STYLE, escaped, page};

/// The most packets of all ladders together; the rest is counted.
pub const MAX_RUNGS: usize = 4000;
/// Pairs of addresses that get a ladder.
const LADDERS_MAX: usize = 64;
/// Packets whose repetitions are counted.
const KNOWN_MAX: usize = 1 << 16;
/// A comment is cut there.
const COMMENT_CHARS_MAX: usize = 200;

/// What an arrow stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A request.
    Request,
    /// A READ response or the answer to an atomic.
    Response,
    /// A positive acknowledgement.
    Ack,
    /// A NAK of any kind.
    Nak,
    /// A congestion notification.
    Notification,
}

/// How far an arrow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing is said against its arrival.
    Arrives,
    /// The capture says that it was lost.
    Lost,
    /// Its ICRC is wrong: the receiver drops it.
    Spoilt,
}

/// Where an arrow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// At the left lifeline.
    Left,
    /// At the right one.
    Right,
}

/// A packet in a ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The number of its frame.
    pub number: u64,
    /// Nanoseconds since the first packet of the ladders.
    pub time_ns: Option<u64>,
    /// Who sends it.
    pub from: Side,
    /// What it is.
    pub tone: Tone,
    /// How far it goes.
    pub reach: Reach,
    /// How often this PSN was sent to this queue pair by now, 1 for the first time.
    pub transmission: u32,
    /// Opcode, PSN and the rest, in one line.
    pub label: String,
    /// The capture's comment.
    pub comment: Option<String>,
    /// The requirements that the packet does not meet.
    pub deviations: Vec<String>,
}

/// The packets between two addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// The address of the left lifeline.
    pub left: IpAddr,
    /// That of the right one.
    pub right: IpAddr,
    /// The packets.
    pub rungs: Vec<Rung>,
}

/// All ladders of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladders {
    /// In the order of their first packets.
    pub ladders: Vec<Ladder>,
    /// Packets that are not drawn, since there were too many.
    pub omitted: u64,
}

/// Draws the frames of a capture.
#[derive(Debug)]
pub struct Builder {
    reading: Reading,
    copies: Copies,
    frames: std::ops::RangeInclusive<u64>,
    deviations: HashMap<u64, Vec<String>>,
    known: HashMap<(Flow, Psn, bool), u32>,
    order: VecDeque<(Flow, Psn, bool)>,
    start_ns: Option<u64>,
    rungs: usize,
    ladders: Ladders,
}

impl Builder {
    /// For these frames, counted from 1.
    pub fn new(options: Options, frames: std::ops::RangeInclusive<u64>) -> Self {
        Builder {
            reading: Reading::new(options),
            copies: Copies::default(),
            frames,
            deviations: HashMap::new(),
            known: HashMap::new(),
            order: VecDeque::new(),
            start_ns: None,
            rungs: 0,
            ladders: Ladders::default(),
        }
    }

    /// Marks the frames that a report on the same capture has findings on.
    #[must_use]
    pub fn marking(mut self, report: &Report) -> Self {
        let of_connections = report
            .connections
            .iter()
            .flat_map(|connection| &connection.findings);
        for finding in of_connections {
            if let Some(frame) = finding.frames.last() {
                let text = format!("{}: expected {}", finding.requirement, finding.expected);
                self.deviations.entry(*frame).or_default().push(text);
            }
        }
        self
    }

    /// Takes the next record in.
    pub fn record(&mut self, record: &Record<'_>) {
        let mut reading = std::mem::take(&mut self.reading);
        if let Observation::Packet(sighting) = reading.observe(record)
            && !self.copies.is_copy(&sighting)
        {
            self.packet(&sighting);
        }
        self.reading = reading;
    }

    fn packet(&mut self, sighting: &Sighting<'_>) {
        let transmission = self.transmission(sighting);
        if !self.frames.contains(&sighting.number) {
            return;
        }
        if self.rungs == MAX_RUNGS {
            self.ladders.omitted += 1;
            return;
        }
        let (src, dst) = (sighting.flow.src, sighting.flow.dst);
        let ladders = &mut self.ladders.ladders;
        let is_between = |ladder: &Ladder| {
            (ladder.left, ladder.right) == (src, dst) || (ladder.left, ladder.right) == (dst, src)
        };
        let at = match ladders.iter().position(is_between) {
            Some(at) => at,
            None if ladders.len() < LADDERS_MAX => {
                ladders.push(Ladder {
                    left: src,
                    right: dst,
                    rungs: Vec::new(),
                });
                ladders.len() - 1
            }
            None => {
                self.ladders.omitted += 1;
                return;
            }
        };
        self.rungs += 1;
        self.start_ns = self.start_ns.or(sighting.time_ns);
        let ladder = &mut ladders[at];
        // Between queue pairs of one address requests go right and answers left.
        let is_answer = sighting
            .headers
            .bth
            .opcode
            .info()
            .is_some_and(|info| info.is_response());
        let goes_right = if src == dst {
            !is_answer
        } else {
            src == ladder.left
        };
        let time_ns = sighting.time_ns.zip(self.start_ns);
        ladder.rungs.push(Rung {
            number: sighting.number,
            time_ns: time_ns.map(|(time, start)| time.saturating_sub(start)),
            from: if goes_right { Side::Left } else { Side::Right },
            tone: tone(sighting),
            reach: match sighting.integrity {
                _ if sighting.is_lost => Reach::Lost,
                Integrity::Wrong => Reach::Spoilt,
                Integrity::Right | Integrity::Unknown => Reach::Arrives,
            },
            transmission,
            label: label(sighting),
            comment: sighting
                .comment
                .map(|comment| comment.chars().take(COMMENT_CHARS_MAX).collect()),
            deviations: self.deviations.remove(&sighting.number).unwrap_or_default(),
        });
    }

    /// How often this packet has been sent by now. Only of connections; the PSNs of datagrams mean nothing.
    fn transmission(&mut self, sighting: &Sighting<'_>) -> u32 {
        let is_connected = sighting.flow.service.is_reliable() || sighting.flow.service == Service::Uc;
        let bth = sighting.headers.bth;
        let Some(info) = bth.opcode.info().filter(|_| is_connected) else {
            return 1;
        };
        // An acknowledgement that repeats a PSN is none of something that was lost.
        if info.operation == roce_wire::Operation::Acknowledge {
            return 1;
        }
        let key = (sighting.flow, bth.psn, info.is_response());
        if let Some(known) = self.known.get_mut(&key) {
            *known = known.saturating_add(1);
            return *known;
        }
        if self.order.len() == KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(key);
        self.known.insert(key, 1);
        1
    }

    /// The ladders.
    pub fn finish(self) -> Ladders {
        self.ladders
    }
}

fn tone(sighting: &Sighting<'_>) -> Tone {
    let aeth = sighting.headers.aeth.map(|aeth| aeth.syndrome);
    match (sighting.headers.bth.opcode.info(), aeth) {
        (_, Some(Syndrome::Nak(_) | Syndrome::RnrNak(_) | Syndrome::Reserved(_))) => Tone::Nak,
        (Some(info), Some(Syndrome::Ack(_))) if info.operation == roce_wire::Operation::Acknowledge => {
            Tone::Ack
        }
        (Some(info), _) if info.is_response() => Tone::Response,
        _ if sighting.flow.service == Service::Cnp => Tone::Notification,
        _ => Tone::Request,
    }
}

fn label(sighting: &Sighting<'_>) -> String {
    use std::fmt::Write as _;
    let headers = &sighting.headers;
    let bth = headers.bth;
    let mut label = format!("{} psn {} qp {}", bth.opcode, bth.psn, bth.dest_qp);
    // Writing to a string does not fail.
    if let Some(aeth) = headers.aeth {
        let _ = write!(label, " {} msn {}", aeth.syndrome, aeth.msn.value());
    }
    if let Some(reth) = headers.reth {
        let _ = write!(label, " dma {}", reth.dma_length);
    }
    if let Some(ack) = headers.atomic_ack {
        let _ = write!(label, " original {:#x}", ack.original);
    }
    if let Some(message) = roce_wire::cm::carried(headers, sighting.payload) {
        let _ = write!(label, " {message}");
    } else if !sighting.payload.is_empty() {
        let _ = write!(label, " len {}", sighting.payload.len());
    }
    for (is_set, name) in [
        (bth.ack_request, " ack-req"),
        (bth.solicited, " solicited"),
        (headers.immediate.is_some(), " imm"),
        (sighting.is_marked, " congested"),
    ] {
        if is_set {
            label.push_str(name);
        }
    }
    label
}

impl Rung {
    /// What is to be said beside the arrow.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.transmission > 1 {
            remarks.push(format!("sent again ({})", self.transmission));
        }
        match self.reach {
            Reach::Arrives => {}
            Reach::Lost => remarks.push("lost".to_owned()),
            Reach::Spoilt => remarks.push("wrong ICRC".to_owned()),
        }
        remarks.extend(
            self.comment
                .clone()
                .filter(|comment| !comment.starts_with("lost")),
        );
        remarks.extend(self.deviations.iter().cloned());
        remarks
    }

    fn time(&self) -> String {
        self.time_ns.map(crate::half::micros).unwrap_or_default()
    }
}
