//! Why a program failed, in words: one line that names the cause, then what happened last.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use softroce::faults::{self, Effect, Page};
use softroce::journal::ask::{self, Question};
use softroce::journal::{self, Entry, Kind};

use super::capture;
use super::child::End;

/// Failures that belong together happen within so much time, ns.
const TOGETHER_NS: u64 = 10_000_000_000;
/// Entries of a kind that are told, at most.
const TOLD_MAX: usize = 8;
/// How long processes have to say what they wait for.
const PATIENCE: Duration = Duration::from_millis(700);

/// What is known of a program that failed.
pub(super) struct Report {
    /// Failures, verbs and hints, in the order of time.
    entries: Vec<Entry>,
    /// What queue pairs waited for, the most telling first. Asked before a timeout ended them.
    waiting: Vec<Entry>,
    /// Processes that did not say.
    silent: Vec<u32>,
    /// What fault rules did.
    rules: Vec<Page>,
}

/// Ask the processes of a run what they wait for.
pub(super) fn ask(directory: &Path) -> (Vec<Entry>, Vec<u32>) {
    let (answers, silent) = ask::ask(directory, &Question::Waiting, PATIENCE);
    let mut waiting: Vec<Entry> = answers.into_iter().flat_map(|answer| answer.entries).collect();
    // Within a process they are in order.
    waiting.sort_by_key(Telling::of);
    (waiting, silent)
}

/// How much it tells that somebody waits: who waits for an answer tells more than who waits for a message.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Telling {
    Request,
    Connection,
    Message,
}

impl Telling {
    fn of(entry: &Entry) -> Telling {
        match (entry.place, entry.kind) {
            (Some(_), _) => Telling::Request,
            (None, Kind::Connecting) => Telling::Connection,
            (None, _) => Telling::Message,
        }
    }
}

impl Report {
    pub(super) fn new(directory: &Path, (waiting, silent): (Vec<Entry>, Vec<u32>)) -> Report {
        Report {
            entries: journal::read(directory),
            waiting,
            silent,
            rules: faults::pages(directory),
        }
    }

    /// Whether an error of RDMA is known, and not only that the program failed.
    pub(super) fn knows_failures(&self) -> bool {
        self.failures().next().is_some()
    }

