//! The background thread: it serves whenever the program's own threads do not.
//!
//! A passive RDMA target makes no calls at all, and a program that waits in `get_cq_event` makes none either. See
//! [`pace`](crate::pace) for how it gives way to a program that polls.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use softroce_engine::Time;

use crate::card::RoundAcks;
use crate::device::Shared;
use crate::gate::Left;
use crate::options::ProgressMode;
use crate::os::{self, BackgroundThread, Crowd, Thread, poll_entry, wait_readable};
use crate::pace::Bells;
use crate::tempo::Tempo;

/// After traffic, the thread looks for more for so long before it sleeps, ns: a wake-up costs 5 µs and more.
const SPIN_NS: u64 = 50_000;
/// Fruitless looks before it offers its core to others between looks.
const LOOKS_BEFORE_YIELD: u32 = 3;
/// A yield that takes longer than this, ns, went to somebody who needs the core more: sleep instead of spinning.
const CONTENDED_NS: u64 = 4_000;
/// Pause in spinning after finding more threads than processors, ns.
const CROWDED_NS: u64 = 500_000;
/// Pause in spinning after a contended yield, ns; doubles with each, up to the second number.
const PENALTY_NS: (u64, u64) = (1_000_000, 256_000_000);

/// After traffic, the thread looks up at least so often, ns, until it finds nothing any more.
const RESTLESS_NS: u64 = 4_000_000;

/// Where there is no traffic, the thread looks so often whether the program still has threads.
const LONELY: Duration = Duration::from_secs(2);

/// Acknowledgements that have waited for so long, ns, wait in vain.
const IN_VAIN_NS: u64 = 60_000;
/// After that none waits for so long, ns.
const UNANSWERED_NS: u64 = 1_000_000;

/// What to do after a round.
enum Next {
    /// Look again.
    Spin,
    /// Give way to a polling program.
    Watch,
    /// Sleep until the timer, a packet or the waker, or for so long.
    Sleep(Option<Duration>),
}

/// Why the thread does a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// It gave way, and nobody has polled for a while.
    TakesOver,
    /// Any other reason.
    Regular,
}

/// Serve until told to stop.
fn run(shared: &Shared, bells: &Bells) {
    os::become_background_thread();
    let mut loneliness = Loneliness::new(shared.clock.now());
    let guard = shared.gate.enter();
    // In this order: the part of the list that ends a rest depends on its kind.
    let mut entries = vec![
        poll_entry(bells.timer.as_fd().as_raw_fd()),
        poll_entry(bells.waker.as_fd().as_raw_fd()),
    ];
    entries.extend(shared.ear.as_ref().map(|ear| poll_entry(ear.fd())));
    // What ends a rest in which a polling program is watched.
    let watched = entries.len();
    entries.extend(guard.fds().into_iter().map(poll_entry));
    shared.leave(guard);
    const TIMER: usize = 0;
    const WAKER: usize = 1;
    const EAR: usize = 2;
    let mut spin = Spin::new(shared.pace.tempo());
    let mut answers = Answers::default();
    let mut entry = Entry::Regular;
    while !shared.pace.is_stopping() {
        let next = serve(shared, &mut spin, &mut answers, entry);
        entry = Entry::Regular;
        match next {
            Next::Spin => continue,
            Next::Watch => {
                wait_readable(&mut entries[..watched], None);
                if entries[TIMER].revents != 0 {
                    entry = Entry::TakesOver;
                }
            }
            Next::Sleep(limit) => {
                if limit.is_some() && loneliness.is_here(shared.clock.now()) {
                    return;
                }
                wait_readable(&mut entries, limit);
            }
        }
        if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            // Waiting for what is not there would never end, and take a whole processor.
            tracing::warn!(
                "the program has closed descriptors of {}; nothing is served in the background any more",
                shared.name
            );
            // Its numbers may belong to somebody else by now.
            std::mem::forget(spin);
            return;
        }
        shared.pace.serve();
        if entries[TIMER].revents != 0 {
            shared.pace.timer_ran_out();
        }
        if entries[WAKER].revents != 0 {
            bells.waker.lower();
        }
        if let Some(ear) = &*shared.ear
            && entries[EAR].revents != 0
        {
            ear.answer(shared);
        }
    }
}

/// One round, and what comes after it.
fn serve(shared: &Shared, spin: &mut Spin, answers: &mut Answers, entry: Entry) -> Next {
    let now = shared.clock.now();
    let may_give_way = shared.mode == ProgressMode::Auto;
    // It queues like a verb: the gate is never shut for long, and coming back later instead would take the core from
    // the very thread that is inside.
    let mut guard = shared.gate.enter();
    guard.clear_again();
    guard.look_at_port(now);
    let acks = answers.acks(shared, now, guard.engine.holds_acks());
    let done = guard.round(now, acks, &shared.pace);
    if done.received > 0 {
        shared.pace.found_by_thread(now, entry == Entry::TakesOver);
    }
    let next = if done.more {
        Next::Spin
    } else if may_give_way && shared.pace.gives_way(now) {
        shared.pace.watch(now);
        Next::Watch
    } else if spin.goes_on(now, done.something()) {
        Next::Spin
    } else {
        let until = spin.sleeps_until(now, guard.poll_timeout());
        shared.pace.sleep(now, until);
        Next::Sleep(spin.has_rested(now).then_some(LONELY))
    };
    if guard.leave() == Left::Again && matches!(next, Next::Sleep(_)) {
        // A poller counts on one more round.
        shared.pace.serve();
        return Next::Spin;
    }
    if matches!(next, Next::Spin) && !done.something() {
        spin.pause(shared, now);
    }
    next
}

