//! How the threads of the program and the background thread agree on who serves the sockets.
//!
//! The background thread *serves* (rounds, spinning for a moment after traffic), *sleeps* on the sockets until a
//! packet, a deadline or the waker, or *watches*: it gives way to a program that polls, looking up now and then whether
//! it still does. It changes between these while it is inside the gate, and verbs that need it elsewhere look at its
//! state while *they* are inside: no wake-up can be lost between the two. Whether to give way it learns from what it
//! finds when it takes over: packets that lay there waited for a program that does something else than poll. The waker itself is rung outside
//! ([`Pace::ring`]), for the thread may take the core at once and would find the gate shut.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use softroce_engine::Time;

use crate::os::{EventFd, TimerFd};
use crate::tempo::Tempo;

/// The background thread gives way to a program that polled not longer ago than this, ns.
const GIVES_WAY_NS: u64 = 50_000;
/// The timer's time, ns. A polling program holds the thread off by setting the timer anew when half of it is over, so
/// the thread takes over 95 to 190 µs after the last poll. Setting it costs 5 to 12 µs on a virtual machine, and waking
/// up to look costs 20 µs: hence a timer that a poll moves, and moves seldom, and more seldom ...
const TAKES_OVER_AFTER_NS: u64 = 190_000;
/// ... the longer the program has polled without a pause: the time is this part of it, up to ...
const PART_OF_STREAK: u64 = 8;
/// ... so long, ns.
const TAKES_OVER_LATEST_NS: u64 = 4_000_000;
/// Time between two polls that counts as a pause, ns.
const PAUSE_NS: u64 = TAKES_OVER_AFTER_NS / 2;
/// Polls that begin closer together than this, ns, are those of a program that does nothing else.
const SPINS_WITHIN_NS: u64 = 3_000;
/// A program whose polls found fewer arrivals than this in a row, before the thread took over and found one that had
/// waited for it, does not wait by polling. One that found more does, and was held up for once.
const FOUND_BY_POLLS_MIN: u32 = 16;
/// For so long the thread does not give way to it any more, ns; doubles with each such time, up to the second number.
const STAYS_NS: (u64, u64) = (1_000_000, 256_000_000);
/// A program that posted not longer ago than this, ns, may be about to post its answer to what arrives.
const ANSWERS_WITHIN_NS: u64 = 200_000;

const SERVES: u32 = 0;
const SLEEPS: u32 = 1;
const WATCHES: u32 = 2;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Pace {
    /// `None` without a background thread.
    bells: Option<Bells>,
    /// The times above are for a usual machine.
    tempo: Tempo,
    stop: AtomicBool,
    /// When a thread of the program last received, ns; 0 is never.
    last_poll_ns: AtomicU64,
    /// Armed completion queues: programs that will sleep rather than poll.
    armed_cqs: AtomicU32,
    thread: AtomicU32,
    /// Since when a thread of the program has polled without a pause, ns.
    streak_since_ns: AtomicU64,
    /// When the watching thread is to be held off again, ns.
    hold_off_at_ns: AtomicU64,
    /// When the timer runs out, ns; a time in the past when it is not running.
    runs_out_ns: AtomicU64,
    /// When a thread of the program last posted sends, ns; 0 is never.
    last_post_ns: AtomicU64,
    /// Arrivals that polls have found since the thread found one.
    found_by_polls: AtomicU32,
    /// The thread does not give way before then, ns ...
    stays_until_ns: AtomicU64,
    /// ... for it did so in vain, and stayed for so long after that, ns.
    stayed_ns: AtomicU64,
    /// The waker is to be rung.
    wanted: AtomicBool,
    /// Until when the thread sleeps, ns.
    sleeps_until_ns: AtomicU64,
}

/// What a program does that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poller {
    /// Nothing but polling.
    Spins,
    /// Something else in between.
    Works,
}

/// What ends the thread's rest.
#[derive(Debug)]
pub(crate) struct Bells {
    /// Rung by whoever needs the thread.
    pub(crate) waker: EventFd,
    /// Runs out when the program has not polled for a while (watching), or at the engine's next deadline (sleeping).
    pub(crate) timer: TimerFd,
}

impl Pace {
    /// For a device with a background thread.
    pub(crate) fn with_thread() -> io::Result<Self> {
        let bells = Bells {
            waker: EventFd::new()?,
            timer: TimerFd::new()?,
        };
        Ok(Pace {
            tempo: Tempo::measured_on(&bells.waker),
            bells: Some(bells),
            ..Pace::without_thread()
        })
    }

