//! Half of a connection: the requests of one queue pair, and the answers of its peer.
//!
//! The requests that were seen stand in a row by PSN, with holes for PSNs that were not. Each is there once, however
//! often it was sent. The row is bounded: what was answered long ago leaves it, and what is asked about it then gets
//! no judgement.

use std::collections::VecDeque;

use roce_wire::{Msn, Opcode, Operation, Position, Psn, RKey};

use crate::connection::Counts;
use crate::finding::{Findings, Scope};
use crate::reading::{Integrity, Seat, Service, Sighting};
use crate::report::End;

mod answers;
mod packets;
mod reads;
mod requests;
mod waits;

use reads::Asked;
pub(crate) use waits::micros;
use waits::{NotReady, SequenceNak};

/// Requests in the row; half of it where many connections share the memory.
const ROW_MAX: usize = 8192;
/// READ requests, and repeated ones, whose answers are told apart.
const ASKED_MAX: usize = 512;
/// Packets with a wrong ICRC whose PSNs are remembered.
const SPOILT_MAX: usize = 32;
/// So long a rest is enough to set a connection up anew.
const REST_NS: u64 = 1_000_000;
/// A request that is so far from the row begins a new life of its queue pair.
const NEW_LIFE: i32 = 1 << 16;

/// PSNs in the row: a request, or a hole.
#[derive(Clone, Debug)]
struct Entry {
    psn: Psn,
    /// PSNs that it takes.
    count: u32,
    /// `None` for a hole.
    request: Option<Request>,
}

/// A request packet.
#[derive(Clone, Debug)]
struct Request {
    opcode: Opcode,
    operation: Operation,
    position: Position,
    needs_receive: bool,
    asks: bool,
    payload_len: usize,
    va: u64,
    rkey: RKey,
    dma_length: u32,
    fingerprint: u64,
    /// The frame of its first transmission.
    frame: u64,
    /// When it was sent last.
    last_ns: Option<u64>,
    /// For an atomic its answer and the frame of that; for others 0 and the frame.
    answer: Option<(u64, u64)>,
}

/// The answers so far.
#[derive(Debug, Default)]
struct Answered {
    /// The first PSN that the responder is not known to have carried out.
    accepted: Option<Psn>,
    /// Messages that it has completed by then.
    done: i64,
    /// What the MSN was before the first message of the capture: from, to, relative to `base`.
    base: Option<(Msn, i64, i64)>,
    /// The newest plain acknowledgement, with the frame of it.
    last_ack: Option<(Psn, Msn, u64)>,
    /// The first PSN that the requester is not known to know as acknowledged, with frame and time.
    known: Option<(Psn, u64, u64)>,
    /// A NAK that ends the connection, with its PSN.
    fatal: Option<(u64, Psn)>,
    sequence_nak: Option<SequenceNak>,
    not_ready: Option<NotReady>,
    /// The requester has gone back to its very first PSN though that was answered, or goes on after a rest with nothing
    /// outstanding: perhaps both ends were set up anew.
    is_perhaps_new: bool,
    /// READs and atomics that are not fully answered.
    pending: VecDeque<Psn>,
}

/// A message that has begun.
#[derive(Clone, Copy, Debug)]
struct Open {
    operation: Operation,
    dma_length: u32,
    so_far: u64,
    frame: u64,
}

/// What is known of the message that the row ends with.
#[derive(Clone, Copy, Debug)]
enum Message {
    /// The next packet begins one.
    None,
    /// The next packet belongs to this one.
    Open(Open),
    /// The capture begins here, or has a hole.
    Unknown,
}

/// The requests of one queue pair and the answers to them.
#[derive(Debug)]
pub(crate) struct Half {
    service: Service,
    requester: End,
    responder: End,
    mtu: Option<usize>,
    row_max: usize,
    row: VecDeque<Entry>,
    /// The PSN behind the row.
    next: Option<Psn>,
    /// The PSN that follows the request seen last.
    cursor: Psn,
    /// Whether what is being sent again is so for a sequence NAK.
    follows_nak: bool,
    message: Message,
    /// Ends of messages seen, holes aside.
    ends_seen: i64,
    holes: u32,
    answered: Answered,
    asked: VecDeque<Asked>,
    /// Where the answer to a READ stands: the PSN that comes next.
    reading: Option<Psn>,
    /// The first PSN of a READ's answer that the requester does not have, where that is known.
    received: Option<(Psn, u64)>,
    spoilt: VecDeque<(Psn, u64)>,
    /// All requests were captured at their sender; all answers at theirs.
    pub(crate) requests_at_sender: bool,
    answers_at_sender: bool,
    requests_seen: u64,
    answers_seen: u64,
    asked_for_answer: bool,
    shortest_answer_ns: Option<u64>,
    /// When it was seen last.
    last_ns: Option<u64>,
    /// The capture shows what is sent and what arrives.
    pub(crate) sees_arrivals: bool,
    /// Why this half cannot be judged.
    pub(crate) lacks: Vec<String>,
}

