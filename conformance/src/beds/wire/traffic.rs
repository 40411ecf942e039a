//! What crosses a real wire: what becomes of it, and the memory of it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roce_wire::Headers;
use roce_wire::frame::Frame;
use roce_wire::icrc::Flow;
use roce_wire::ip::{Ip, IpFields};
use roce_wire::pcap::{LinkType, NgWriter};
use roce_wire::udp::Udp;
use softroce_sim::Random;

use crate::raw::PLAYED_QPN;
use crate::testbed::{Fate, Passing, Rule, Side};

/// Bytes of packets kept for the case, and for a capture; older ones go.
const KEPT_BYTES: usize = 64 << 20;
/// Transmissions are counted for so many different PSNs; then counting starts anew.
const COUNTED_PSNS: usize = 1 << 20;
/// How long a packet is held back at most that the weather takes out of the order.
const HOLD: Duration = Duration::from_micros(300);

/// Random faults, per mille of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) loss: u32,
    pub(super) duplication: u32,
    pub(super) reordering: u32,
}

/// What a packet's IP header says that a capture must keep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// TOS or traffic class.
    pub(super) class: u8,
    /// The IPv4 identification, which the ICRC covers.
    pub(super) identification: u16,
}

/// What became of a packet, for a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Passed,
    Lost,
    Forged,
    /// Forged, but the system did not take it.
    Refused,
}

impl Moved {
    fn comment(self) -> Option<&'static str> {
        match self {
            Moved::Passed => None,
            Moved::Lost => Some("lost on the way"),
            Moved::Forged => Some("forged"),
            Moved::Refused => Some("forged, but the system did not send it"),
        }
    }
}

struct Kept {
    at: Duration,
    flow: Flow,
    marks: Marks,
    bytes: Arc<[u8]>,
    moved: Moved,
}

/// A PSN in one direction: from, queue pair, PSN, whether a response.
type PsnKey = (Side, u32, u32, bool);

/// A wire's packets.
pub(in crate::beds) struct Traffic {
    start: Instant,
    state: Mutex<State>,
}

struct State {
    rule: Option<Rule>,
    weather: Weather,
    random: Random,
    transmissions: HashMap<PsnKey, u32>,
    trace: VecDeque<Passing>,
    trace_bytes: usize,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
}