    /// For a device without.
    pub(crate) fn without_thread() -> Self {
        Pace {
            bells: None,
            tempo: Tempo::USUAL,
            streak_since_ns: AtomicU64::new(0),
            hold_off_at_ns: AtomicU64::new(0),
            runs_out_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            last_poll_ns: AtomicU64::new(0),
            last_post_ns: AtomicU64::new(0),
            found_by_polls: AtomicU32::new(0),
            stays_until_ns: AtomicU64::new(0),
            stayed_ns: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            armed_cqs: AtomicU32::new(0),
            thread: AtomicU32::new(SERVES),
            sleeps_until_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// A thread of the program does a round at `now`. What it seems to do between its polls. Call inside the gate.
    pub(crate) fn polled(&self, now: Time) -> Poller {
        let now_ns = now.as_nanos();
        let apart_ns = now_ns.saturating_sub(self.last_poll_ns.load(Ordering::Relaxed));
        if apart_ns >= self.tempo.scale(PAUSE_NS) {
            self.streak_since_ns.store(now_ns, Ordering::Relaxed);
        }
        self.last_poll_ns.store(now_ns, Ordering::Relaxed);
        if now_ns >= self.hold_off_at_ns.load(Ordering::Relaxed) && self.thread_watches() {
            self.hold_off(now_ns);
        }
        match apart_ns < self.tempo.scale(SPINS_WITHIN_NS) {
            true => Poller::Spins,
            false => Poller::Works,
        }
    }

    /// A round of a thread of the program found something that had arrived. Call inside the gate.
    pub(crate) fn found_by_poll(&self) {
        let found = self.found_by_polls.load(Ordering::Relaxed).saturating_add(1);
        self.found_by_polls.store(found, Ordering::Relaxed);
        if found >= FOUND_BY_POLLS_MIN {
            self.stays_until_ns.store(0, Ordering::Relaxed);
        }
    }

    fn hold_off(&self, now_ns: u64) {
        let streak_ns = now_ns.saturating_sub(self.streak_since_ns.load(Ordering::Relaxed));
        let after_ns =
            (streak_ns / PART_OF_STREAK).clamp(self.tempo.scale(TAKES_OVER_AFTER_NS), TAKES_OVER_LATEST_NS);
        self.hold_off_at_ns
            .store(now_ns + after_ns / 2, Ordering::Relaxed);
        self.set_timer(now_ns, after_ns);
    }

    fn set_timer(&self, now_ns: u64, after_ns: u64) {
        self.runs_out_ns
            .store(now_ns.saturating_add(after_ns), Ordering::Relaxed);
        if let Some(bells) = &self.bells {
            bells.timer.set(Duration::from_nanos(after_ns));
        }
    }

    /// A thread of the program posts sends at `now`.
    pub(crate) fn posted(&self, now: Time) {
        self.last_post_ns.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Whether a thread of the program has posted sends since `since`.
    pub(crate) fn posted_since(&self, since: Time) -> bool {
        self.last_post_ns.load(Ordering::Relaxed) >= since.as_nanos()
    }

    /// Whether the program has polled in the time `within_ns` before `now`, and posted nothing since.
    pub(crate) fn polled_without_answer(&self, now: Time, within_ns: u64) -> bool {
        let polled_ns = self.last_poll_ns.load(Ordering::Relaxed);
        polled_ns > self.last_post_ns.load(Ordering::Relaxed)
            && now.as_nanos().saturating_sub(polled_ns) < within_ns
    }

    /// Whether the program, which does not poll, may be about to answer what arrives.
    pub(crate) fn may_answer(&self, now: Time) -> bool {
        now.as_nanos()
            .saturating_sub(self.last_post_ns.load(Ordering::Relaxed))
            < self.tempo.scale(ANSWERS_WITHIN_NS)
    }

    /// A completion queue was armed. Call inside the gate.
    pub(crate) fn armed(&self) {
        self.armed_cqs.fetch_add(1, Ordering::Relaxed);
        if self.thread.load(Ordering::Relaxed) == WATCHES {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// An armed completion queue fired or is gone. Call inside the gate.
    pub(crate) fn disarmed(&self) {
        self.armed_cqs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a polling program makes the background thread superfluous.
    pub(crate) fn gives_way(&self, now: Time) -> bool {
        self.armed_cqs.load(Ordering::Relaxed) == 0
            && now.as_nanos() >= self.stays_until_ns.load(Ordering::Relaxed)
            && now
                .as_nanos()
                .saturating_sub(self.last_poll_ns.load(Ordering::Relaxed))
                < self.tempo.scale(GIVES_WAY_NS)
    }

    /// Whether the thread watches: then work may be left to the next poll, or to the thread that takes over if none
    /// comes. Call inside the gate.
    pub(crate) fn thread_watches(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == WATCHES
    }

    /// Wake the thread if it would sleep beyond the engine's next deadline. Call inside the gate.
    pub(crate) fn deadline_is(&self, deadline: Option<Time>) {
        if deadline.is_some_and(|d| d.as_nanos() < self.sleeps_until_ns.load(Ordering::Relaxed)) {
            self.wake_sleeper();
        }
    }

    /// Wake the thread if it sleeps: there is work that only it does. Call inside the gate.
    pub(crate) fn wake_sleeper(&self) {
        if self.thread.load(Ordering::Relaxed) == SLEEPS {
            // Once is enough: it is as good as serving now.
            self.thread.store(SERVES, Ordering::Relaxed);
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Ring the waker, if that was found to be needed. Call outside the gate.
    pub(crate) fn ring(&self) {
        if self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(bells) = &self.bells {
            bells.waker.raise();
        }
    }

    /// Tell the thread to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    // ---- the thread's side ----

    /// Whether it should end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// It serves now.
    pub(crate) fn serve(&self) {
        self.thread.store(SERVES, Ordering::Relaxed);
    }

    /// It watches from `now` on. Call inside the gate.
    pub(crate) fn watch(&self, now: Time) {
        self.thread.store(WATCHES, Ordering::Relaxed);
        self.hold_off(now.as_nanos());
    }

    /// It has found something that had arrived, in a round at `now`; `is_late` when it gave way before. Call inside the
    /// gate.
    ///
    /// A program that looks at its memory between short polls leaves everything lying until the thread takes over: it
    /// is served rather than given way to, for a while or until its polls find what comes.
    pub(crate) fn found_by_thread(&self, now: Time, is_late: bool) {
        let found_by_polls = self.found_by_polls.swap(0, Ordering::Relaxed);
        if !is_late {
            return;
        }
        let stayed_ns = self.stayed_ns.load(Ordering::Relaxed);
        if found_by_polls >= FOUND_BY_POLLS_MIN {
            self.stayed_ns.store(stayed_ns / 2, Ordering::Relaxed);
            return;
        }
        let stay_ns = (stayed_ns * 2).clamp(STAYS_NS.0, STAYS_NS.1);
        self.stayed_ns.store(stay_ns, Ordering::Relaxed);
        self.stays_until_ns
            .store(now.as_nanos() + stay_ns, Ordering::Relaxed);
    }

    /// It sleeps from `now` on, until `until` at the latest. Call inside the gate.
    ///
    /// A timer that runs out earlier is left as it is: waking once for nothing is cheaper than setting it each time.
    pub(crate) fn sleep(&self, now: Time, until: Time) {
        let runs_out_ns = self.runs_out_ns.load(Ordering::Relaxed);
        if until != Time::MAX && !(now.as_nanos() < runs_out_ns && runs_out_ns <= until.as_nanos()) {
            self.set_timer(now.as_nanos(), until.since(now));
        }
        self.sleeps_until_ns.store(until.as_nanos(), Ordering::Relaxed);
        self.thread.store(SLEEPS, Ordering::Relaxed);
    }

    /// The timer has run out.
    pub(crate) fn timer_ran_out(&self) {
        self.runs_out_ns.store(0, Ordering::Relaxed);
        if let Some(bells) = &self.bells {
            bells.timer.clear();
        }
    }

    /// How slow the machine is.
    pub(crate) fn tempo(&self) -> Tempo {
        self.tempo
    }

    /// What ends its rest.
    pub(crate) fn bells(&self) -> Option<&Bells> {
        self.bells.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_polls_follow_each_other_at_once_does_nothing_else() {
        let pace = Pace::without_thread();
        let poll_at = |ns| pace.polled(Time::from_nanos(1_000_000 + ns));
        assert_eq!(poll_at(0), Poller::Works, "the first poll for long");
        assert_eq!(poll_at(1_500), Poller::Spins);
        assert_eq!(poll_at(1_500 + SPINS_WITHIN_NS), Poller::Works);
        assert_eq!(poll_at(1_500 + 2 * SPINS_WITHIN_NS - 1), Poller::Spins);
    }

    #[test]
    fn on_a_slow_machine_a_program_may_take_longer_between_two_polls() {
        let gives_way_after = |tempo, silence_us: u64| {
            let pace = Pace {
                tempo,
                ..Pace::without_thread()
            };
            pace.polled(Time::from_nanos(1_000_000));
            pace.gives_way(Time::from_nanos(1_000_000 + silence_us * 1000))
        };
        assert!(gives_way_after(Tempo::USUAL, 49) && !gives_way_after(Tempo::USUAL, 50));
        let slow = Tempo::of_system_call(1_160);
        assert!(gives_way_after(slow, 199) && !gives_way_after(slow, 200));
    }

    #[test]
    fn a_program_that_leaves_packets_lying_is_not_given_way_to_until_its_polls_find_them() {
        let pace = Pace::without_thread();
        let at = |us: u64| Time::from_nanos(us * 1000);
        let polls_at = |us| {
            pace.polled(at(us));
            pace.gives_way(at(us + 1))
        };
        assert!(polls_at(1_000));
        pace.watch(at(1_001));
        pace.found_by_thread(at(1_200), true);
        assert!(!polls_at(1_210), "it was late");
        assert!(!polls_at(2_190), "for a millisecond");
        assert!(polls_at(2_201));
        pace.found_by_thread(at(2_400), true);
        assert!(!polls_at(4_390), "twice as long the next time");
        for _ in 0..FOUND_BY_POLLS_MIN {
            pace.found_by_poll();
        }
        assert!(polls_at(4_391), "its polls find what comes");
        pace.found_by_thread(at(4_600), true);
        assert!(polls_at(4_601), "it was held up for once");
    }
}
