//! A connection: two halves, and what is counted in each.

use serde::Serialize;

use crate::finding::{Findings, Scope};
use crate::half::{Half, Sink};
use crate::histogram::Histogram;
use crate::reading::{Flow, Integrity, Seat, Service, Sighting};
use crate::report::{CmMessage, ConnectionReport, DirectionReport, End, Verdict};
use crate::survey::Plan;

/// Messages of communication management that are named, at most.
const MESSAGES_MAX: usize = 32;

/// What is counted of the requests of one end, and the answers to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Request packets.
    pub requests: u64,
    /// Packets of answers.
    pub answers: u64,
    /// Messages whose last packet was seen, each once.
    pub messages: u64,
    /// Payload of requests, each once.
    pub payload_bytes: u64,
    /// Request packets under a PSN that was seen before.
    pub repeats: u64,
    /// How often the requester went back to an earlier PSN.
    pub steps_back: u64,
    /// How often it went on with new requests though not all after the step back was sent again.
    pub probes: u64,
    /// PSNs of requests that were not there when later ones were (lost before the place of capture, or reordered).
    pub missing_requests: u64,
    /// Gaps in answers.
    pub missing_answers: u64,
    /// Plain acknowledgements.
    pub acks: u64,
    /// Those that came behind a later one.
    pub acks_out_of_order: u64,
    /// READ responses and answers to atomics.
    pub responses: u64,
    /// Sequence NAKs.
    pub sequence_naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// NAKs that end the connection.
    pub fatal_naks: u64,
    /// Packets with a wrong ICRC.
    pub wrong_icrc: u64,
    /// Packets that the capture says were lost.
    pub marked_lost: u64,
    /// Requests that a router marked as having met congestion.
    pub congestion_marks: u64,
    /// Congestion notifications to the requester.
    pub notifications: u64,
    /// From a request to its answer.
    pub answers_after: Histogram,
    /// From the last transmission to the next one, where no NAK asked for it.
    pub retransmissions: Histogram,
    /// From the packet behind a gap to the sequence NAK.
    pub nak_generation: Histogram,
    /// From a sequence NAK to the packet that it asks for.
    pub nak_reactions: Histogram,
    /// From an RNR NAK to the next try.
    pub rnr_waits: Histogram,
    /// From one congestion notification to the next.
    pub notification_gaps: Histogram,
}

/// One connection, or a flow without one.
#[derive(Debug)]
pub(crate) struct Connection {
    service: Service,
    /// The flow whose requests are those of half 0.
    forth: Flow,
    back: Option<Flow>,
    is_ambiguous: bool,
    mtu: Option<usize>,
    halves: [Half; 2],
    counts: [Counts; 2],
    findings: Findings,
    last_notification_ns: [Option<u64>; 2],
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    cut: u64,
    messages: Vec<CmMessage>,
}

