//! A device: engine and fabric behind the gate, and the threads that bring them forward.

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use softroce_engine::{Counters, ObjectCounts, Time};
use verbs_api::{Error, ErrorKind, Gid, PostError, Result};

use crate::announce;
use crate::card::{Card, Done, RoundAcks};
use crate::clock::Clock;
use crate::fabric::{Fabric, FabricCounters};
use crate::faults::Faults;
use crate::fork;
use crate::gate::{Gate, Guard, Left};
use crate::journal::ask::Ear;
use crate::options::ProgressMode;
use crate::os::Thread;
use crate::pace::{Pace, Poller};
use crate::system_counters::SystemCounters;
use crate::worker;

/// How often a poll looks for packets, as long as there are none, when the program does nothing but polling: what else a
/// poll does then delays the finding less.
const LOOKS_OF_A_SPINNER: u32 = 3;
/// Rounds that one caller does on behalf of refused pollers before it goes its way.
const ROUNDS_FOR_OTHERS: u32 = 4;
/// Rounds of [`Device::progress`]: it works until nothing is left, but a bound is a bound.
const MANUAL_ROUNDS: u32 = 10_000;

/// A device. Clones are the same device; it closes when the last one, and everything made on it, is dropped.
#[derive(Clone)]
pub struct Device {
    handle: Arc<Handle>,
}

/// Ends the background thread when the last owner goes.
struct Handle {
    shared: Arc<Shared>,
    worker: Option<Thread>,
}

/// What the program's threads and the background thread share.
pub(crate) struct Shared {
    pub(crate) name: String,
    node_guid: u64,
    /// Of the address that it was opened on.
    pub(crate) gid: Option<Gid>,
    /// Never dropped in a child that inherited it: its sockets and files are the parent's.
    pub(crate) gate: Gate<ManuallyDrop<Card>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mode: ProgressMode,
    pub(crate) pace: Pace,
    /// Of the process that opened it, see [`fork`].
    generation: u32,
    /// Held by a fork in progress.
    pub(crate) held_for_fork: AtomicBool,
    /// The fabric's descriptors, for a child that cannot use the fabric itself.
    pub(crate) fds: Vec<RawFd>,
    /// Where a run asks what is going on. Never dropped in a child that inherited it, as the gate.
    pub(crate) ear: ManuallyDrop<Option<Ear>>,
    /// Asked about every verb.
    pub(crate) faults: Arc<Faults>,
    system_counters: SystemCounters,
}

/// What engine and fabric have counted.
#[derive(Clone, Debug)]
pub struct DeviceCounters {
    /// The engine's.
    pub engine: Counters,
    /// The fabric's.
    pub fabric: FabricCounters,
}

impl Device {
    /// A device on `fabric`, with the time of `clock`. The same seed and inputs give the same packets.
    ///
    /// # Panics
    /// When the system refuses the background thread or its descriptor (never in [`ProgressMode::Manual`]);
    /// [`try_new`](Self::try_new) reports that instead.
    pub fn new(
        name: &str,
        fabric: Box<dyn Fabric>,
        clock: Arc<dyn Clock>,
        mode: ProgressMode,
        seed: u64,
    ) -> Device {
        Device::try_new(name, fabric, clock, mode, seed).expect("the system gives a thread and a descriptor")
    }

    /// As [`new`](Self::new), with the system's refusal as an error.
    pub fn try_new(
        name: &str,
        fabric: Box<dyn Fabric>,
        clock: Arc<dyn Clock>,
        mode: ProgressMode,
        seed: u64,
    ) -> Result<Device> {
        let faults = Faults::new(clock.clone());
        Device::with_faults(name, fabric, clock, (mode, seed), faults)
    }

