//! What a requester and a responder do after a NAK that asks to send again: sequence errors, and receivers that are
//! not ready.

use roce_wire::{Psn, RnrTimer};

use super::packets::shown;
use super::{Half, Sink, sequence, since};
use crate::reading::{Seat, Sighting};

/// A sequence NAK whose PSN has not come since, as far as the responder has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceNak {
    pub(super) psn: Psn,
    pub(super) frame: u64,
    pub(super) at_ns: Option<u64>,
    pub(super) is_heeded: bool,
}

/// A receiver that is not ready for this PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotReady {
    pub(super) psn: Psn,
    pub(super) timer: RnrTimer,
    pub(super) frame: u64,
    pub(super) at_ns: Option<u64>,
    pub(super) seat: Seat,
    /// The refused packet has passed again since, so that the responder may answer it again.
    pub(super) came_again: bool,
    /// The same, after the requester must have had the NAK.
    pub(super) is_retried: bool,
    /// The responder has asked for it by a sequence NAK, too.
    pub(super) is_overtaken: bool,
}

/// Clocks of captures are that coarse.
const TOLERANCE_NS: u64 = 10_000;
/// What is on its way when an RNR NAK is sent is seen within this time, where nothing better is known.
const ON_ITS_WAY_NS: u64 = 200_000;

impl NotReady {
    /// How much too early something comes at `now_ns`, if it does.
    fn too_early(&self, now_ns: Option<u64>) -> Option<u64> {
        let due = self.timer.nanos();
        let waited = since(self.at_ns, now_ns)?;
        let tolerance = TOLERANCE_NS.min(due / 4);
        (waited + tolerance < due).then_some(waited)
    }
}

impl Half {
    /// How long a request may take from its sender past the place of capture, when it left before an answer came.
    fn on_its_way_ns(&self, not_ready: &NotReady, sighting: &Sighting<'_>) -> u64 {
        if sighting.seat == Seat::Sender && not_ready.seat == Seat::Receiver {
            // Both were seen at the requester.
            return TOLERANCE_NS;
        }
        if self.sees_arrivals && not_ready.seat == Seat::Sender {
            // It has not arrived yet.
            return u64::MAX;
        }
        let twice = self.shortest_answer_ns.unwrap_or(0).saturating_mul(2);
        if sighting.seat == Seat::Sender && not_ready.seat == Seat::Sender && twice > 0 {
            return twice + TOLERANCE_NS;
        }
        twice.max(ON_ITS_WAY_NS)
    }

    /// The requester has the RNR NAK: its wait begins now.
    pub(super) fn note_arrived_wait(&mut self, psn: Psn, sighting: &Sighting<'_>) {
        if let Some(wait) = &mut self.answered.not_ready
            && wait.psn == psn
            && !wait.is_retried
        {
            wait.seat = Seat::Receiver;
            wait.at_ns = sighting.time_ns;
        }
    }

    pub(super) fn is_not_ready_for(&self, psn: Psn) -> bool {
        self.answered.not_ready.is_some_and(|wait| wait.psn == psn)
    }

    /// A request comes again: was it refused for want of a receive, and has the wait ended?
    pub(super) fn check_wait(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let psn = sighting.headers.bth.psn;
        let Some(wait) = self
            .answered
            .not_ready
            .filter(|wait| wait.psn == psn && !wait.is_retried)
        else {
            return;
        };
        if let Some(wait) = &mut self.answered.not_ready {
            wait.came_again = true;
        }
        let waited = since(wait.at_ns, sighting.time_ns);
        if let Some(waited) = wait.too_early(sighting.time_ns) {
            if waited <= self.on_its_way_ns(&wait, sighting) {
                // Sent before the NAK came.
                return;
            }
            if !wait.is_overtaken {
                let expected = "the request again no earlier than the timer of the RNR NAK says";
                let seen = format!(
                    "{} again after {} instead of {}",
                    shown(psn),
                    micros(waited),
                    micros(wait.timer.nanos())
                );
                let frames = [wait.frame, sighting.number];
                sink.findings
                    .add(sequence("RNR-2"), self.requester, &frames, expected, seen);
            }
        }
        if let Some(waited) = waited {
            sink.counts.rnr_waits.add(waited);
        }
        if let Some(wait) = &mut self.answered.not_ready {
            wait.is_retried = true;
        }
    }

    /// A new request while the requester should wait.
    pub(super) fn check_waiting(&mut self, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let Some(wait) = self
            .answered
            .not_ready
            .filter(|wait| !wait.is_retried && !wait.is_overtaken)
        else {
            return;
        };
        let Some(waited) = wait.too_early(sighting.time_ns) else {
            return;
        };
        if waited > self.on_its_way_ns(&wait, sighting) {
            let expected = "nothing new while it waits after an RNR NAK";
            let seen = format!(
                "{} {} after the NAK for {}, whose timer is {}",
                shown(sighting.headers.bth.psn),
                micros(waited),
                shown(wait.psn),
                micros(wait.timer.nanos())
            );
            let frames = [wait.frame, sighting.number];
            sink.findings
                .add(sequence("RNR-6"), self.requester, &frames, expected, seen);
        }
    }

