//! Runs a script on a bench.

mod calls;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::time::Duration;

use roce_wire::{Psn, Qpn};

use crate::bench::{Bench, Seen};
use crate::call::{Call, Completion, Event, QpPlan, Reply};
use crate::expression::Expression;
use crate::line::Slice;
use crate::names;
use crate::packet::{Defaults, PsnBase, Wanted};
use crate::script::{Action, Content, FIELDS, PacketStep, Script, Step};
use crate::source::{Problem, Span};

/// Packets that are told when a script fails.
const LADDER: usize = 24;
/// Packets and completions that may wait for a line; a device that sends more has gone mad.
const MOST_WAITING: usize = 1 << 16;
/// Lines that a script may execute, repeats included.
const MOST_STEPS: u64 = 1_000_000;

/// Why a script failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What, and where in the script.
    pub problem: Problem,
    /// The last packets of both ends, a line each.
    pub ladder: Vec<String>,
}

impl Failed {
    /// The problem with its line, and the packets before it.
    pub fn show<'a>(&'a self, script: &'a Script) -> impl fmt::Display + 'a {
        ShownFailure { failed: self, script }
    }
}

struct ShownFailure<'a> {
    failed: &'a Failed,
    script: &'a Script,
}

impl fmt::Display for ShownFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failed.problem.show(&self.script.source))?;
        if self.failed.ladder.is_empty() {
            return write!(f, "\n no packet passed");
        }
        write!(
            f,
            "\n the last packets (> from the device under test, < from the script):"
        )?;
        for line in &self.failed.ladder {
            write!(f, "\n   {line}")?;
        }
        Ok(())
    }
}

/// Runs `script` on `bench`, which must be fresh. `follow` hears each line as it is done, with the time.
pub fn run(
    script: &Script,
    bench: &mut dyn Bench,
    follow: &mut dyn FnMut(Duration, &str),
) -> Result<(), Failed> {
    let mut runner = Runner {
        script,
        bench,
        follow,
        values: HashMap::new(),
        qps: HashMap::new(),
        regions: HashMap::new(),
        only_qp: None,
        unread: VecDeque::new(),
        completions: VecDeque::new(),
        events: Vec::new(),
        previous: Duration::ZERO,
        steps: 0,
        ladder: VecDeque::new(),
    };
    let done = runner.block(&script.steps).and_then(|()| runner.end());
    done.map_err(|problem| Failed {
        problem,
        ladder: runner.ladder.into(),
    })
}

struct QpInfo {
    qpn: u32,
    played: Qpn,
    plan: QpPlan,
}

struct Runner<'a> {
    script: &'a Script,
    bench: &'a mut dyn Bench,
    follow: &'a mut dyn FnMut(Duration, &str),
    /// By their whole names: `x`, `A.s`, `M.rkey`.
    values: HashMap<String, u64>,
    qps: HashMap<String, QpInfo>,
    /// The lengths of regions.
    regions: HashMap<String, u64>,
    /// The queue pair that `s`, `p` and `T` mean where a line is about none.
    only_qp: Option<String>,
    unread: VecDeque<Seen>,
    completions: VecDeque<Completion>,
    events: Vec<Event>,
    /// When the line before happened.
    previous: Duration,
    steps: u64,
    ladder: VecDeque<String>,
}

type Done<T = ()> = Result<T, Problem>;