    /// As [`try_new`](Self::try_new), with fault rules about its verbs and completions. Those about packets and events
    /// are for the fabric.
    pub fn with_faults(
        name: &str,
        fabric: Box<dyn Fabric>,
        clock: Arc<dyn Clock>,
        (mode, seed): (ProgressMode, u64),
        faults: Arc<Faults>,
    ) -> Result<Device> {
        announce::start();
        let card = Card::new(fabric, seed);
        let pace = match mode {
            ProgressMode::Manual => Pace::without_thread(),
            ProgressMode::Auto | ProgressMode::ThreadOnly => Pace::with_thread()
                .map_err(|e| Error::system("no descriptor for the background thread", e))?,
        };
        let mut fds = card.fds();
        let ear = match mode {
            ProgressMode::Manual => None,
            ProgressMode::Auto | ProgressMode::ThreadOnly => Ear::open(),
        };
        fds.extend(ear.as_ref().map(Ear::fd));
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            node_guid: card.engine.device_attr().node_guid,
            gid: card.engine.gid_table().first().map(|entry| entry.gid),
            gate: Gate::new(ManuallyDrop::new(card)),
            clock,
            mode,
            pace,
            generation: fork::generation(),
            held_for_fork: AtomicBool::new(false),
            fds,
            ear: ManuallyDrop::new(ear),
            faults,
            system_counters: SystemCounters::of(name),
        });
        fork::register(&shared)?;
        let worker = match mode {
            ProgressMode::Manual => None,
            ProgressMode::Auto | ProgressMode::ThreadOnly => {
                let spawned = worker::spawn(&shared);
                Some(spawned.map_err(|e| {
                    fork::forget(&shared);
                    Error::system("cannot start the background thread of the device", e)
                })?)
            }
        };
        let device = Device {
            handle: Arc::new(Handle { shared, worker }),
        };
        device.faults_changed()?;
        Ok(device)
    }

    /// Its fault rules.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.handle.shared.faults
    }

    /// Go by the fault rules as they are now: call it after they were loaded or cleared.
    ///
    /// # Errors
    /// ENODEV in a forked child, which has no device.
    pub fn faults_changed(&self) -> Result<()> {
        self.handle.shared.faults_changed()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.handle))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.handle.shared.name
    }

    pub(crate) fn node_guid(&self) -> u64 {
        self.handle.shared.node_guid
    }

    /// For [`ProgressMode::Manual`]: receive, run due timers and send, until nothing is left to do now.
    /// True when something was done.
    pub fn progress(&self) -> bool {
        let shared = &self.handle.shared;
        if !shared.is_owned() {
            return false;
        }
        let mut guard = shared.gate.enter();
        guard.look_at_port(shared.clock.now());
        let mut something = false;
        for _ in 0..MANUAL_ROUNDS {
            guard.clear_again();
            let done = guard.round(shared.clock.now(), RoundAcks::Now, &shared.pace);
            something |= done.something();
            if !done.something() && !done.more {
                break;
            }
        }
        let _ = guard.leave();
        something
    }

    /// When the engine next wants attention even if nothing arrives.
    pub fn next_timeout(&self) -> Option<Time> {
        let shared = &self.handle.shared;
        shared.check_owner().ok()?;
        let guard = shared.gate.enter();
        let deadline = guard.poll_timeout();
        shared.leave(guard);
        deadline
    }

    /// How many objects of each kind exist on it; none in a forked child, which has no device.
    pub fn objects(&self) -> ObjectCounts {
        let shared = &self.handle.shared;
        shared.look(|card| card.engine.objects()).unwrap_or_default()
    }

    /// What engine and fabric have counted. All zero in a forked child, which has no device.
    pub fn counters(&self) -> DeviceCounters {
        let shared = &self.handle.shared;
        if !shared.is_owned() {
            return DeviceCounters {
                engine: Counters::default(),
                fabric: FabricCounters::default(),
            };
        }
        let guard = shared.gate.enter();
        let (engine, fabric) = guard.counters();
        shared.leave(guard);
        DeviceCounters { engine, fabric }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.handle.shared.name)
            .finish()
    }
}

/// Finds a device that is still open.
#[derive(Default)]
pub(crate) struct WeakDevice(std::sync::Weak<Handle>);

impl WeakDevice {
    pub(crate) fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(|handle| Device { handle })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        fork::forget(&self.shared);
        let Some(worker) = self.worker.take() else { return };
        if !self.shared.is_owned() {
            // The thread exists in the parent only: there is nothing to join.
            return;
        }
        self.shared.pace.stop();
        // It never holds a `Handle`, so it is never this thread; and it sleeps on the waker, so it ends at once.
        worker.join();
        self.shared.tell_counters();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_owned() {
            // SAFETY: nobody uses the card after its owner.
            unsafe { ManuallyDrop::drop(self.gate.get_mut()) };
            if let Some(ear) = &*self.ear {
                ear.close();
            }
            // SAFETY: nor its ear.
            unsafe { ManuallyDrop::drop(&mut self.ear) };
        }
    }
}

type Inside<'a> = Guard<'a, ManuallyDrop<Card>>;

impl Shared {
    /// Bring the files that show counters up to date.
    pub(crate) fn tell_counters(&self) {
        if !self.system_counters.are_shown() {
            return;
        }
        let guard = self.gate.enter();
        let (counted, _) = guard.counters();
        self.leave(guard);
        self.system_counters.tell(&counted);
    }

    /// The same by whoever is inside.
    pub(crate) fn tell_counters_of(&self, card: &Card) {
        self.system_counters.tell(&card.counters().0);
    }