impl Connection {
    pub(crate) fn new(flow: Flow, plan: Plan, crowd: bool, has_copies: bool) -> Self {
        let to = End::of(flow.dst, Some(flow.dest_qp));
        let from = End::of(flow.src, plan.partner.map(|back| back.dest_qp));
        let half = |requester, responder| {
            let mut half = Half::new(flow.service, requester, responder, plan.mtu, crowd);
            half.sees_arrivals = has_copies;
            half
        };
        Connection {
            service: flow.service,
            forth: flow,
            back: plan.partner,
            is_ambiguous: plan.is_ambiguous,
            mtu: plan.mtu,
            halves: [half(from, to), half(to, from)],
            counts: [Counts::default(), Counts::default()],
            findings: Findings::default(),
            last_notification_ns: [None; 2],
            first_ns: None,
            last_ns: None,
            cut: 0,
            messages: Vec::new(),
        }
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = Flow> {
        std::iter::once(self.forth).chain(self.back)
    }

    /// Takes a packet of one of its flows in.
    pub(crate) fn packet(&mut self, sighting: &Sighting<'_>) {
        self.first_ns = self.first_ns.or(sighting.time_ns);
        self.last_ns = sighting.time_ns.or(self.last_ns);
        if self.messages.len() < MESSAGES_MAX
            && let Some(message) = roce_wire::cm::carried(&sighting.headers, sighting.payload)
        {
            self.messages.push(CmMessage {
                frame: sighting.number,
                message: message.to_string(),
            });
        }
        let (at, is_answer) = self.part(sighting);
        let counts = &mut self.counts[at];
        if is_answer {
            counts.answers += 1;
        } else {
            counts.requests += 1;
            counts.congestion_marks += u64::from(sighting.is_marked);
        }
        counts.wrong_icrc += u64::from(sighting.integrity == Integrity::Wrong);
        counts.marked_lost += u64::from(sighting.is_lost);
        self.cut += u64::from(sighting.integrity == Integrity::Unknown);
        let mut sink = Sink {
            findings: &mut self.findings,
            counts,
        };
        if is_answer {
            self.halves[at].answer(sighting, &mut sink);
        } else {
            self.halves[at].request(sighting, &mut sink);
        }
    }

    /// The half that a packet belongs to, and whether it is an answer there.
    fn part(&self, sighting: &Sighting<'_>) -> (usize, bool) {
        let info = sighting.headers.bth.opcode.info();
        let is_answer = info.is_some_and(roce_wire::OpcodeInfo::is_response);
        // Requests that go forth and answers that come back are half 0. Where both flows are one, a packet goes by
        // what it is alone.
        let is_self = self.back == Some(self.forth);
        let is_forth = sighting.flow == self.forth;
        (usize::from(!is_self && is_forth == is_answer), is_answer)
    }

    /// A packet that was seen as sent has arrived.
    pub(crate) fn arrival(&mut self, sighting: &Sighting<'_>) {
        if let (at, true) = self.part(sighting) {
            self.halves[at].arrival(sighting);
        }
    }

    /// A congestion notification to the requester of one of its halves.
    pub(crate) fn notification(&mut self, sighting: &Sighting<'_>) {
        // It goes where answers to the requester go.
        let is_forth = (sighting.flow.src, sighting.flow.dest_qp) == (self.forth.src, self.forth.dest_qp);
        let at = usize::from(is_forth);
        let counts = &mut self.counts[at];
        // What was captured at its sender alone may have been marked behind that.
        let shows_marks = !self.halves[at].requests_at_sender && sighting.seat == Seat::Sender;
        if counts.notifications == 0 && counts.congestion_marks == 0 && shows_marks {
            let by = End::of(sighting.flow.src, None);
            let expected = "a congestion notification only after a packet that has met congestion";
            let seen = "one without any".to_owned();
            self.findings
                .add(("ECN-1", Scope::Sequence), by, &[sighting.number], expected, seen);
        }
        counts.notifications += 1;
        if let (Some(last), Some(now)) = (self.last_notification_ns[at], sighting.time_ns)
            && let Some(gap) = now.checked_sub(last)
        {
            counts.notification_gaps.add(gap);
        }
        self.last_notification_ns[at] = sighting.time_ns;
    }

    /// Its part of the report. `lacks` is what the whole capture lacks.
    pub(crate) fn finish(self, number: usize, lacks: &[String]) -> ConnectionReport {
        let mut reasons = lacks.to_vec();
        if self.service.is_reliable() {
            self.pairing_lacks(&mut reasons);
        }
        for half in &self.halves {
            reasons.extend(half.lacks.iter().cloned());
        }
        let (kept, withheld): (Vec<_>, Vec<_>) = self
            .findings
            .into_inner()
            .into_iter()
            .partition(|finding| reasons.is_empty() || finding.scope == Scope::Packet);
        let verdict = match (kept.is_empty(), reasons.is_empty()) {
            (false, _) => Verdict::Deviates,
            (true, true) => Verdict::Conforms,
            (true, false) => Verdict::None,
        };
        let [a, b] = self.counts;
        let from = End::of(self.forth.src, self.back.map(|back| back.dest_qp));
        let to = End::of(self.forth.dst, Some(self.forth.dest_qp));
        let direction = |from, to, counts| DirectionReport { from, to, counts };
        ConnectionReport {
            number,
            service: self.service,
            path_mtu: self.mtu,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            verdict,
            incomplete: reasons,
            withheld: withheld.len(),
            findings: kept,
            icrc_unknown: self.cut,
            messages: self.messages,
            directions: [direction(from, to, a), direction(to, from, b)],
        }
    }

    fn pairing_lacks(&self, reasons: &mut Vec<String>) {
        if self.back.is_none() {
            let [forth, back] = &self.halves;
            if self.is_ambiguous {
                reasons.push("several flows could be its other direction".to_owned());
            } else if forth.is_unanswered() {
                reasons.push(
                    "requests ask for answers, of which there are none (one direction only)".to_owned(),
                );
            } else if back.is_unasked() {
                reasons.push("answers to requests that are not there (one direction only)".to_owned());
            }
        }
    }
}
