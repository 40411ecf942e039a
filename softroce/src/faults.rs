//! Fault rules at work in a process: those that the fabric asks about packets, and the verbs about calls.
//!
//! The rules themselves, and what they do, are in `softroce-faults`. Here they are loaded, exchanged while the program
//! runs, and told of at the end. While none are loaded, whoever asks pays for one look at a flag.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use softroce_faults::{Event, Injector, Numbers, Tally, Work};
use verbs_api::WcStatus;

use crate::clock::Clock;
use crate::fork;
use crate::lock::Mutex;

mod book;
mod calls;
mod mishaps;
mod notes;

use book::Book;
pub use book::{Page, pages};
pub(crate) use calls::admit;
pub use mishaps::Mishaps;

/// Events that are remembered of a set of rules; what comes on top does not happen.
const EVENTS_MAX: usize = 1024;

pub use softroce_faults::{Effect, FileError, Rules, Verb};
// What a watch is asked with.
pub use softroce_faults::{Direction, Judgement, Parcel, Passage, Way};

/// Somebody who looks at every packet before the rules do, and may take their place: a test bed.
pub trait Watch: Send {
    /// A packet passes. When it does not pass as it is, `out` (empty) is filled, and the rules are not asked.
    fn judge(&mut self, passage: &Passage<'_>, out: &mut Vec<Parcel>) -> Judgement;
}

/// The rules of a process, or of a simulated world: none at first.
pub struct Faults {
    /// There are rules, or somebody watches.
    is_loaded: AtomicBool,
    watch: Mutex<Option<Box<dyn Watch>>>,
    current: Mutex<Option<Arc<Active>>>,
    /// Of the process that uses them, see [`fork`].
    generation: AtomicU32,
    /// Counts what was loaded.
    number: AtomicU64,
    /// The last one that [`load_once`](Self::load_once) took.
    command: AtomicU64,
    clock: Arc<dyn Clock>,
}

/// Rules at work.
struct Active {
    rules: Arc<Rules>,
    number: u64,
    state: Mutex<State>,
    /// A device has failed for good: so does everything that is asked of it.
    is_dead: AtomicBool,
}

struct State {
    injector: Injector,
    /// What happened to devices so far: each has to hear of all.
    events: Vec<(Event, Numbers)>,
    book: Option<Book>,
}

/// How far a device has heard of what happens to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Of these rules.
    number: u64,
    events: usize,
}