/// Decides how long to look for more traffic before sleeping.
struct Spin {
    tempo: Tempo,
    crowd: Crowd,
    /// Spin until then.
    until: Time,
    /// When something was last found.
    last_found: Time,
    /// Fruitless looks in a row.
    fruitless: u32,
    /// No spinning before then: the core is wanted by others.
    not_before: Time,
    penalty_ns: u64,
}

impl Spin {
    fn new(tempo: Tempo) -> Self {
        Spin {
            tempo,
            crowd: Crowd::new(),
            until: Time::ZERO,
            last_found: Time::ZERO,
            fruitless: 0,
            not_before: Time::ZERO,
            penalty_ns: 0,
        }
    }

    /// Whether to look again, after a round at `now` that found something or nothing.
    fn goes_on(&mut self, now: Time, found: bool) -> bool {
        if found {
            self.fruitless = 0;
            self.last_found = now;
            self.until = if now >= self.not_before {
                now + self.tempo.scale(SPIN_NS)
            } else {
                Time::ZERO
            };
            return now >= self.not_before;
        }
        self.fruitless += 1;
        if now >= self.until {
            return false;
        }
        if self.fruitless == LOOKS_BEFORE_YIELD && self.crowd.is_there() {
            // A program that spins on its memory, most likely. It sees what came only once we are out of its way.
            self.not_before = now + CROWDED_NS;
            return false;
        }
        true
    }

    /// How long to sleep when the engine's next deadline is `deadline`. While there is traffic, the thread looks up
    /// earlier: then deadlines that come and go with every message need not wake it.
    fn sleeps_until(&self, now: Time, deadline: Option<Time>) -> Time {
        let deadline = deadline.unwrap_or(Time::MAX);
        match self.has_rested(now) {
            true => deadline,
            false => deadline.min(now + RESTLESS_NS),
        }
    }

    /// Whether there has been no traffic for a while.
    fn has_rested(&self, now: Time) -> bool {
        now.since(self.last_found) >= RESTLESS_NS
    }

    /// Between two looks.
    fn pause(&mut self, shared: &Shared, before: Time) {
        if self.fruitless < LOOKS_BEFORE_YIELD {
            std::hint::spin_loop();
            return;
        }
        std::thread::yield_now();
        let after = shared.clock.now();
        if after.since(before) > self.tempo.scale(CONTENDED_NS) {
            self.penalty_ns = (self.penalty_ns * 2).clamp(PENALTY_NS.0, PENALTY_NS.1);
            self.not_before = after + self.penalty_ns;
            self.until = Time::ZERO;
        } else {
            self.penalty_ns -= self.penalty_ns / 64;
        }
    }
}

/// Notices when the program has no threads any more.
struct Loneliness {
    thread: BackgroundThread,
    looks_at: Time,
}

impl Loneliness {
    fn new(now: Time) -> Self {
        Loneliness {
            thread: BackgroundThread::begin(),
            looks_at: now + LONELY.as_nanos() as u64,
        }
    }

    /// Whether it has none; looks now and then.
    fn is_here(&mut self, now: Time) -> bool {
        if now < self.looks_at {
            return false;
        }
        self.looks_at = now + LONELY.as_nanos() as u64;
        self.thread.is_without_program()
    }
}

/// Decides whether acknowledgements wait for the program's answer.
///
/// Those that travel with it cost neither side a packet and the peer's thread no wake-up. But a program that posts
/// something now and then answers nothing: once acknowledgements have waited in vain, they do not wait for a while.
#[derive(Default)]
struct Answers {
    /// Since when acknowledgements wait.
    held_since: Option<Time>,
    not_before: Time,
}

impl Answers {
    /// For a round at `now`; `held` tells whether acknowledgements of an earlier one still wait.
    fn acks(&mut self, shared: &Shared, now: Time, held: bool) -> RoundAcks {
        // What waited when the program posted went with that.
        let since = self
            .held_since
            .filter(|since| held && !shared.pace.posted_since(*since))
            .unwrap_or(now);
        if now.since(since) > shared.pace.tempo().scale(IN_VAIN_NS) {
            self.not_before = now + UNANSWERED_NS;
        }
        self.held_since = Some(since);
        match now >= self.not_before && shared.pace.may_answer(now) {
            true => RoundAcks::Later,
            false => RoundAcks::Now,
        }
    }
}

/// Start the thread for a device.
pub(crate) fn spawn(shared: &Arc<Shared>) -> std::io::Result<Thread> {
    const STACK_BYTES: usize = 256 * 1024;
    let shared = shared.clone();
    os::with_signals_blocked(|| {
        Thread::spawn(&format!("{}-progress", shared.name), STACK_BYTES, move || {
            if let Some(bells) = shared.pace.bells() {
                run(&shared, bells);
            }
        })
    })
}
