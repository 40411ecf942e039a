//! READs: each packet of an answer has its PSN, and a repeated request asks for what is missing and no more.

use roce_wire::{OpcodeInfo, Operation, Position, Psn};

use super::packets::shown;
use super::{ASKED_MAX, Half, Request, Sink, sequence, since};
use crate::reading::{Seat, Sighting};

/// PSNs that a READ request, perhaps a repeated one, has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    start: Psn,
    count: u32,
    /// Bytes of the whole answer.
    len: u32,
}

/// A response may cross a request that is sent again although it would not have to.
const CROSSING_NS: u64 = 10_000_000;

impl Half {
    pub(super) fn note_asked(&mut self, start: Psn, count: u32, dma_length: u32, operation: Operation) {
        let len = match operation {
            Operation::ReadRequest => dma_length,
            // ATOMIC WRITE and FLUSH are answered by a READ response without payload.
            _ => 0,
        };
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(Asked { start, count, len });
    }

    /// A READ request under a PSN that a READ has already: it must go on where that stands.
    pub(super) fn compare_read(
        &self,
        psn: Psn,
        count: u32,
        request: &Request,
        sighting: &Sighting<'_>,
        sink: &mut Sink<'_>,
    ) {
        let Some(reth) = sighting.headers.reth else { return };
        let mtu = self.mtu.unwrap_or(0) as u64;
        let skipped = sighting.headers.bth.psn.distance_from(psn).max(0) as u64;
        let va = request.va.wrapping_add(skipped * mtu);
        let left = u64::from(request.dma_length).saturating_sub(skipped * mtu);
        let frames = [request.frame, sighting.number];
        if reth.va != va || reth.rkey != request.rkey {
            let expected = "a repeated READ whose address moved on with its PSN";
            let seen = format!(
                "address {:#x} and key {} where {va:#x} and {} are due",
                reth.va, reth.rkey, request.rkey
            );
            sink.findings
                .add(sequence("LOSS-3"), self.requester, &frames, expected, seen);
        }
        // A request may be one for several that lay next to each other.
        let end = psn + count;
        let follows = self.place(end).and_then(|at| self.row[at].request.as_ref());
        let goes_on = follows.is_some_and(|next| {
            next.operation == Operation::ReadRequest
                && next.va == request.va.wrapping_add(u64::from(request.dma_length))
        });
        if u64::from(reth.dma_length) > left && !goes_on {
            let expected = "a repeated READ for what is left of the first one";
            let seen = format!("{} bytes where {left} are left", reth.dma_length);
            sink.findings
                .add(sequence("LOSS-3"), self.requester, &frames, expected, seen);
        }
    }

    /// A READ is asked for again: for what the requester has already?
    pub(super) fn check_reread(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let is_read =
            sighting.headers.bth.opcode.info().map(|info| info.operation) == Some(Operation::ReadRequest);
        let Some((received, at_ns)) = self.received.filter(|_| is_read) else {
            return;
        };
        let is_had = psn.distance_from(received) < 0 && self.place(psn).is_some();
        if is_had && since(Some(at_ns), sighting.time_ns).is_some_and(|since| since > CROSSING_NS) {
            let expected = "a repeated READ from the first missing response on";
            let seen = format!(
                "from {}, while {} is the first that is missing",
                shown(psn),
                shown(received)
            );
            sink.findings.add(
                sequence("LOSS-3"),
                self.requester,
                &[sighting.number],
                expected,
                seen,
            );
        }
    }

    /// A READ response: does its place in the answer fit one of the requests for it?
    pub(super) fn check_response(&mut self, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        let fits = |asked: &Asked| {
            let offset = psn.distance_from(asked.start);
            if offset < 0 || offset as u32 >= asked.count {
                return None;
            }
            let position = match (offset, asked.count - 1 - offset as u32) {
                (0, 0) => Position::Only,
                (0, _) => Position::First,
                (_, 0) => Position::Last,
                (_, _) => Position::Middle,
            };
            let len = match position {
                Position::First | Position::Middle => self.mtu,
                Position::Only => Some(asked.len as usize),
                Position::Last => self
                    .mtu
                    .and_then(|mtu| (asked.len as usize).checked_sub((asked.count as usize - 1) * mtu)),
            };
            Some((position, len))
        };
        let mut asked = self.asked.iter().rev().filter_map(fits).peekable();
        if asked.peek().is_none() {
            // Asked for before what is remembered.
            return;
        }
        let len = sighting.payload.len();
        let mut best = None;
        for (position, due) in asked {
            if position == info.position {
                if due.is_none_or(|due| due == len) {
                    self.go_on_reading(sighting, info, sink);
                    return;
                }
                best = best.or(due);
            }
        }
        let frames = [sighting.number];
        let name = sighting.headers.bth.opcode;
        match best {
            Some(due) => {
                let expected = "a READ answered with exactly the bytes that were asked for";
                let seen = format!("{name} {} with {len} bytes instead of {due}", shown(psn));
                sink.findings
                    .add(sequence("READ-1"), self.responder, &frames, expected, seen);
            }
            None => {
                let expected = "the response packet that belongs to this PSN of the READ";
                let seen = format!("{name} for {}", shown(psn));
                sink.findings
                    .add(sequence("READ-2"), self.responder, &frames, expected, seen);
            }
        }
        self.go_on_reading(sighting, info, sink);
    }

    fn go_on_reading(&mut self, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        if let Some(due) = self.reading
            && !info.position.starts_message()
            && psn != due
        {
            if self.answers_at_sender {
                let expected = "responses with consecutive PSNs";
                let seen = format!("{} where {} comes next", shown(psn), shown(due));
                sink.findings.add(
                    sequence("READ-2"),
                    self.responder,
                    &[sighting.number],
                    expected,
                    seen,
                );
            } else {
                sink.counts.missing_answers += 1;
            }
        }
        self.reading = (!info.position.ends_message()).then(|| psn + 1);
        let is_next = self.received.is_none_or(|(received, _)| {
            received == psn || psn.distance_from(received) > 0 && info.position.starts_message()
        });
        if sighting.seat == Seat::Receiver && !sighting.is_lost && is_next {
            self.received = Some((psn + 1, sighting.time_ns.unwrap_or(0)));
        }
    }
}
