//! The first look: which two flows are one connection, and what its path MTU is.
//!
//! A packet names the queue pair that it goes to and not the one that it comes from, so the two directions of a
//! connection have nothing in common but that one answers the other. So each answer votes for the flows the other way
//! the way that fits best: one whose requests include one that asked for an acknowledgement and has exactly this PSN
//! counts 4, one whose requests have passed this PSN 1; 2 more when the UDP source port is the one that follows from
//! both queue pair numbers (as many senders choose it). Of those that fit alike the one that asked last gets the vote.
//! The heaviest pairs are joined first. A flow whose second-best partner weighs more than half of the best stays alone.

use std::collections::{BTreeMap, HashMap};

use roce_wire::pcap::Record;
use roce_wire::{OpcodeInfo, Position, Psn, Qpn, source_port};

use crate::analysis::Analysis;
use crate::copies::Copies;
use crate::reading::{Flow, Integrity, Observation, Options, Reading, Service, Sighting};

/// Flows that are told apart; packets of others are counted and not judged.
pub const MAX_FLOWS: usize = 1 << 16;
/// Requests whose answers are recognised by their exact PSN.
const ASKED_MAX: usize = 32;
/// Partners that a flow may have votes for.
const CANDIDATES_MAX: usize = 16;
/// The weight of a request with the PSN of the answer.
const EXACT: u64 = 4;
/// How far behind its newest request an answer may lie, in PSNs.
const BEHIND_MAX: i32 = 1 << 16;

/// What the survey keeps of a flow.
#[derive(Debug)]
struct Course {
    flow: Flow,
    mtu: Option<usize>,
    /// First and newest PSN of its requests.
    requests: Option<(Psn, Psn)>,
    asked: [Option<(Psn, u64)>; ASKED_MAX],
    asked_at: usize,
    source_port: u16,
    /// The frame of its newest request.
    newest_frame: u64,
    /// Flows the other way that are answered here, and the votes for them.
    votes: Vec<(usize, u64)>,
}

/// What the survey has found out of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) partner: Option<Flow>,
    /// Several partners would do.
    pub(crate) is_ambiguous: bool,
    pub(crate) mtu: Option<usize>,
}

/// The first look at a capture. Feed it every record, then go on with [`Survey::analysis`].
#[derive(Debug)]
pub struct Survey {
    reading: Reading,
    copies: Copies,
    has_copies: bool,
    courses: Vec<Course>,
    index: HashMap<Flow, usize>,
    /// The flows between two addresses.
    paths: HashMap<(std::net::IpAddr, std::net::IpAddr, Service), Vec<usize>>,
}

impl Survey {
    /// Of a capture of which this is known.
    pub fn new(options: Options) -> Self {
        Survey {
            reading: Reading::new(options),
            copies: Copies::default(),
            has_copies: false,
            courses: Vec::new(),
            index: HashMap::new(),
            paths: HashMap::new(),
        }
    }

    /// Takes the next record in.
    pub fn record(&mut self, record: &Record<'_>) {
        let Observation::Packet(sighting) = self.reading.observe(record) else {
            return;
        };
        let service = sighting.flow.service;
        let is_connected = service.is_reliable() || service == Service::Uc;
        if !is_connected || sighting.integrity == Integrity::Wrong {
            return;
        }
        if self.copies.is_copy(&sighting) {
            self.has_copies = true;
            return;
        }
        let Some(info) = sighting.headers.bth.opcode.info() else {
            return;
        };
        let at = match self.index.get(&sighting.flow) {
            Some(at) => *at,
            None if self.courses.len() < MAX_FLOWS => {
                open(&mut self.courses, &mut self.index, &mut self.paths, sighting.flow)
            }
            None => return,
        };
        let course = &mut self.courses[at];
        course.source_port = sighting.source_port;
        if matches!(info.position, Position::First | Position::Middle) && course.mtu.is_none() {
            let len = sighting.payload.len();
            course.mtu = is_path_mtu(len).then_some(len);
        }
        if info.is_request() {
            course.ask(&sighting, info);
        } else if info.is_response() {
            let psn = sighting.headers.bth.psn;
            let reverse = (sighting.flow.dst, sighting.flow.src, service);
            self.vote(at, reverse, psn);
        }
    }

    /// The answer with this PSN in flow `at` belongs to one of the flows of `reverse`.
    fn vote(&mut self, at: usize, reverse: (std::net::IpAddr, std::net::IpAddr, Service), psn: Psn) {
        // A partner that was there before is asked first, so that many connections cost no more than few.
        let known = self.courses[at].votes.iter();
        let certain = known
            .map(|(other, _)| (self.weight(at, *other, psn), *other))
            .find(|((weight, _), _)| *weight > EXACT);
        let found = certain.or_else(|| {
            let others = self.paths.get(&reverse).map_or(&[][..], Vec::as_slice);
            others
                .iter()
                .map(|other| (self.weight(at, *other, psn), *other))
                .filter(|((weight, _), _)| *weight > 0)
                .max()
        });
        let Some(((weight, _), other)) = found else { return };
        let votes = &mut self.courses[at].votes;
        let has_room = votes.len() < CANDIDATES_MAX;
        match votes.iter_mut().find(|(known, _)| *known == other) {
            Some((_, sum)) => *sum += weight,
            None if has_room => votes.push((other, weight)),
            None => {}
        }
    }