impl Runner<'_> {
    fn block(&mut self, steps: &[Step]) -> Done {
        for step in steps {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(Problem::new(
                    step.span,
                    format!("the script has done {MOST_STEPS} lines and is stopped"),
                ));
            }
            self.step(step)?;
            let text = self.script.source.line(step.span).trim();
            (self.follow)(self.previous, text);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Done {
        match &step.action {
            Action::Expect(packet) => self.expect_packet(step, packet),
            Action::Completion(completion) => self.expect_completion(step, completion),
            Action::Event { kind, qp } => self.expect_event(step, *kind, qp.as_deref()),
            Action::State { qp, state } => self.expect_state(step, qp, *state),
            Action::Memory { slice, content } => self.expect_memory(step, slice, content),
            Action::Silence(time) => self.silence(step, time),
            Action::Quiet(time) => self.quiet(step, time),
            Action::Repeat { count, body } => {
                let count = self.value(count, None)?;
                for round in 0..count {
                    self.values.insert("n".into(), round);
                    self.block(body)?;
                }
                Ok(())
            }
            _ => {
                self.wait_for_turn(step)?;
                self.act(step)?;
                self.previous = self.bench.now();
                Ok(())
            }
        }
    }

    /// What a line does that expects nothing.
    fn act(&mut self, step: &Step) -> Done {
        match &step.action {
            Action::Inject(packet) => self.inject(step, packet),
            Action::Wait(time) => {
                let time = Duration::from_nanos(self.value(time, None)?);
                let until = self.bench.now() + time;
                self.pass(step.span, until)
            }
            Action::Drain => {
                self.pump(step.span)?;
                self.unread.clear();
                self.completions.clear();
                self.events.clear();
                Ok(())
            }
            Action::Let { name, value } => {
                let value = self.value(value, None)?;
                self.values.insert(name.clone(), value);
                Ok(())
            }
            _ => self.call_verb(step),
        }
    }

    /// All that came must have been expected.
    fn end(&mut self) -> Done {
        let span = self.script.steps.last().map_or(Span::default(), |step| step.span);
        if self.bench.is_virtual() {
            // The answer to what the last line has sent is under way.
            self.pass(span, self.bench.now() + self.bench.slack())?;
        }
        self.pump(span)?;
        if let Some(packet) = self.unread.front() {
            return Err(Problem::new(
                span,
                format!("behind this line came a packet that no line expects: {packet}"),
            ));
        }
        if let Some(completion) = self.completions.front() {
            return Err(Problem::new(
                span,
                format!(
                    "behind this line came a completion that no line expects: {}",
                    tell(completion)
                ),
            ));
        }
        Ok(())
    }

    /// A value, where `s`, `p` and `T` are those of `qp`.
    fn value(&self, expression: &Expression, qp: Option<&str>) -> Done<u64> {
        expression.evaluate(&|name| {
            let of_qp = qp.or(self.only_qp.as_deref()).map(|qp| format!("{qp}.{name}"));
            let short = matches!(name, "s" | "p" | "T");
            match of_qp.filter(|_| short) {
                Some(name) => self.values.get(&name).copied(),
                None => self.values.get(name).copied(),
            }
        })
    }

    /// A value that must not be above `most`.
    fn bounded(&self, expression: &Expression, qp: Option<&str>, most: u64, span: Span) -> Done<u64> {
        let value = self.value(expression, qp)?;
        if value > most {
            return Err(Problem::new(
                span,
                format!("{value:#x} is too much here: at most {most:#x}"),
            ));
        }
        Ok(value)
    }

    fn bytes(&self, content: &Content, qp: Option<&str>, length: Option<usize>, span: Span) -> Done<Vec<u8>> {
        let needs_length =
            || length.ok_or_else(|| Problem::new(span, "zero and pattern(…) need len=… beside them"));
        Ok(match content {
            Content::Zero => vec![0; needs_length()?],
            Content::Pattern(seed) => verbs_api::pattern(self.value(seed, qp)?, needs_length()?),
            Content::Word(value) => self.value(value, qp)?.to_le_bytes().to_vec(),
            Content::Bytes(bytes) => bytes.clone(),
        })
    }

    /// The offsets of a part of a region.
    fn range(&self, slice: &Slice) -> Done<(u64, u64)> {
        match &slice.range {
            None => Ok((0, self.regions.get(&slice.region).copied().unwrap_or(0))),
            Some((from, to)) => Ok((self.value(from, None)?, self.value(to, None)?)),
        }
    }

    fn call(&mut self, span: Span, call: &Call) -> Done<Reply> {
        self.bench.call(call).map_err(|error| broken(span, &error))
    }

    fn qp(&self, name: &str, span: Span) -> Done<&QpInfo> {
        self.qps
            .get(name)
            .ok_or_else(|| Problem::new(span, format!("queue pair {name} has not been made (or is gone)")))
    }

    fn psn_base(&self, name: &str) -> PsnBase {
        let psn = |member: &str| {
            let value = self.values.get(&format!("{name}.{member}"));
            Psn::new(value.copied().unwrap_or(0) as u32)
        };
        PsnBase {
            device: psn("s"),
            played: psn("p"),
        }
    }

    fn wanted(&self, step: &PacketStep, span: Span) -> Done<Wanted> {
        /// The longest payload that a script may send: far above every path MTU, within a datagram.
        const LONGEST: u64 = 60_000;
        let qp = Some(step.qp.as_str());
        let length = match &step.length {
            None => None,
            Some(length) => Some(self.bounded(length, qp, LONGEST, span)? as usize),
        };
        let psn = match &step.psn {
            None => None,
            Some(psn) => Some(Psn::new(self.value(psn, qp)? as u32)),
        };
        let data = match &step.data {
            None => None,
            Some(content) => Some(self.bytes(content, qp, length, span)?),
        };
        let mut fields = Vec::new();
        for (name, value, place) in &step.fields {
            let most = FIELDS
                .iter()
                .find(|(field, _)| field == name)
                .map_or(u64::MAX, |(_, most)| *most);
            fields.push((*name, self.bounded(value, qp, most, *place)?, *place));
        }
        Ok(Wanted {
            opcode: step.opcode,
            syndrome: step.syndrome.clone(),
            psn,
            length,
            data,
            fields,
            flags: step.flags.clone(),
        })
    }

    fn inject(&mut self, step: &Step, packet: &PacketStep) -> Done {
        let wanted = self.wanted(packet, step.span)?;
        let qp = self.qp(&packet.qp, step.span)?;
        let defaults = Defaults {
            device: Qpn::new(qp.qpn).unwrap_or(qp.played),
            played: qp.played,
            qkey: qp.plan.qkey,
        };
        let (bytes, seal) = wanted.build(&defaults);
        let told = match roce_wire::parse(&bytes) {
            Ok(packet) => packet.to_string(),
            Err(error) => format!("malformed: {error}"),
        };
        self.note('<', self.bench.now(), &told);
        self.bench
            .inject(&bytes, seal)
            .map_err(|error| broken(step.span, &error))
    }

    fn note(&mut self, direction: char, at: Duration, packet: &str) {
        if self.ladder.len() == LADDER {
            self.ladder.pop_front();
        }
        self.ladder.push_back(format!(
            "{:>12.6} ms {direction} {packet}",
            at.as_secs_f64() * 1e3
        ));
    }
}

/// A completion in words.
fn tell(completion: &Completion) -> String {
    let status = verbs_api::WcStatus::from_code(completion.status);
    let status = status.map_or_else(
        || format!("status {}", completion.status),
        |status| names::shout(&format!("{status:?}")),
    );
    format!("request {}, {status}", completion.id)
}

fn broken(span: Span, error: &io::Error) -> Problem {
    Problem::new(span, format!("the bench broke down: {error}"))
}