impl Faults {
    /// Without rules. The times of rules are those of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Faults> {
        Arc::new(Faults {
            is_loaded: AtomicBool::new(false),
            watch: Mutex::new(None),
            current: Mutex::new(None),
            generation: AtomicU32::new(fork::generation()),
            number: AtomicU64::new(0),
            command: AtomicU64::new(0),
            clock,
        })
    }

    /// Go by these rules from now on. Their counts begin at 0.
    pub fn load(&self, rules: impl Into<Arc<Rules>>) {
        let active = self.activate(rules.into());
        *self.current.lock() = Some(active);
        self.is_loaded.store(true, Ordering::Release);
    }

    /// The same, unless the command of this number, which every device of the process gets, did so already.
    pub(crate) fn load_once(&self, command: u64, rules: Rules) {
        if self.command.swap(command, Ordering::Relaxed) != command {
            self.load(rules);
        }
    }

    /// Have somebody look at every packet from now on, also of devices that open later.
    pub fn watch(&self, watch: Box<dyn Watch>) {
        *self.watch.lock() = Some(watch);
        self.is_loaded.store(true, Ordering::Release);
    }

    /// Go by no rules any more.
    pub fn clear(&self) {
        let is_watched = self.watch.lock().is_some();
        self.is_loaded.store(is_watched, Ordering::Release);
        *self.current.lock() = None;
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there are rules, or somebody watches.
    #[inline]
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Relaxed)
    }

    /// What each rule has done so far.
    pub fn tallies(&self) -> Vec<Tally> {
        let active = self.active();
        active.map_or_else(Vec::new, |active| active.state.lock().injector.tallies())
    }

    fn activate(&self, rules: Arc<Rules>) -> Arc<Active> {
        let injector = Injector::new(rules.clone(), self.clock.now().as_nanos());
        let book = Book::open(&injector.tallies());
        Arc::new(Active {
            rules,
            number: 1 + self.number.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(State {
                injector,
                events: Vec::new(),
                book,
            }),
            is_dead: AtomicBool::new(false),
        })
    }

    /// The rules at work in this process.
    fn active(&self) -> Option<Arc<Active>> {
        if !self.is_loaded() {
            return None;
        }
        if self.generation.load(Ordering::Relaxed) == fork::generation() {
            return self.current.lock().clone();
        }
        // A thread of the parent may hold the lock in the child for ever: then there are no rules there.
        let active = self.current.try_lock()?.clone()?;
        // A child begins to count anew. Its parent's state stays: another thread may have been at work on it.
        let own = self.activate(active.rules.clone());
        std::mem::forget(self.current.try_lock()?.replace(own.clone()));
        self.generation.store(fork::generation(), Ordering::Relaxed);
        Some(own)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// A packet passes: what becomes of it. See [`Injector::judge`].
    pub fn judge(&self, passage: &Passage<'_>, out: &mut Vec<Parcel>) -> Judgement {
        if let Some(watch) = &mut *self.watch.lock() {
            out.clear();
            if watch.judge(passage, out) == Judgement::Changed {
                return Judgement::Changed;
            }
        }
        let Some(active) = self.active() else {
            return Judgement::Untouched;
        };
        let mut state = active.state.lock();
        let judgement = state.injector.judge(passage, out);
        state.keep_book();
        judgement
    }

    /// Whether there are rules about completions.
    pub(crate) fn judge_completions(&self) -> bool {
        self.active()
            .is_some_and(|active| !active.rules.completions.is_empty())
    }

    /// A work request is about to complete with success.
    pub(crate) fn completion(&self, qpn: u32, work: Work) -> Option<WcStatus> {
        let active = self.active()?;
        let mut state = active.state.lock();
        let judged = state.injector.completion(self.now_ns(), qpn, work);
        let status = judged.map(|(status, rule)| {
            notes::completion(qpn, work, status, rule);
            status
        });
        state.keep_book();
        status
    }

    /// When something happens next to a device that has heard so much, ns of the clock; at once if it is late.
    pub(crate) fn next_event_ns(&self, heard: &Heard) -> Option<u64> {
        let current = self.number.load(Ordering::Relaxed);
        if heard.number != current {
            return Some(0);
        }
        let active = self.active()?;
        let state = active.state.lock();
        match heard.events < state.events.len() {
            true => Some(0),
            false => state.injector.next_event_ns(),
        }
    }

    /// What happens to a device that has heard so much. `Err`: other rules are at work than those it has heard of, and
    /// what happened by the old ones is over.
    pub(crate) fn next_event(&self, heard: &mut Heard) -> std::result::Result<Option<(Event, Numbers)>, ()> {
        let active = self.active();
        let number = self.number.load(Ordering::Relaxed);
        if heard.number != number {
            *heard = Heard { number, events: 0 };
            return Err(());
        }
        let Some(active) = active.filter(|active| active.number == number) else {
            return Ok(None);
        };
        let mut state = active.state.lock();
        let now_ns = self.now_ns();
        loop {
            let rule = state.injector.due_rule(now_ns).map(str::to_owned);
            let Some(event) = state.injector.poll_event(now_ns) else {
                break;
            };
            notes::event(event.0, rule.as_deref().unwrap_or_default());
            if state.events.len() < EVENTS_MAX {
                state.events.push(event);
            }
        }
        state.keep_book();
        let Some(event) = state.events.get(heard.events).cloned() else {
            return Ok(None);
        };
        heard.events += 1;
        if event.0 == Event::DeviceFatal {
            active.is_dead.store(true, Ordering::Relaxed);
        }
        Ok(Some(event))
    }
}