    /// ENODEV in a child that inherited the device through fork.
    pub(crate) fn check_owner(&self) -> Result<()> {
        if self.is_owned() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NotFound,
            "this object was inherited through fork and belongs to the parent process; open the device anew in the child",
        ))
    }

    pub(crate) fn faults_changed(&self) -> Result<()> {
        self.verb(|card, now| {
            card.use_faults(now, &self.faults);
            Ok(())
        })
    }

    /// False in a child that inherited the device through fork.
    pub(crate) fn is_owned(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Run a verb inside the gate, waiting for it; then send and report what it caused.
    pub(crate) fn verb<R>(&self, f: impl FnOnce(&mut Card, Time) -> Result<R>) -> Result<R> {
        self.check_owner()?;
        let mut guard = self.gate.enter();
        let now = self.clock.now();
        let result = f(&mut guard, now);
        if self.mode == ProgressMode::Auto {
            let done = guard.settle(now, &self.pace);
            self.leave_over(done);
        } else {
            // Packets are the thread's, or the simulator's; events are told at once.
            guard.pass_events_on(&self.pace, &mut Done::default());
            self.pace.wake_sleeper();
        }
        self.leave(guard);
        result
    }

    /// Look at something inside the gate, waiting for it. Causes nothing.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&Card) -> R) -> Result<R> {
        self.check_owner()?;
        let guard = self.gate.enter();
        let result = f(&guard);
        self.leave(guard);
        Ok(result)
    }

    /// Post sends to the queue pair `qpn` inside the gate, waiting for it. `f` tells how many bytes it posted.
    ///
    /// What can leave leaves at once, with acknowledgements behind it. Only while a program polls and requests of the
    /// queue pair are under way do small ones gather: the next poll sends them as one train, or the background thread
    /// does when no poll comes.
    pub(crate) fn post(
        &self,
        qpn: u32,
        f: impl FnOnce(&mut Card, Time) -> (u64, Result<(), PostError>),
    ) -> Result<(), PostError> {
        self.check_owner()
            .map_err(|error| PostError { posted: 0, error })?;
        let mut guard = self.gate.enter();
        // Its completion may be taken before this thread leaves.
        announce::given(&raw const self.gate);
        let now = self.clock.now();
        self.pace.posted(now);
        let (bytes, result) = f(&mut guard, now);
        match self.mode {
            ProgressMode::Auto => {
                if !self.pace.thread_watches() || !guard.gathers(qpn, bytes) {
                    let done = guard.settle(now, &self.pace);
                    self.leave_over(done);
                }
            }
            ProgressMode::ThreadOnly => self.pace.wake_sleeper(),
            ProgressMode::Manual => {}
        }
        self.leave(guard);
        result
    }

    /// Post receives inside the gate, waiting for it. No packet follows from that, but completions may (flushes).
    pub(crate) fn post_receives(
        &self,
        f: impl FnOnce(&mut Card, Time) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.check_owner()
            .map_err(|error| PostError { posted: 0, error })?;
        let mut guard = self.gate.enter();
        announce::given(&raw const self.gate);
        let result = f(&mut guard, self.clock.now());
        guard.pass_events_on(&self.pace, &mut Done::default());
        self.leave(guard);
        result
    }

    /// A polling thread's round, if nobody else is inside. Never waits. Whether it found something that had arrived.
    pub(crate) fn poll_round(&self) -> bool {
        let Some(guard) = self.gate.try_enter() else {
            return false;
        };
        let now = self.clock.now();
        let looks = match self.pace.polled(now) {
            Poller::Spins => LOOKS_OF_A_SPINNER,
            Poller::Works => 1,
        };
        let (left, received) = self.round_and_leave(guard, now, looks);
        if left == Left::Again {
            self.rounds_for_others();
        }
        received > 0
    }

    /// How many datagrams it received comes with it.
    fn round_and_leave(&self, mut guard: Inside<'_>, now: Time, looks: u32) -> (Left, usize) {
        guard.clear_again();
        let done = guard.round_of_looks(now, RoundAcks::WithAnswer, &self.pace, looks);
        if done.received > 0 {
            self.pace.found_by_poll();
        }
        self.leave_over(done);
        self.pace.deadline_is(guard.poll_timeout());
        let left = guard.leave();
        self.pace.ring();
        (left, done.received)
    }

    /// What a round leaves over is for the background thread, should it sleep: the program may not come back soon. Call
    /// inside the gate.
    fn leave_over(&self, done: Done) {
        if done.more {
            self.pace.wake_sleeper();
        }
    }

    /// Leave after something that was no round.
    pub(crate) fn leave(&self, guard: Inside<'_>) {
        self.pace.deadline_is(guard.poll_timeout());
        let left = guard.leave();
        self.pace.ring();
        if left == Left::Again && self.mode == ProgressMode::Auto {
            self.rounds_for_others();
        }
    }

    fn rounds_for_others(&self) {
        for _ in 0..ROUNDS_FOR_OTHERS {
            let Some(guard) = self.gate.try_enter() else {
                return;
            };
            if self.round_and_leave(guard, self.clock.now(), 1).0 == Left::Quiet {
                return;
            }
        }
    }
}
