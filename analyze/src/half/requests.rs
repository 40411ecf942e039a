//! The stream of requests: consecutive PSNs, and steps back that have a reason.

use roce_wire::{OpcodeInfo, Operation, Psn, RKey};

use super::packets::{check, message_before, shown};
use super::{Entry, Half, Message, NEW_LIFE, REST_NS, Request, Sink, packet, sequence, since};
use crate::reading::{Seat, Service, Sighting};

/// An acknowledgement may cross a request that is sent again although it would not have to; here is how long that may
/// take at the requester's own machine.
const CROSSING_NS: u64 = 10_000_000;

impl Half {
    pub(super) fn take_request(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let bth = sighting.headers.bth;
        let psn = bth.psn;
        let Some(info) = bth.opcode.info() else {
            let seen = format!("opcode {:#04x}", bth.opcode.value());
            let expected = "an opcode of the service";
            let frames = [sighting.number];
            sink.findings
                .add(packet("OPSEQ-2"), self.requester, &frames, expected, seen);
            return;
        };
        check(sighting, info, self.mtu, self.requester, sink);
        let is_request_of_connection = self.service.is_reliable() || self.service == Service::Uc;
        if !is_request_of_connection {
            return;
        }
        self.asked_for_answer |= bth.ack_request;
        let Some(next) = self.next else {
            self.begin_at(psn);
            self.message = message_before(info);
            self.extend(sighting, info, sink);
            return;
        };
        match psn.distance_from(next) {
            0 => {
                self.note_jump(psn, sighting, sink);
                self.extend(sighting, info, sink);
            }
            ahead if ahead > 0 && ahead <= NEW_LIFE => {
                self.skip(next, ahead as u32, sighting, sink);
                self.extend(sighting, info, sink);
            }
            _ => match self.place(psn) {
                Some(at) => self.repeat(at, sighting, info, sink),
                None if psn.distance_from(next).unsigned_abs() > NEW_LIFE.unsigned_abs() => {
                    self.begin_at(psn);
                    self.message = message_before(info);
                    self.extend(sighting, info, sink);
                }
                // Older than the row, or than the capture.
                None => {
                    sink.counts.repeats += 1;
                    self.cursor = psn + 1;
                }
            },
        }
    }

    /// PSNs are missing before this packet.
    fn skip(&mut self, next: Psn, count: u32, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        if self.requests_at_sender && self.service.is_reliable() {
            let expected = "consecutive PSNs";
            let seen = format!(
                "{} where {} comes next",
                shown(sighting.headers.bth.psn),
                shown(next)
            );
            let frames = [sighting.number];
            sink.findings
                .add(sequence("WIRE-2"), self.requester, &frames, expected, seen);
        }
        sink.counts.missing_requests += u64::from(count);
        if !self.service.is_reliable() {
            // Nothing comes again: the row goes on here.
            self.begin_at(sighting.headers.bth.psn);
            return;
        }
        self.append(next, count, None);
        self.message = Message::Unknown;
    }

    /// A request with a PSN that was not seen before.
    fn extend(&mut self, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        self.answered.is_perhaps_new |= self.answered.accepted == Some(psn)
            && since(self.last_ns, sighting.time_ns).is_some_and(|rest| rest >= REST_NS);
        self.continue_message(sighting, info, sink);
        self.check_waiting(sighting, sink);
        let request = self.request_of(sighting, info);
        let count = self.psns_of(info, request.dma_length);
        self.note_new(psn, count, &request, info, sink);
        self.append(psn, count, Some(request));
        self.cursor = psn + count;
        self.follows_nak = false;
    }

    fn note_new(&mut self, psn: Psn, count: u32, request: &Request, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        if info.position.ends_message() {
            self.ends_seen += 1;
            sink.counts.messages += 1;
        }
        sink.counts.payload_bytes += request.payload_len as u64;
        if is_answered_by_itself(info.operation) {
            if self.answered.pending.len() < super::ASKED_MAX {
                self.answered.pending.push_back(psn);
            }
            self.note_asked(psn, count, request.dma_length, info.operation);
        }
    }

    fn request_of(&self, sighting: &Sighting<'_>, info: &OpcodeInfo) -> Request {
        let headers = &sighting.headers;
        let (va, rkey, dma_length) = match (headers.reth, headers.atomic_eth) {
            (Some(reth), _) => (reth.va, reth.rkey, reth.dma_length),
            (None, Some(atomic)) => (atomic.va, atomic.rkey, 8),
            (None, None) => (0, RKey(0), 0),
        };
        Request {
            opcode: headers.bth.opcode,
            operation: info.operation,
            position: info.position,
            needs_receive: info.consumes_receive,
            asks: headers.bth.ack_request || is_answered_by_itself(info.operation),
            payload_len: sighting.payload.len(),
            va,
            rkey,
            dma_length,
            fingerprint: sighting.fingerprint,
            frame: sighting.number,
            last_ns: sighting.time_ns,
            answer: None,
        }
    }

    /// New requests after some, but not all, were sent again.
    fn note_jump(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let skipped = psn.distance_from(self.cursor);
        if skipped <= 0 {
            return;
        }
        let accepted = self.answered.accepted.unwrap_or(psn);
        let is_due = self.cursor.distance_from(accepted).max(0);
        // After a NAK the responder has dropped all that followed; only what it has acknowledged since may be left out.
        if self.follows_nak && self.requests_at_sender && accepted.distance_from(psn) < 0 && is_due >= 0 {
            let expected = "all to be sent again from the PSN of the NAK on";
            let seen = format!(
                "{} after {}, which is not acknowledged",
                shown(psn),
                shown(self.cursor - 1)
            );
            sink.findings.add(
                sequence("LOSS-1"),
                self.requester,
                &[sighting.number],
                expected,
                seen,
            );
        }
        sink.counts.probes += 1;
    }