/// Where checks put what they find.
pub(crate) struct Sink<'a> {
    pub(crate) findings: &'a mut Findings,
    pub(crate) counts: &'a mut Counts,
}

impl Half {
    pub(crate) fn new(
        service: Service,
        requester: End,
        responder: End,
        mtu: Option<usize>,
        crowd: bool,
    ) -> Self {
        Half {
            service,
            requester,
            responder,
            mtu,
            row_max: if crowd { ROW_MAX / 32 } else { ROW_MAX },
            row: VecDeque::new(),
            next: None,
            cursor: Psn::new(0),
            follows_nak: false,
            message: Message::Unknown,
            ends_seen: 0,
            holes: 0,
            answered: Answered::default(),
            asked: VecDeque::new(),
            reading: None,
            received: None,
            spoilt: VecDeque::new(),
            requests_at_sender: true,
            answers_at_sender: true,
            requests_seen: 0,
            answers_seen: 0,
            asked_for_answer: false,
            shortest_answer_ns: None,
            last_ns: None,
            sees_arrivals: false,
            lacks: Vec::new(),
        }
    }

    /// Takes a request in.
    pub(crate) fn request(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        self.requests_at_sender &= sighting.seat == Seat::Sender;
        if sighting.integrity == Integrity::Wrong {
            if self.spoilt.len() == SPOILT_MAX {
                self.spoilt.pop_front();
            }
            self.spoilt.push_back((sighting.headers.bth.psn, sighting.number));
            return;
        }
        self.requests_seen += 1;
        self.take_request(sighting, sink);
        self.last_ns = sighting.time_ns;
    }

    /// Takes an answer in.
    pub(crate) fn answer(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        self.answers_at_sender &= sighting.seat == Seat::Sender;
        if sighting.integrity != Integrity::Wrong {
            self.answers_seen += 1;
            self.take_answer(sighting, sink);
            self.last_ns = sighting.time_ns;
        }
    }

    /// An answer that was seen as sent has come to the requester.
    pub(crate) fn arrival(&mut self, sighting: &Sighting<'_>) {
        if sighting.integrity != Integrity::Wrong {
            self.note_arrival(sighting);
        }
    }

    /// Whether requests that ask for an answer were seen, and none of that.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.service.is_reliable() && self.asked_for_answer && self.answers_seen == 0
    }

    /// Whether there are answers to requests that were not seen.
    pub(crate) fn is_unasked(&self) -> bool {
        self.answers_seen > 0 && self.requests_seen == 0
    }

    fn lack(&mut self, why: String) {
        const REASONS_MAX: usize = 4;
        if self.lacks.len() < REASONS_MAX {
            self.lacks.push(why);
        }
    }

    /// The place in the row of the entry that holds `psn`.
    fn place(&self, psn: Psn) -> Option<usize> {
        let behind = self
            .row
            .partition_point(|entry| entry.psn.distance_from(psn) <= 0);
        let at = behind.checked_sub(1)?;
        let entry = &self.row[at];
        let offset = psn.distance_from(entry.psn);
        (offset >= 0 && (offset as u32) < entry.count).then_some(at)
    }

    /// Puts a request at the end of the row.
    fn append(&mut self, psn: Psn, count: u32, request: Option<Request>) {
        if request.is_none() {
            self.holes = self.holes.saturating_add(count);
        }
        self.row.push_back(Entry { psn, count, request });
        self.next = Some(psn + count);
        while self.row.len() > self.row_max {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.row.pop_front() else {
            return;
        };
        // What is no longer there can no longer be counted when it is acknowledged.
        if let Some(accepted) = self.answered.accepted
            && accepted.distance_from(oldest.psn + oldest.count) < 0
        {
            self.answered.accepted = Some(oldest.psn + oldest.count);
            self.answered.base = None;
        }
    }

    /// A new life of the queue pair: nothing of the former one holds.
    fn begin_at(&mut self, psn: Psn) {
        self.row.clear();
        self.asked.clear();
        self.spoilt.clear();
        self.answered = Answered {
            accepted: Some(psn),
            ..Answered::default()
        };
        (self.ends_seen, self.holes) = (0, 0);
        (self.reading, self.received) = (None, None);
        self.message = Message::Unknown;
        self.next = Some(psn);
        self.cursor = psn;
    }

    /// The lowest frame of a packet with this PSN whose ICRC is wrong.
    fn spoilt_frame(&self, psn: Psn) -> Option<u64> {
        self.spoilt
            .iter()
            .find(|(spoilt, _)| *spoilt == psn)
            .map(|(_, frame)| *frame)
    }
}

/// A finding that needs its whole sequence.
const fn sequence(requirement: &'static str) -> (&'static str, Scope) {
    (requirement, Scope::Sequence)
}

/// A finding that one packet shows.
const fn packet(requirement: &'static str) -> (&'static str, Scope) {
    (requirement, Scope::Packet)
}

/// The time between the two, if both are known and in this order.
fn since(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    to?.checked_sub(from?)
}