impl State {
    fn keep_book(&mut self) {
        if let Some(book) = &mut self.book {
            book.keep(&self.injector);
        }
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("is_loaded", &self.is_loaded())
            .finish_non_exhaustive()
    }
}

/// Those that tell at the end of the process which of their rules never hit.
static TOLD_AT_THE_END: Mutex<Vec<Weak<Faults>>> = Mutex::new(Vec::new());

/// Tell on standard error, at the end of the process, which rules never hit. Under `softroce run` that command does.
pub(crate) fn tell_at_the_end(faults: &Arc<Faults>) {
    if crate::journal::directory().is_none() {
        TOLD_AT_THE_END.lock().push(Arc::downgrade(faults));
    }
}

/// The process ends.
pub(crate) fn tell() {
    let Some(told) = TOLD_AT_THE_END.try_lock() else {
        return;
    };
    for faults in told.iter().filter_map(Weak::upgrade) {
        let text = unhit(
            faults
                .tallies()
                .iter()
                .map(|tally| (tally.name.as_str(), tally.hits)),
        );
        if !text.is_empty() {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }
    }
}

/// A line for each rule that never hit.
pub fn unhit<'a>(rules: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut text = String::new();
    for (name, _) in rules.filter(|(_, hits)| *hits == 0) {
        let _ = writeln!(text, "softroce: the fault rule {name:?} never hit anything");
    }
    text
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::MonotonicClock;
    use softroce_faults::{VerbSet, When};

    fn faults() -> Arc<Faults> {
        Faults::new(Arc::new(MonotonicClock))
    }

    #[test]
    fn a_call_fails_as_the_rule_says_and_never_without_rules() {
        let faults = faults();
        faults.verb(Verb::RegMr).unwrap();
        faults.load(Rules::default().verb(VerbSet::one(Verb::RegMr), When::nth(2), libc::ENOMEM));
        faults.verb(Verb::RegMr).unwrap();
        let error = faults.verb(Verb::RegMr).unwrap_err();
        assert_eq!(error.errno(), libc::ENOMEM);
        assert!(
            error
                .to_string()
                .contains("reg_mr: ENOMEM, as the fault rule \"verb 1\""),
            "{error}"
        );
        assert_eq!(faults.tallies()[0].hits, 1);
        faults.clear();
        faults.verb(Verb::RegMr).unwrap();
        assert!(faults.tallies().is_empty());
    }

    #[test]
    fn every_device_hears_of_every_event_and_of_other_rules() {
        let faults = faults();
        let rules = Rules::parse("[[event]]\nat = \"0s\"\ndo = \"port-down\"").unwrap();
        faults.load(rules);
        for _device in 0..2 {
            let mut heard = Heard::default();
            assert_eq!(faults.next_event_ns(&heard), Some(0));
            assert_eq!(faults.next_event(&mut heard), Err(()));
            let event = faults.next_event(&mut heard).unwrap();
            assert_eq!(event.map(|(event, _)| event), Some(Event::PortDown));
            assert_eq!(faults.next_event(&mut heard), Ok(None));
            assert_eq!(faults.next_event_ns(&heard), None);
        }
        faults.clear();
    }

    #[test]
    fn a_failed_device_does_only_what_puts_things_away() {
        let faults = faults();
        faults.load(Rules::parse("[[event]]\nat = \"0s\"\ndo = \"device-fatal\"").unwrap());
        let mut heard = Heard::default();
        while faults.next_event(&mut heard) != Ok(None) {}
        assert_eq!(faults.verb(Verb::CreateQp).unwrap_err().errno(), libc::EIO);
        assert_eq!(faults.expect_alive("connect").unwrap_err().errno(), libc::EIO);
        faults.verb(Verb::DestroyQp).unwrap();
        faults.verb(Verb::PollCq).unwrap();
        faults.clear();
        faults.expect_alive("connect").unwrap();
    }

    #[test]
    fn rules_that_never_hit_are_named() {
        let text = unhit([("a", 0), ("b", 1), ("c", 0)].into_iter());
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("\"a\"") && text.contains("\"c\""));
    }
}