    /// How well the answer fits that flow, and the frame of what it would be an answer to.
    fn weight(&self, at: usize, other: usize, psn: Psn) -> (u64, u64) {
        let (answers, requests) = (&self.courses[at], &self.courses[other]);
        let Some((first, newest)) = requests.requests else {
            return (0, 0);
        };
        let asked = requests.asked.iter().flatten();
        let exact = asked
            .filter(|(asked, _)| *asked == psn)
            .map(|(_, frame)| *frame)
            .max();
        let is_within = psn.distance_from(first) >= 0
            && psn.distance_from(newest) <= 0
            && newest.distance_from(psn) < BEHIND_MAX;
        let (by_psn, frame) = match exact {
            Some(frame) => (EXACT, frame),
            None if is_within => (1, requests.newest_frame),
            None => return (0, 0),
        };
        let port = follows_from(answers.flow.dest_qp, requests.flow.dest_qp);
        let by_port = if answers.source_port == port { 2 } else { 0 };
        (by_psn + by_port, frame)
    }

    /// The second look, over the same records.
    pub fn analysis(self) -> Analysis {
        let options = self.reading.options().clone();
        Analysis::new(options, self.plans(), self.has_copies)
    }

    fn plans(&self) -> HashMap<Flow, Plan> {
        let mut plans: HashMap<Flow, Plan> = self
            .courses
            .iter()
            .map(|course| {
                let plan = Plan {
                    mtu: course.mtu,
                    ..Plan::default()
                };
                (course.flow, plan)
            })
            .collect();
        let mut edges: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (at, course) in self.courses.iter().enumerate() {
            for (other, weight) in &course.votes {
                *edges.entry((at.min(*other), at.max(*other))).or_default() += weight;
            }
        }
        let mut edges: Vec<((usize, usize), u64)> = edges.into_iter().collect();
        edges.sort_by_key(|(pair, weight)| (std::cmp::Reverse(*weight), *pair));
        let mut partners: Vec<Option<(usize, u64)>> = vec![None; self.courses.len()];
        let mut ambiguous = vec![false; self.courses.len()];
        for ((a, b), weight) in edges {
            match (partners[a], partners[b]) {
                (None, None) => {
                    partners[a] = Some((b, weight));
                    partners[b] = Some((a, weight));
                }
                // Nearly as good as the one that was chosen before.
                (taken_a, taken_b) => {
                    for (taken, flow) in [(taken_a, a), (taken_b, b)] {
                        if let Some((partner, best)) = taken
                            && best < 2 * weight
                        {
                            ambiguous[flow] = true;
                            ambiguous[partner] = true;
                        }
                    }
                }
            }
        }
        for (at, course) in self.courses.iter().enumerate() {
            let Some(plan) = plans.get_mut(&course.flow) else {
                continue;
            };
            plan.is_ambiguous = ambiguous[at];
            if let (Some((partner, _)), false) = (partners[at], ambiguous[at]) {
                plan.partner = Some(self.courses[partner].flow);
                plan.mtu = plan.mtu.or(self.courses[partner].mtu);
            }
        }
        plans
    }
}

fn open(
    courses: &mut Vec<Course>,
    index: &mut HashMap<Flow, usize>,
    paths: &mut HashMap<(std::net::IpAddr, std::net::IpAddr, Service), Vec<usize>>,
    flow: Flow,
) -> usize {
    let at = courses.len();
    courses.push(Course {
        flow,
        mtu: None,
        requests: None,
        asked: [None; ASKED_MAX],
        asked_at: 0,
        source_port: 0,
        newest_frame: 0,
        votes: Vec::new(),
    });
    index.insert(flow, at);
    paths
        .entry((flow.src, flow.dst, flow.service))
        .or_default()
        .push(at);
    at
}

impl Course {
    fn ask(&mut self, sighting: &Sighting<'_>, info: &OpcodeInfo) {
        let bth = sighting.headers.bth;
        self.newest_frame = sighting.number;
        let (first, newest) = self.requests.unwrap_or((bth.psn, bth.psn));
        // A READ takes as many PSNs as its answer has packets.
        let mut last = bth.psn;
        if info.operation == roce_wire::Operation::ReadRequest
            && let Some(reth) = sighting.headers.reth
        {
            last += packets(reth.dma_length, self.mtu.unwrap_or(256)) - 1;
        }
        let jump = last.distance_from(newest);
        self.requests = if jump.unsigned_abs() > BEHIND_MAX.unsigned_abs() && last == bth.psn {
            // The queue pair has begun a new life.
            Some((bth.psn, bth.psn))
        } else {
            Some((first, if jump > 0 { last } else { newest }))
        };
        if bth.ack_request || info.position.ends_message() {
            self.asked[self.asked_at % ASKED_MAX] = Some((bth.psn, sighting.number));
            self.asked_at += 1;
        }
    }
}

/// How many packets a message of `len` bytes takes.
pub(crate) fn packets(len: u32, mtu: usize) -> u32 {
    len.div_ceil(mtu.max(1) as u32).max(1)
}

/// Whether there is such a path MTU.
pub(crate) fn is_path_mtu(len: usize) -> bool {
    matches!(len, 256 | 512 | 1024 | 2048 | 4096)
}

fn follows_from(a: Qpn, b: Qpn) -> u16 {
    source_port::from_flow_label(source_port::flow_label(a, b))
}