impl Traffic {
    /// Nothing has passed; times count from `start`.
    pub(in crate::beds) fn new(start: Instant, seed: u64) -> Arc<Self> {
        Arc::new(Traffic {
            start,
            state: Mutex::new(State {
                rule: None,
                weather: Weather::default(),
                random: Random::new(seed),
                transmissions: HashMap::new(),
                trace: VecDeque::new(),
                trace_bytes: 0,
                kept: VecDeque::new(),
                kept_bytes: 0,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A rule of a case that panicked harms nothing here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_rule(&self, rule: Option<Rule>) {
        self.state().rule = rule;
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    pub(super) fn take_trace(&self) -> Vec<Passing> {
        let mut state = self.state();
        state.trace_bytes = 0;
        state.trace.drain(..).collect()
    }

    /// An end has sent a packet (BTH to ICRC): what becomes of it.
    pub(super) fn judge(&self, from: Side, flow: &Flow, marks: Marks, bytes: &[u8]) -> Fate {
        let at = self.start.elapsed();
        let mut state = self.state();
        let fate = match roce_wire::parse(bytes) {
            Ok(packet) => {
                let passing = Passing {
                    at,
                    from,
                    headers: packet.headers,
                    payload: packet.payload.to_vec(),
                    transmission: state.count_transmission(from, &packet.headers),
                    bytes: bytes.to_vec(),
                };
                let fate = state.fate(&passing);
                state.remember(passing);
                fate
            }
            Err(_) => Fate::Deliver,
        };
        let moved = match fate {
            Fate::Drop => Moved::Lost,
            Fate::Deliver | Fate::Duplicate | Fate::Delay(_) | Fate::Corrupt { .. } => Moved::Passed,
        };
        state.keep(at, flow, marks, bytes, moved);
        fate
    }

    /// For the capture alone.
    pub(super) fn keep_forged(&self, flow: &Flow, bytes: &[u8], moved: Moved) {
        self.state()
            .keep(self.start.elapsed(), flow, Marks::default(), bytes, moved);
    }

    /// Write the packets kept as pcapng.
    pub(in crate::beds) fn save(&self, path: &Path) -> io::Result<()> {
        let output = io::BufWriter::new(std::fs::File::create(path)?);
        let mut writer = NgWriter::new(output, LinkType::RawIp)?;
        for kept in &self.state().kept {
            let frame = emit(None, &kept.flow, kept.marks, &kept.bytes)?;
            writer.write(kept.at.as_nanos() as u64, &frame, kept.moved.comment())?;
        }
        writer.flush()
    }
}

impl State {
    fn fate(&mut self, passing: &Passing) -> Fate {
        let Weather {
            loss,
            duplication,
            reordering,
        } = self.weather;
        let random = &mut self.random;
        // All draws are made for every packet, so that a change of one probability leaves the others' draws alone.
        let [lost, doubled, held] = [loss, duplication, reordering].map(|chance| random.chance(chance));
        let hold = HOLD.mul_f64(random.fraction());
        let ruled = self.rule.as_mut().map_or(Fate::Deliver, |rule| rule(passing));
        match ruled {
            // The played end is the case: no device may answer in its place.
            _ if passing.headers.bth.dest_qp.value() == PLAYED_QPN => Fate::Drop,
            Fate::Deliver if lost => Fate::Drop,
            Fate::Deliver if held => Fate::Delay(hold),
            Fate::Deliver if doubled => Fate::Duplicate,
            ruled => ruled,
        }
    }

    fn count_transmission(&mut self, from: Side, headers: &Headers) -> u32 {
        if self.transmissions.len() >= COUNTED_PSNS {
            self.transmissions.clear();
        }
        let bth = &headers.bth;
        let is_response = bth.opcode.info().is_some_and(|info| info.is_response());
        let key = (from, bth.dest_qp.value(), bth.psn.value(), is_response);
        let count = self.transmissions.entry(key).or_insert(0);
        *count += 1;
        *count
    }

    fn remember(&mut self, passing: Passing) {
        self.trace_bytes += passing.bytes.len();
        self.trace.push_back(passing);
        while self.trace_bytes > KEPT_BYTES {
            let Some(oldest) = self.trace.pop_front() else {
                break;
            };
            self.trace_bytes -= oldest.bytes.len();
        }
    }

    fn keep(&mut self, at: Duration, flow: &Flow, marks: Marks, bytes: &[u8], moved: Moved) {
        self.kept_bytes += bytes.len();
        self.kept.push_back(Kept {
            at,
            flow: *flow,
            marks,
            bytes: bytes.into(),
            moved,
        });
        while self.kept_bytes > KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.kept_bytes -= oldest.bytes.len();
        }
    }
}

/// The same bytes with one bit flipped, counted modulo their length.
pub(super) fn flipped(bytes: &[u8], bit: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let bit = bit as usize % (8 * bytes.len().max(1));
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 0x80 >> (bit % 8);
    }
    bytes
}

/// An IP packet around a UDP payload, with an Ethernet header or without.
pub(super) fn emit(
    ethernet: Option<roce_wire::ethernet::Ethernet>,
    flow: &Flow,
    marks: Marks,
    payload: &[u8],
) -> io::Result<Vec<u8>> {
    let parts = Frame {
        ethernet,
        ip: Ip::between(
            flow.src,
            flow.dst,
            IpFields {
                traffic_class: marks.class,
                hop_limit: 64,
                identification: marks.identification,
            },
        ),
        udp: Udp {
            source_port: flow.source_port,
            dest_port: flow.dest_port,
            checksum: 0,
        },
        payload,
        trailer: &[],
    };
    let mut frame = vec![0; parts.len()];
    parts.emit(&mut frame).map_err(io::Error::other)?;
    Ok(frame)
}