    /// Error completions and refusals.
    fn failures(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind <= Kind::Local)
    }

    fn last(&self, kind: Kind) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.kind == kind)
    }

    /// The failure that came first of those that came last: what follows from it follows within seconds.
    fn first_failure(&self) -> Option<&Entry> {
        let last = self.failures().next_back()?.time_ns;
        self.failures().find(|entry| entry.time_ns + TOGETHER_NS >= last)
    }

    /// Connections that did not come about, and did not later either.
    fn unconnected(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let came_about = |entry: &Entry| {
            let peer_of = |later: &Entry| format!(" {} ", later.text);
            self.entries.iter().any(|later| {
                later.kind == Kind::Connected
                    && later.process == entry.process
                    && later.time_ns >= entry.time_ns
                    && format!(" {}", entry.text).contains(&peer_of(later))
            })
        };
        let connects = self.entries.iter().filter(|entry| entry.kind == Kind::Connect);
        connects.filter(move |entry| !came_about(entry))
    }

    /// The cause in one sentence, and the entry that says it.
    fn cause(&self) -> (String, Option<&Entry>) {
        let hint = self.last(Kind::Hint);
        if let Some(failure) = self.first_failure() {
            return (failure.text.clone(), Some(failure));
        }
        let waiting = self.waiting.first();
        let is_sure = waiting.is_some_and(|waiting| Telling::of(waiting) < Telling::Message);
        if let Some(unconnected) = self.unconnected().next_back().filter(|_| !is_sure) {
            return (unconnected.text.clone(), Some(unconnected));
        }
        if let Some(waiting) = waiting {
            let text = match hint {
                Some(hint) if waiting.place.is_none() => format!("{}; {}", waiting.text, hint.text),
                Some(_) | None => waiting.text.clone(),
            };
            return (text, Some(waiting));
        }
        let text = match (self.last(Kind::Verb), hint) {
            (Some(verb), _) => {
                return (
                    format!("no completion failed; the last verb that failed is {}", verb.text),
                    Some(verb),
                );
            }
            (None, Some(hint)) => return (format!("no completion failed; {}", hint.text), Some(hint)),
            (None, None) if !self.silent.is_empty() => {
                "its processes did not say what they wait for".to_owned()
            }
            (None, None) if self.entries.is_empty() => {
                "it never asked for RDMA devices, or brings a libibverbs of its own".to_owned()
            }
            (None, None) => "no verb and no completion failed".to_owned(),
        };
        (text, None)
    }

    /// What to print, with a capture if there is one: its path, and what else to say of it.
    pub(super) fn text(
        &self,
        program: &str,
        end: &End,
        time: Option<Duration>,
        capture: Option<(&Path, String)>,
    ) -> String {
        let (mut cause, by) = self.cause();
        if let Some(by) = by {
            cause.push_str(&self.rules_behind(by));
        }
        let how = match end {
            End::Exited(status) => format!("ended with status {status}"),
            End::Killed(signal) => format!("was killed by {signal}"),
            End::TimedOut => format!("did not end within {:?}", time.unwrap_or_default()),
        };
        let told = self.told();
        let mut packets: Vec<Option<u64>> = vec![None; told.len()];
        if let Some((file, _)) = &capture {
            let places: Vec<_> = told.iter().map(|entry| entry.place).collect();
            packets = capture::find(file, &places);
        }
        let mut text = format!("softroce: {program} {how}: {cause}");
        let cause_packet = by.and_then(|by| {
            let at = told.iter().position(|entry| *entry == by)?;
            packets[at]
        });
        if let Some(number) = cause_packet {
            let _ = write!(text, " (packet {number} of the capture)");
        }
        text.push('\n');
        for (entry, packet) in told.iter().zip(packets) {
            if by == Some(*entry) && told.len() == 1 {
                continue;
            }
            let _ = write!(
                text,
                "softroce:   {} {}: {}",
                entry.kind.name(),
                self.name(entry.process),
                entry.text
            );
            if let Some(number) = packet {
                let _ = write!(text, " (packet {number})");
            }
            text.push('\n');
        }
        for process in &self.silent {
            let _ = writeln!(
                text,
                "softroce:   {} did not say what it waits for: it is stopped, or ended",
                self.name(*process)
            );
        }
        if let Some((file, about)) = &capture {
            let _ = writeln!(text, "softroce:   capture: {}{about}", file.display());
        }
        text
    }

    /// What fault rules did to packets in this run that leads to such an entry.
    fn rules_behind(&self, entry: &Entry) -> String {
        let has_no_answer = match entry.kind {
            Kind::NoAnswer | Kind::Connecting => true,
            Kind::Waiting => entry.place.is_some(),
            Kind::Connect => entry.text.contains(" had no "),
            _ => false,
        };
        let is_answered = matches!(entry.kind, Kind::Refused | Kind::Rejected | Kind::NotReady);
        let mut hits: BTreeMap<&str, (Effect, u64)> = BTreeMap::new();
        for page in &self.rules {
            let is_behind = match page.effect {
                Effect::Takes | Effect::Spoils | Effect::HoldsBack => has_no_answer,
                Effect::Changes | Effect::Makes => has_no_answer || is_answered,
                Effect::Other => false,
            };
            if is_behind && page.hits > 0 {
                hits.entry(&page.name).or_insert((page.effect, 0)).1 += page.hits;
            }
        }
        let mut text = String::new();
        for (name, (effect, count)) in hits.iter().take(TOLD_MAX) {
            let packets = crate::output::count(*count, "packet");
            let _ = write!(text, "; fault rule {name:?} {} {packets}", effect.past());
        }
        text
    }

    /// The entries to be told: failures, what waits, and the last verbs that failed.
    fn told(&self) -> Vec<&Entry> {
        let last = |kinds: fn(Kind) -> bool| {
            let mut some: Vec<&Entry> = self
                .entries
                .iter()
                .rev()
                .filter(|entry| kinds(entry.kind))
                .take(TOLD_MAX)
                .collect();
            some.reverse();
            some
        };
        let mut told = last(|kind| kind <= Kind::Local);
        if let Some(first) = self.first_failure().filter(|first| !told.contains(first)) {
            told.insert(0, first);
        }
        let unconnected: Vec<&Entry> = self.unconnected().collect();
        told.extend(&unconnected[unconnected.len().saturating_sub(TOLD_MAX)..]);
        told.extend(last(|kind| kind == Kind::Hint));
        told.extend(self.waiting.iter().take(TOLD_MAX));
        told.extend(last(|kind| kind == Kind::Verb));
        told
    }

    fn name(&self, process: u32) -> String {
        let named = |entry: &&Entry| entry.kind == Kind::Process && entry.process == process;
        match self.entries.iter().find(named) {
            Some(entry) => format!("[{process} {}]", entry.text),
            None => format!("[{process}]"),
        }
    }
}

/// The name of a program as people know it.
pub(super) fn name_of(program: &std::ffi::OsStr) -> String {
    let path = PathBuf::from(program);
    path.file_name().unwrap_or(program).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
