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
use crate::os::{self, EventFd, poll_entry, wait_readable};
use crate::pace::LOOKS_UP_NS;

/// After traffic, the thread looks for more for so long before it sleeps, ns: a wake-up costs 5 µs and more.
const SPIN_NS: u64 = 50_000;
/// Fruitless looks before it offers its core to others between looks.
const LOOKS_BEFORE_YIELD: u32 = 3;
/// A yield that takes longer than this, ns, went to somebody who needs the core more: sleep instead of spinning.
const CONTENDED_NS: u64 = 4_000;
/// Pause in spinning after a contended yield, ns; doubles with each, up to the second number.
const PENALTY_NS: (u64, u64) = (1_000_000, 256_000_000);

/// What to do after a round.
enum Next {
    /// Look again.
    Spin,
    /// Give way to a polling program.
    Watch,
    /// Sleep until the deadline, a packet or the waker.
    Sleep(Option<Time>),
}

/// Serve until told to stop.
pub(crate) fn run(shared: &Shared, waker: &EventFd) {
    os::become_background_thread();
    let waker_entry = poll_entry(waker.as_fd().as_raw_fd());
    let guard = shared.gate.enter();
    let mut entries = vec![waker_entry];
    entries.extend(guard.fds().into_iter().map(poll_entry));
    shared.leave(guard);
    let mut spin = Spin::default();
    while !shared.pace.is_stopping() {
        match serve(shared, &mut spin) {
            Next::Spin => continue,
            Next::Watch => {
                wait_readable(&mut entries[..1], Some(Duration::from_nanos(LOOKS_UP_NS)));
                if !shared.pace.gives_way(shared.clock.now()) {
                    shared.pace.serve();
                }
            }
            Next::Sleep(deadline) => {
                let limit = deadline.map(|d| Duration::from_nanos(d.since(shared.clock.now())));
                wait_readable(&mut entries, limit);
                shared.pace.serve();
            }
        }
        if entries[0].revents != 0 {
            waker.lower();
        }
    }
}

/// One round, or none while the program polls.
fn serve(shared: &Shared, spin: &mut Spin) -> Next {
    let now = shared.clock.now();
    let may_give_way = shared.mode == ProgressMode::Auto;
    if may_give_way && shared.pace.thread_watches() {
        return Next::Watch;
    }
    let Some(mut guard) = shared.gate.try_enter() else {
        // Whoever is inside does a round for us on leaving; but it may be a verb that takes its time.
        std::thread::yield_now();
        return Next::Spin;
    };
    guard.clear_again();
    guard.look_at_port();
    let done = guard.round(now, RoundAcks::Now, &shared.pace);
    let next = if done.more {
        Next::Spin
    } else if may_give_way && shared.pace.gives_way(now) {
        shared.pace.watch();
        Next::Watch
    } else if spin.goes_on(now, done.something()) {
        Next::Spin
    } else {
        let deadline = guard.engine.poll_timeout();
        shared.pace.sleep(deadline);
        Next::Sleep(deadline)
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
#[derive(Default)]
struct Spin {
    /// Spin until then.
    until: Time,
    /// Fruitless looks in a row.
    fruitless: u32,
    /// No spinning before then: the core is wanted by others.
    not_before: Time,
    penalty_ns: u64,
}

impl Spin {
    /// Whether to look again, after a round at `now` that found something or nothing.
    fn goes_on(&mut self, now: Time, found: bool) -> bool {
        if found {
            self.fruitless = 0;
            self.until = if now >= self.not_before {
                now + SPIN_NS
            } else {
                Time::ZERO
            };
            // One more look in any case: it costs less than a needless sleep.
            return true;
        }
        self.fruitless += 1;
        now < self.until
    }

    /// Between two looks.
    fn pause(&mut self, shared: &Shared, before: Time) {
        if self.fruitless < LOOKS_BEFORE_YIELD {
            std::hint::spin_loop();
            return;
        }
        std::thread::yield_now();
        let after = shared.clock.now();
        if after.since(before) > CONTENDED_NS {
            self.penalty_ns = (self.penalty_ns * 2).clamp(PENALTY_NS.0, PENALTY_NS.1);
            self.not_before = after + self.penalty_ns;
            self.until = Time::ZERO;
        } else {
            self.penalty_ns = self.penalty_ns.saturating_sub(self.penalty_ns / 64);
        }
    }
}

/// Start the thread for a device.
pub(crate) fn spawn(shared: &Arc<Shared>) -> std::io::Result<std::thread::JoinHandle<()>> {
    let shared = shared.clone();
    os::with_signals_blocked(|| {
        std::thread::Builder::new()
            .name(format!("{}-progress", shared.name))
            .stack_size(256 * 1024)
            .spawn(move || {
                if let Some(waker) = shared.pace.waker() {
                    run(&shared, waker);
                }
            })
    })
}
