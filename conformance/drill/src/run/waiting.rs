//! Waiting: for a line's turn, and for what it expects.

use std::time::Duration;

use verbs_api::{EventKind, QpState, WcOpcode, WcStatus};

use super::{Done, MOST_WAITING, Runner, broken, tell};
use crate::bench::Activity;
use crate::call::{Call, Completion, Part, Reply};
use crate::expression::Expression;
use crate::line::{Placed, Slice, When};
use crate::names;
use crate::packet::bytes_difference;
use crate::script::{CompletionStep, Content, PacketStep, Step};
use crate::source::{Problem, Span};

/// When something must happen.
struct Window {
    earliest: Duration,
    latest: Duration,
}

impl Runner<'_> {
    /// Asks the device and the wire what is new.
    pub(super) fn pump(&mut self, span: Span) -> Done {
        let seen = self.bench.take_seen().map_err(|error| broken(span, &error))?;
        for packet in seen {
            self.note('>', packet.at, &packet.to_string());
            self.unread.push_back(packet);
        }
        // A queue is read until it is empty: a poll brings only so many.
        loop {
            let Reply::Completions(new) = self.call(span, &Call::Poll)? else {
                return Err(Problem::new(span, "polling the completion queue failed"));
            };
            if new.is_empty() {
                break;
            }
            self.completions.extend(new);
        }
        if let Reply::Events(new) = self.call(span, &Call::Events)? {
            self.events.extend(new);
        }
        if self
            .unread
            .len()
            .max(self.completions.len())
            .max(self.events.len())
            > MOST_WAITING
        {
            return Err(Problem::new(
                span,
                format!("more than {MOST_WAITING} packets, completions or events that no line expected"),
            ));
        }
        Ok(())
    }

    /// Lets time pass until `until`.
    pub(super) fn pass(&mut self, span: Span, until: Duration) -> Done {
        while self.bench.now() < until {
            self.bench.advance(until).map_err(|error| broken(span, &error))?;
        }
        Ok(())
    }

    fn time(&self, value: &Expression) -> Done<Duration> {
        self.value(value, None).map(Duration::from_nanos)
    }

    /// Lines that act wait for their time.
    pub(super) fn wait_for_turn(&mut self, step: &Step) -> Done {
        let until = match &step.when.item {
            When::Unsaid => return Ok(()),
            When::After(time, None) => self.previous + self.time(time)?,
            When::At(time, None) => self.time(time)?,
            When::After(_, Some(_)) | When::At(_, Some(_)) | When::Within(..) => {
                return Err(Problem::new(
                    step.when.span,
                    "this line acts, so it has one time; only what is expected has a tolerance",
                ));
            }
        };
        self.pass(step.span, until)
    }

    fn window(&self, step: &Step) -> Done<Window> {
        let slack = self.bench.slack();
        let around = |at: Duration, tolerance: &Option<Expression>| -> Done<Window> {
            let tolerance = match tolerance {
                None => slack,
                // What the machine of a real bench does to time is not the script's to know.
                Some(value) if self.bench.is_virtual() => self.time(value)?,
                Some(value) => self.time(value)? + slack,
            };
            Ok(Window {
                earliest: at.saturating_sub(tolerance),
                latest: at + tolerance,
            })
        };
        match &step.when.item {
            When::Unsaid => Ok(Window {
                earliest: Duration::ZERO,
                latest: self.bench.now() + self.bench.patience(),
            }),
            When::After(time, tolerance) => around(self.previous + self.time(time)?, tolerance),
            When::At(time, tolerance) => around(self.time(time)?, tolerance),
            When::Within(from, to) => {
                let late = if self.bench.is_virtual() {
                    Duration::ZERO
                } else {
                    slack
                };
                Ok(Window {
                    earliest: (self.previous + self.time(from)?).saturating_sub(late),
                    latest: self.previous + self.time(to)? + late,
                })
            }
        }
    }

    /// Waits until `look` finds something, which must be within the line's time.
    fn expect<T>(
        &mut self,
        step: &Step,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Done<Option<(T, Duration)>>,
    ) -> Done<T> {
        let window = self.window(step)?;
        let begun = self.previous;
        loop {
            self.pump(step.span)?;
            if let Some((found, at)) = look(self)? {
                if at < window.earliest || at > window.latest {
                    let (early, late) = (window.earliest, window.latest);
                    let place = if step.when.item == When::Unsaid {
                        step.span
                    } else {
                        step.when.span
                    };
                    return Err(Problem::new(
                        place,
                        format!(
                            "{what} came {:?} after the line before; expected from {:?} to {:?} after it",
                            at.saturating_sub(begun),
                            early.saturating_sub(begun),
                            late.saturating_sub(begun),
                        ),
                    ));
                }
                self.previous = at;
                return Ok(found);
            }
            if self.bench.now() >= window.latest {
                let waited = self.bench.now().saturating_sub(begun);
                return Err(Problem::new(
                    step.span,
                    format!("waited {waited:?} since the line before for {what}, in vain"),
                ));
            }
            let activity = self
                .bench
                .advance(window.latest)
                .map_err(|error| broken(step.span, &error))?;
            if activity == Activity::Dead {
                self.pump(step.span)?;
                if let Some((found, at)) = look(self)? {
                    self.previous = at;
                    return Ok(found);
                }
                return Err(Problem::new(
                    step.span,
                    format!("{what} can never come: no packet is in flight and no timer runs"),
                ));
            }
        }
    }

    pub(super) fn expect_packet(&mut self, step: &Step, packet: &PacketStep) -> Done {
        let wanted = self.wanted(packet, step.span)?;
        let played = self.qp(&packet.qp, step.span)?.played;
        let base = self.psn_base(&packet.qp);
        let what = format!(
            "{} {}",
            wanted.opcode,
            wanted.psn.map_or("with any psn".into(), |psn| format!(
                "with psn {}",
                base.tell(psn)
            ))
        );
        let seen = self.expect(step, &what, |runner| {
            let at = runner
                .unread
                .iter()
                .position(|seen| seen.headers.bth.dest_qp == played);
            Ok(at.and_then(|at| runner.unread.remove(at)).map(|seen| {
                let at = seen.at;
                (seen, at)
            }))
        })?;
        let differences = wanted.differences(&seen, &base);
        if differences.is_empty() {
            return Ok(());
        }
        Err(Problem::new(
            step.span,
            format!("{}\n   seen: {seen}", differences.join("; ")),
        ))
    }

    pub(super) fn expect_completion(&mut self, step: &Step, wanted: &CompletionStep) -> Done {
        let qpn = self.qp(&wanted.qp, step.span)?.qpn;
        let id = self.value(&wanted.id, Some(&wanted.qp))?;
        let what = format!(
            "the completion of request {id} with {}",
            statuses(&wanted.statuses)
        );
        let seen = self.expect(step, &what, |runner| {
            let now = runner.bench.now();
            let at = runner
                .completions
                .iter()
                .position(|completion| completion.qpn == qpn);
            Ok(at
                .and_then(|at| runner.completions.remove(at))
                .map(|seen| (seen, now)))
        })?;
        self.compare_completion(step, wanted, id, &seen)
    }

    fn compare_completion(&self, step: &Step, wanted: &CompletionStep, id: u64, seen: &Completion) -> Done {
        let is_wanted = wanted.statuses.iter().any(|status| status.code() == seen.status);
        if seen.id != id || !is_wanted {
            let status = statuses(&wanted.statuses);
            return Err(Problem::new(
                step.span,
                format!(
                    "expected the completion of request {id}, {status}; seen {}",
                    tell(seen)
                ),
            ));
        }
        // Of an error nothing else is defined.
        if seen.status != WcStatus::Success.code() {
            return Ok(());
        }
        if let Some(opcode) = &wanted.opcode
            && opcode.item.code() != seen.opcode
        {
            let found = WcOpcode::from_code(seen.opcode).map_or(seen.opcode.to_string(), |found| {
                names::shout(&format!("{found:?}"))
            });
            return Err(Problem::new(opcode.span, format!("op: seen {found}")));
        }
        let compare = |name: &str, wanted_value: &Option<Placed<Expression>>, seen: Option<u64>| -> Done {
            let Some(placed) = wanted_value else {
                return Ok(());
            };
            let expected = self.value(&placed.item, Some(&wanted.qp))?;
            if seen == Some(expected) {
                return Ok(());
            }
            let seen = seen.map_or("none".into(), |seen| format!("{seen:#x}"));
            Err(Problem::new(
                placed.span,
                format!("{name}: expected {expected:#x}, seen {seen}"),
            ))
        };
        compare("len", &wanted.length, Some(seen.length.into()))?;
        compare("imm", &wanted.imm, seen.imm.map(u64::from))?;
        compare("inv", &wanted.inv, seen.inv.map(u64::from))
    }

    pub(super) fn expect_event(&mut self, step: &Step, kind: EventKind, qp: Option<&str>) -> Done {
        let qpn = match qp {
            None => None,
            Some(name) => Some(self.qp(name, step.span)?.qpn),
        };
        let what = format!("the event {}", names::shout(&format!("{kind:?}")));
        self.expect(step, &what, |runner| {
            let now = runner.bench.now();
            let at = runner
                .events
                .iter()
                .position(|event| event.kind == kind.code() && (qpn.is_none() || event.qpn == qpn));
            Ok(at.map(|at| (runner.events.remove(at), now)))
        })
        .map(|_| ())
    }

    pub(super) fn expect_state(&mut self, step: &Step, qp: &str, state: QpState) -> Done {
        let name = |code| {
            QpState::from_code(code).map_or(format!("state {code}"), |s| names::shout(&format!("{s:?}")))
        };
        let mut last = String::from("unknown");
        let call = Call::State { qp: qp.to_owned() };
        let what = format!("the state {}", name(state.code()));
        self.expect(step, &what, |runner| {
            let now = runner.bench.now();
            match runner.call(step.span, &call)? {
                Reply::State(seen) if seen == state.code() => Ok(Some(((), now))),
                Reply::State(seen) => {
                    last = name(seen);
                    Ok(None)
                }
                other => Err(Problem::new(step.span, format!("no state, but {other:?}"))),
            }
        })
        .map_err(|problem| Problem::new(problem.span, format!("{}; it is {last}", problem.message)))
    }

    pub(super) fn expect_memory(&mut self, step: &Step, slice: &Slice, content: &Content) -> Done {
        let (from, to) = self.range(slice)?;
        let wanted = self.bytes(content, None, Some(to.saturating_sub(from) as usize), step.span)?;
        let call = Call::ReadMemory {
            part: Part {
                region: slice.region.clone(),
                from,
                to,
            },
        };
        let mut last = String::new();
        self.expect(step, "these bytes", |runner| {
            let now = runner.bench.now();
            match runner.call(step.span, &call)? {
                Reply::Bytes(seen) => Ok(match bytes_difference(&wanted, &seen) {
                    None => Some(((), now)),
                    Some(difference) => {
                        last = difference;
                        None
                    }
                }),
                Reply::Refused { message, .. } => Err(Problem::new(step.span, message)),
                other => Err(Problem::new(step.span, format!("no bytes, but {other:?}"))),
            }
        })
        .map_err(|problem| Problem::new(problem.span, format!("{}; {last}", problem.message)))
    }

    pub(super) fn silence(&mut self, step: &Step, time: &Expression) -> Done {
        self.nothing(step, time, |runner| {
            let packet = runner.unread.front()?;
            Some(format!("a packet that must not be: {packet}"))
        })
    }

    pub(super) fn quiet(&mut self, step: &Step, time: &Expression) -> Done {
        self.nothing(step, time, |runner| {
            let completion = runner.completions.front()?;
            Some(format!("a completion that must not be: {}", tell(completion)))
        })
    }

    fn nothing(&mut self, step: &Step, time: &Expression, look: impl Fn(&Self) -> Option<String>) -> Done {
        self.wait_for_turn(step)?;
        let until = self.bench.now() + self.time(time)?;
        loop {
            self.pump(step.span)?;
            if let Some(found) = look(self) {
                return Err(Problem::new(step.span, found));
            }
            if self.bench.now() >= until {
                self.previous = self.bench.now();
                return Ok(());
            }
            self.bench
                .advance(until)
                .map_err(|error| broken(step.span, &error))?;
        }
    }
}

/// Statuses by name, one of which must be.
fn statuses(all: &[WcStatus]) -> String {
    let names: Vec<String> = all
        .iter()
        .map(|status| names::shout(&format!("{status:?}")))
        .collect();
    names.join(" or ")
}