    /// A request whose PSN stands in the row.
    fn repeat(&mut self, at: usize, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        let entry = &self.row[at];
        if entry.request.is_none() {
            self.fill(at, sighting, info, sink);
        } else {
            sink.counts.repeats += 1;
            self.compare(at, sighting, info, sink);
        }
        if psn != self.cursor {
            self.step_back(psn, at, sighting, sink);
        }
        self.check_wait(sighting, sink);
        let dma_length = sighting.headers.reth.map_or(0, |reth| reth.dma_length);
        let count = self.psns_of(info, dma_length);
        // The row may have moved while a hole was filled.
        if let Some(at) = self.place(psn)
            && let Some(request) = &mut self.row[at].request
        {
            request.last_ns = sighting.time_ns;
            request.asks |= sighting.headers.bth.ack_request;
        }
        if info.operation == Operation::ReadRequest {
            self.note_asked(psn, count, dma_length, info.operation);
        }
        self.cursor = psn + count;
    }

    /// A request that is seen for the first time, though later ones were before it.
    fn fill(&mut self, at: usize, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        let hole = self.row[at].clone();
        let request = self.request_of(sighting, info);
        let psn = sighting.headers.bth.psn;
        let before = psn.distance_from(hole.psn) as u32;
        let count = self.psns_of(info, request.dma_length).min(hole.count - before);
        let after = hole.count - before - count;
        self.holes = self.holes.saturating_sub(count);
        self.note_new(psn, count, &request, info, sink);
        let entry = |psn, count, request| Entry { psn, count, request };
        let parts = [
            entry(hole.psn, before, None),
            entry(psn, count, Some(request)),
            entry(psn + count, after, None),
        ];
        self.row.remove(at);
        for part in parts.into_iter().rev().filter(|part| part.count > 0) {
            self.row.insert(at, part);
        }
        while self.row.len() > self.row_max {
            self.forget_oldest();
        }
    }

    /// What is sent again must be the same.
    fn compare(&self, at: usize, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        let Entry {
            psn,
            count,
            request: Some(request),
        } = &self.row[at]
        else {
            return;
        };
        let name = sighting.headers.bth.opcode;
        let frames = [request.frame, sighting.number];
        if info.operation == Operation::ReadRequest && request.operation == Operation::ReadRequest {
            self.compare_read(*psn, *count, request, sighting, sink);
        } else if name != request.opcode || sighting.payload.len() != request.payload_len {
            let expected = "the same opcode and length under the same PSN";
            let seen = format!(
                "{name} with {} bytes after {} with {}",
                sighting.payload.len(),
                request.opcode,
                request.payload_len
            );
            sink.findings
                .add(sequence("RETRY-8"), self.requester, &frames, expected, seen);
        } else if sighting.fingerprint != request.fingerprint
            && sighting.integrity == crate::reading::Integrity::Right
        {
            let expected = "the same headers and payload under the same PSN";
            let seen = format!("{name} with others than the first time");
            sink.findings
                .add(sequence("RETRY-8"), self.requester, &frames, expected, seen);
        }
    }

    /// The requester goes back to `psn`. For which reason, and is that one?
    fn step_back(&mut self, psn: Psn, at: usize, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        sink.counts.steps_back += 1;
        self.follows_nak = false;
        if let Some((known, frame, known_ns)) = self.answered.known
            && psn.distance_from(known) < 0
            && since(Some(known_ns), sighting.time_ns).is_some_and(|since| since > CROSSING_NS)
        {
            let expected = "nothing to be sent again that is acknowledged";
            let seen = format!(
                "{} again, while {} is the first that is not",
                shown(psn),
                shown(known)
            );
            let frames = [frame, sighting.number];
            sink.findings
                .add(sequence("LOSS-1"), self.requester, &frames, expected, seen);
        }
        self.check_reread(psn, sighting, sink);
        self.answered.is_perhaps_new = at == 0
            && self
                .answered
                .accepted
                .is_some_and(|accepted| accepted.distance_from(psn) > 0);
        let last_ns = self.row[at].request.as_ref().and_then(|request| request.last_ns);
        if self.answers_nak(psn, sighting, sink) {
            self.follows_nak = true;
        } else if !self.is_not_ready_for(psn)
            && let Some(waited) = since(last_ns, sighting.time_ns)
        {
            sink.counts.retransmissions.add(waited);
        }
    }

    /// Notes that the requester knows everything before `psn` to be acknowledged.
    pub(super) fn note_known(&mut self, psn: Psn, sighting: &Sighting<'_>) {
        if sighting.seat == Seat::Receiver && !sighting.is_lost {
            self.set_known(psn, sighting);
        }
    }

    pub(super) fn set_known(&mut self, psn: Psn, sighting: &Sighting<'_>) {
        let is_newer = self
            .answered
            .known
            .is_none_or(|(known, _, _)| psn.distance_from(known) > 0);
        if let (true, Some(now_ns)) = (is_newer, sighting.time_ns) {
            self.answered.known = Some((psn, sighting.number, now_ns));
        }
    }
}

/// Whether an acknowledgement alone is not enough.
pub(super) fn is_answered_by_itself(operation: Operation) -> bool {
    match operation {
        Operation::ReadRequest
        | Operation::CompareSwap
        | Operation::FetchAdd
        | Operation::AtomicWrite
        | Operation::Flush => true,
        Operation::Send
        | Operation::Write
        | Operation::ReadResponse
        | Operation::Acknowledge
        | Operation::AtomicAcknowledge
        | Operation::CongestionNotification => false,
    }
}
