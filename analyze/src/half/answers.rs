//! The stream of answers: acknowledgements that only go forward, counted messages, and answers that fit.

use roce_wire::{Aeth, Msn, NakCode, OpcodeInfo, Operation, Psn, Syndrome};

use super::packets::{check, shown};
use super::requests::is_answered_by_itself;
use super::{Half, Sink, sequence, since};
use crate::reading::{Seat, Sighting};

impl Half {
    pub(super) fn take_answer(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        let Some(info) = sighting.headers.bth.opcode.info() else {
            return;
        };
        check(sighting, info, self.mtu, self.responder, sink);
        let Some(next) = self.next else { return };
        let first = self.row.front().map_or(next, |entry| entry.psn);
        if psn.distance_from(first) < 0 && self.requests_seen > 0 && psn.distance_from(next) < 0 {
            // Of a request before the capture, or forgotten.
            return;
        }
        self.check_silence(sighting, sink);
        if psn.distance_from(next) >= 0 {
            self.answers_ahead(psn, next, sighting, sink);
            return;
        }
        match (info.operation, sighting.headers.aeth.map(|aeth| aeth.syndrome)) {
            (Operation::Acknowledge, Some(Syndrome::Ack(_))) => self.take_ack(psn, sighting, sink),
            (Operation::Acknowledge, Some(Syndrome::RnrNak(timer))) => {
                self.accept(psn, sighting, sink);
                self.count_exactly(sighting, sink);
                self.take_rnr_nak(psn, timer, sighting, sink);
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(NakCode::PsnSequence))) => {
                self.take_sequence_nak(psn, sighting, sink);
                self.accept(psn, sighting, sink);
                self.count_exactly(sighting, sink);
            }
            (
                Operation::Acknowledge,
                Some(Syndrome::Nak(
                    NakCode::InvalidRequest | NakCode::RemoteAccess | NakCode::RemoteOperational,
                )),
            ) => {
                self.accept(psn, sighting, sink);
                self.count_exactly(sighting, sink);
                sink.counts.fatal_naks += 1;
                self.answered.fatal = Some((sighting.number, next));
            }
            (Operation::ReadResponse, _) => self.take_response(psn, sighting, info, sink),
            (Operation::AtomicAcknowledge, _) => self.take_atomic(psn, sighting, sink),
            // Reserved syndromes and NAK codes have no effect.
            _ => {}
        }
        self.end_waits(self.answered.accepted.unwrap_or(psn));
    }

    /// The requester has this answer.
    pub(super) fn note_arrival(&mut self, sighting: &Sighting<'_>) {
        let psn = sighting.headers.bth.psn;
        let Some(at) = self.place(psn) else { return };
        match sighting.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) if self.row[at].count == 1 => self.set_known(psn + 1, sighting),
            Some(Syndrome::RnrNak(_)) => self.note_arrived_wait(psn, sighting),
            Some(Syndrome::Nak(_)) => self.set_known(psn, sighting),
            Some(Syndrome::Ack(_) | Syndrome::Reserved(_)) | None => {}
        }
    }

    /// After a fatal NAK the responder says nothing more to what it was asked until then.
    fn check_silence(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        if let Some((frame, until)) = self.answered.fatal
            && psn.distance_from(until) < 0
        {
            let expected = "silence after a NAK that ends the connection";
            let seen = format!("{} for {}", sighting.headers.bth.opcode, shown(psn));
            let frames = [frame, sighting.number];
            sink.findings
                .add(sequence("NAK-4"), self.responder, &frames, expected, seen);
        }
    }

    /// An answer to a PSN that no request was seen with.
    fn answers_ahead(&mut self, psn: Psn, next: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        if let Some(frame) = self.spoilt_frame(psn).or_else(|| self.spoilt_frame(next)) {
            self.blame_spoilt(frame, sighting, sink);
        } else if self.requests_at_sender && self.requests_seen > 0 {
            let expected = "answers to what was sent";
            let seen = format!(
                "one for {}, while {} is the newest that was sent",
                shown(psn),
                shown(next - 1)
            );
            sink.findings.add(
                sequence("ACK-1"),
                self.responder,
                &[sighting.number],
                expected,
                seen,
            );
        } else {
            self.lack(format!(
                "frame {} answers {}, which is not in the capture (gap)",
                sighting.number,
                shown(psn)
            ));
        }
    }

    fn blame_spoilt(&mut self, frame: u64, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let expected = "a packet with a wrong ICRC to be dropped";
        let seen = "it was answered though it came in no other form".to_owned();
        let frames = [frame, sighting.number];
        sink.findings
            .add(sequence("CORRUPT-1"), self.responder, &frames, expected, seen);
    }

    /// The responder has carried out everything before `end`.
    fn accept(&mut self, end: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let Some(mut accepted) = self.answered.accepted else {
            return;
        };
        while accepted.distance_from(end) < 0 {
            let Some(at) = self.place(accepted) else { break };
            let entry = &self.row[at];
            let (psn, behind) = (entry.psn, entry.psn + entry.count);
            match &entry.request {
                Some(request) => {
                    self.answered.done += i64::from(request.position.ends_message());
                    accepted = behind;
                }
                None => {
                    let until = if behind.distance_from(end) < 0 {
                        behind
                    } else {
                        end
                    };
                    self.accept_hole(psn, until, sighting, sink);
                    accepted = until;
                }
            }
        }
        self.answered.accepted = Some(accepted);
    }

    fn accept_hole(&mut self, from: Psn, until: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        // What the hole held is not known, so neither is how many messages that was.
        self.answered.base = None;
        match self.spoilt_frame(from) {
            Some(frame) => self.blame_spoilt(frame, sighting, sink),
            None => self.lack(format!(
                "{} to {} were acknowledged and are not in the capture (gap)",
                shown(from),
                shown(until - 1)
            )),
        }
    }

    fn take_ack(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let Some(Aeth { msn, .. }) = sighting.headers.aeth else {
            return;
        };
        sink.counts.acks += 1;
        if let Some((last, last_msn, frame)) = self.answered.last_ack
            && psn.distance_from(last) < 0
            && !self.answered.is_perhaps_new
        {
            // Two packets that changed places on their way look the same, unless the older one counts more messages.
            let is_certain = sighting.seat == Seat::Sender || msn.distance_from(last_msn) > 0;
            if is_certain && !self.is_answered_by_itself_at(psn + 1) {
                let expected = "acknowledgements with the latest PSN";
                let seen = format!("{} after {}", shown(psn), shown(last));
                let frames = [frame, sighting.number];
                sink.findings
                    .add(sequence("DUP-1"), self.responder, &frames, expected, seen);
            }
            sink.counts.acks_out_of_order += 1;
            return;
        }
        self.answered.last_ack = Some((psn, msn, sighting.number));
        if let Some(at) = self.place(psn)
            && let Some(request) = &self.row[at].request
        {
            if is_answered_by_itself(request.operation) {
                // Once that is answered, the acknowledgement may be of an older request that came again, and covers it.
                let is_answered = !self.answered.pending.contains(&self.row[at].psn);
                if is_answered {
                    return;
                }
                let expected = format!("the answer that a {} calls for", request.opcode);
                let frames = [request.frame, sighting.number];
                let seen = "a plain acknowledgement".to_owned();
                sink.findings
                    .add(sequence("RESP-2"), self.responder, &frames, &expected, seen);
            } else if let (true, Some(took)) = (request.asks, since(request.last_ns, sighting.time_ns)) {
                self.note_answer_time(took, sink);
            }
        }
        self.check_order(psn, sighting, sink);
        self.accept(psn + 1, sighting, sink);
        let sent = self.ends_seen + i64::from(self.holes);
        self.count(msn, self.answered.done, sent, sighting, sink);
        self.note_known(psn + 1, sighting);
    }

    /// Whether an acknowledgement beyond this PSN would say that an answer was lost: then one for a repeated request
    /// may stop before it.
    fn is_answered_by_itself_at(&self, psn: Psn) -> bool {
        let request = self.place(psn).and_then(|at| self.row[at].request.as_ref());
        request.is_some_and(|request| is_answered_by_itself(request.operation))
    }

    fn note_answer_time(&mut self, took: u64, sink: &mut Sink<'_>) {
        sink.counts.answers_after.add(took);
        let shortest = self.shortest_answer_ns.unwrap_or(took);
        self.shortest_answer_ns = Some(shortest.min(took));
    }

    /// READs and atomics before `psn` must have been answered.
    fn check_order(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        while let Some(pending) = self.answered.pending.front().copied() {
            if pending.distance_from(psn) >= 0 {
                break;
            }
            self.answered.pending.pop_front();
            if self.answers_at_sender {
                let expected = "answers in the order of the requests";
                let seen = format!("{} is answered before {}", shown(psn), shown(pending));
                sink.findings.add(
                    sequence("ORDER-2"),
                    self.responder,
                    &[sighting.number],
                    expected,
                    seen,
                );
            } else {
                sink.counts.missing_answers += 1;
            }
        }
    }

    /// The MSN of a NAK: exactly the messages before its PSN.
    fn count_exactly(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        if let Some(aeth) = sighting.headers.aeth
            && self.answered.accepted == Some(psn)
        {
            self.count(aeth.msn, self.answered.done, self.answered.done, sighting, sink);
        }
    }

    /// The responder says `msn` when it has completed `least` to `most` of the messages in the capture. So it has
    /// begun at a number that follows, within bounds; all bounds together must leave one.
    fn count(&mut self, msn: Msn, least: i64, most: i64, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let Some((base, low, high)) = self.answered.base else {
            self.answered.base = Some((msn - least as u32, least - most, 0));
            return;
        };
        let offset = i64::from((msn - least as u32).distance_from(base));
        let (new_low, new_high) = (low.max(offset - (most - least)), high.min(offset));
        if new_low <= new_high {
            self.answered.base = Some((base, new_low, new_high));
            self.answered.is_perhaps_new = false;
            return;
        }
        if self.answered.is_perhaps_new && i64::from(msn.value()) <= self.ends_seen {
            // It counts from nothing, as it does after it was set up.
            self.answered.is_perhaps_new = false;
            self.answered.base = None;
            return;
        }
        let expected = "an MSN that counts completed messages";
        let due = base + (least + high.clamp(i64::from(i32::MIN), i64::from(i32::MAX))) as u32;
        let seen = format!(
            "{} for {} where {} is due",
            msn.value(),
            shown(sighting.headers.bth.psn),
            due.value()
        );
        sink.findings.add(
            sequence("MSN-1"),
            self.responder,
            &[sighting.number],
            expected,
            seen,
        );
        self.answered.base = Some((msn - least as u32, least - most, 0));
    }

    /// A READ response, which also answers ATOMIC WRITE and FLUSH.
    fn take_response(&mut self, psn: Psn, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) {
        sink.counts.responses += 1;
        let Some(at) = self.place(psn) else { return };
        let entry = &self.row[at];
        let (start, end) = (entry.psn, entry.psn + entry.count);
        let Some(request) = &entry.request else {
            self.accept(end, sighting, sink);
            return;
        };
        let is_fitting = matches!(
            request.operation,
            Operation::ReadRequest | Operation::AtomicWrite | Operation::Flush
        );
        let (opcode, frame, asked_ns) = (request.opcode, request.frame, request.last_ns);
        if !is_fitting {
            self.blame_kind(opcode, frame, sighting, sink);
            return;
        }
        if psn == start
            && let Some(took) = since(asked_ns, sighting.time_ns)
        {
            self.note_answer_time(took, sink);
        }
        self.check_response(sighting, info, sink);
        self.check_order(start, sighting, sink);
        let is_new = self
            .answered
            .accepted
            .is_some_and(|accepted| accepted.distance_from(end) < 0);
        self.accept(end, sighting, sink);
        // A repeated answer may carry the count of its time.
        if let (true, Some(aeth)) = (is_new, sighting.headers.aeth) {
            let sent = self.ends_seen + i64::from(self.holes);
            self.count(aeth.msn, self.answered.done, sent, sighting, sink);
        }
        if psn == end - 1 {
            self.answered.pending.retain(|pending| *pending != start);
            self.note_known(end, sighting);
        }
    }

    fn blame_kind(
        &self,
        opcode: roce_wire::Opcode,
        frame: u64,
        sighting: &Sighting<'_>,
        sink: &mut Sink<'_>,
    ) {
        let expected = format!("the answer that a {opcode} calls for");
        let seen = format!("{}", sighting.headers.bth.opcode);
        let frames = [frame, sighting.number];
        sink.findings
            .add(sequence("RESP-2"), self.responder, &frames, &expected, seen);
    }

    fn take_atomic(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        sink.counts.responses += 1;
        let Some(at) = self.place(psn) else { return };
        let end = self.row[at].psn + self.row[at].count;
        let Some(request) = &mut self.row[at].request else {
            self.accept(end, sighting, sink);
            return;
        };
        let (opcode, frame, va) = (request.opcode, request.frame, request.va);
        if !matches!(request.operation, Operation::CompareSwap | Operation::FetchAdd) {
            self.blame_kind(opcode, frame, sighting, sink);
            return;
        }
        let original = sighting.headers.atomic_ack.map_or(0, |ack| ack.original);
        let (before, asked_ns) = (request.answer, request.last_ns);
        request.answer = before.or(Some((original, sighting.number)));
        if let Some((first, frame)) = before
            && first != original
        {
            let expected = "the saved answer to an atomic that comes again";
            let seen = format!("{original:#x} after {first:#x}");
            let frames = [frame, sighting.number];
            sink.findings
                .add(sequence("DUP-3"), self.responder, &frames, expected, seen);
        }
        if !va.is_multiple_of(8) {
            let expected = "an atomic at an address that is no multiple of eight to be refused";
            let seen = format!("an answer to one at {va:#x}");
            let frames = [frame, sighting.number];
            sink.findings
                .add(sequence("ATOMIC-4"), self.responder, &frames, expected, seen);
        }
        if let Some(took) = since(asked_ns, sighting.time_ns) {
            self.note_answer_time(took, sink);
        }
        self.check_order(psn, sighting, sink);
        let is_new = before.is_none();
        self.accept(end, sighting, sink);
        if let (true, Some(aeth)) = (is_new, sighting.headers.aeth) {
            let sent = self.ends_seen + i64::from(self.holes);
            self.count(aeth.msn, self.answered.done, sent, sighting, sink);
        }
        self.answered.pending.retain(|pending| *pending != psn);
        self.note_known(end, sighting);
    }
}