    /// Whether going back to `psn` is what a sequence NAK asks for.
    pub(super) fn answers_nak(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(nak) = &mut self.answered.sequence_nak else {
            return false;
        };
        if nak.psn != psn || nak.is_heeded {
            return false;
        }
        nak.is_heeded = true;
        if let Some(took) = since(nak.at_ns, sighting.time_ns) {
            sink.counts.nak_reactions.add(took);
        }
        true
    }

    /// The responder asks for `psn` again.
    pub(super) fn take_sequence_nak(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        sink.counts.sequence_naks += 1;
        if let Some(wait) = self.answered.not_ready
            && wait.psn == psn
            && !wait.came_again
        {
            let expected = "silence after an RNR NAK until the refused packet comes again";
            let seen = format!("a sequence NAK for {}", shown(psn));
            let frames = [wait.frame, sighting.number];
            sink.findings
                .add(sequence("RNR-5"), self.responder, &frames, expected, seen);
        } else if let Some(nak) = self.answered.sequence_nak
            && nak.psn == psn
        {
            let expected = "one sequence NAK for a gap, until the missing packet has come";
            let seen = format!("another one for {}", shown(psn));
            let frames = [nak.frame, sighting.number];
            sink.findings
                .add(sequence("NAK-1"), self.responder, &frames, expected, seen);
        } else {
            self.check_gap(psn, sighting, sink);
        }
        if let Some(wait) = &mut self.answered.not_ready {
            wait.is_overtaken = true;
        }
        self.answered.sequence_nak = Some(SequenceNak {
            psn,
            frame: sighting.number,
            at_ns: sighting.time_ns,
            is_heeded: false,
        });
        self.note_known(psn, sighting);
    }

    /// There must be a gap at `psn` for a sequence NAK.
    fn check_gap(&mut self, psn: Psn, sighting: &Sighting<'_>, sink: &mut Sink<'_>) {
        let accepted = self.answered.accepted;
        if accepted.is_some_and(|accepted| psn.distance_from(accepted) < 0) {
            let expected = "a sequence NAK with the PSN that is missing";
            let seen = format!("one for {}, which was acknowledged before", shown(psn));
            sink.findings.add(
                sequence("NAK-1"),
                self.responder,
                &[sighting.number],
                expected,
                seen,
            );
            return;
        }
        let Some(at) = self.place(psn) else { return };
        let end = self.row[at].psn + self.row[at].count;
        // The first packet behind the gap is what the responder has noticed it by.
        match self.place(end).map(|behind| &self.row[behind]) {
            Some(behind) => {
                let came = behind.request.as_ref().and_then(|request| request.last_ns);
                if let Some(took) = since(came, sighting.time_ns) {
                    sink.counts.nak_generation.add(took);
                }
            }
            // It may have come itself, before what precedes it was sent again, and in vain.
            None if self.is_overtaken(at) => {}
            None => {
                let expected = "a sequence NAK only when a later packet has come";
                let seen = format!("one for {}, the newest that was sent", shown(psn));
                sink.findings.add(
                    sequence("NAK-1"),
                    self.responder,
                    &[sighting.number],
                    expected,
                    seen,
                );
            }
        }
    }

    /// Whether the packet before this one was sent after it.
    fn is_overtaken(&self, at: usize) -> bool {
        let sent = |at: usize| self.row.get(at)?.request.as_ref()?.last_ns;
        let before = at.checked_sub(1).and_then(sent);
        matches!((before, sent(at)), (Some(before), Some(this)) if before > this)
    }

    /// The responder has no receive for `psn`.
    pub(super) fn take_rnr_nak(
        &mut self,
        psn: Psn,
        timer: RnrTimer,
        sighting: &Sighting<'_>,
        sink: &mut Sink<'_>,
    ) {
        sink.counts.rnr_naks += 1;
        let request = self.place(psn).and_then(|at| self.row[at].request.as_ref());
        if let Some(request) = request
            && !request.needs_receive
        {
            let expected = "an RNR NAK only for a packet that takes a receive";
            let seen = format!("one for {} ({})", shown(psn), request.opcode);
            let frames = [request.frame, sighting.number];
            sink.findings
                .add(sequence("RNR-3"), self.responder, &frames, expected, seen);
        }
        if let Some(wait) = self.answered.not_ready
            && wait.psn == psn
            && !wait.came_again
        {
            let expected = "silence after an RNR NAK until the refused packet comes again";
            let seen = format!("another one for {}", shown(psn));
            let frames = [wait.frame, sighting.number];
            sink.findings
                .add(sequence("RNR-5"), self.responder, &frames, expected, seen);
        }
        self.answered.sequence_nak = None;
        self.answered.not_ready = Some(NotReady {
            psn,
            timer,
            frame: sighting.number,
            at_ns: sighting.time_ns,
            seat: sighting.seat,
            came_again: false,
            is_retried: false,
            is_overtaken: false,
        });
        self.note_known(psn, sighting);
    }

    /// The responder has carried out everything before `psn`: what it was waiting for has come.
    pub(super) fn end_waits(&mut self, psn: Psn) {
        let has_come = |waited_for: Psn| psn.distance_from(waited_for) > 0;
        if self.answered.sequence_nak.is_some_and(|nak| has_come(nak.psn)) {
            self.answered.sequence_nak = None;
        }
        if self.answered.not_ready.is_some_and(|wait| has_come(wait.psn)) {
            self.answered.not_ready = None;
        }
    }
}

/// A time for people.
pub(crate) fn micros(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.2} µs", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}
