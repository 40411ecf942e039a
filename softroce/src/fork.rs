//! What becomes of devices when the process forks.
//!
//! A child shares its parent's sockets: packets that it would take are lost to the parent, and while it lives the
//! parent's address and claims stay taken. So in the child, before anything else runs, every device is closed and
//! disowned: its verbs answer ENODEV, and dropping or destroying its handles does nothing, with success: programs clean
//! up at their end, in children too. A child can open devices of its own.
//!
//! The handlers wait for devices to be at rest, but not for long: a fork from a signal handler that interrupted a verb
//! of this very thread would wait for itself. The child then closes the descriptors by number and leaves the rest.
//!
//! A child that is made by a system call, past the C library, runs no handlers. It notices at its first call here.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use verbs_api::{Error, Result};

use crate::card::Card;
use crate::device::Shared;
use crate::gate::Gate;
use crate::os;

/// How long a fork waits for a device to come to rest. Rounds are far shorter.
const PATIENCE: Duration = Duration::from_millis(50);

/// Counts the forks between the first process and this one. What was made in an earlier generation is a parent's.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process whose devices the registry lists. A child of `vfork` is another one for which no handler has run: it works
/// in its parent's memory, with descriptors of its own.
static PROCESS: AtomicU32 = AtomicU32::new(0);

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// [`NATIVE`] in the process that opened devices, [`INHERITED`] in a child for which no handler has run: one that was made
/// by a system call. Not there where the system has no such mark.
static BIRTHMARK: OnceLock<&AtomicU32> = OnceLock::new();
const INHERITED: u32 = 0;
const CHANGING: u32 = 1;
const NATIVE: u32 = 2;

/// The open devices of this process.
struct Registry {
    devices: Gate<Vec<Arc<Shared>>>,
    /// A fork in progress is inside the gate.
    held: AtomicBool,
    /// Inside while a device opens: its sockets are not registered yet, and would slip into a child.
    opening: Gate<()>,
    /// A fork in progress is inside that gate.
    opening_held: AtomicBool,
}

/// Watch for forks from now on.
fn registry() -> Result<&'static Registry> {
    generation();
    static WATCHING: AtomicBool = AtomicBool::new(false);
    let registry = REGISTRY.get_or_init(|| Registry {
        devices: Gate::new(Vec::new()),
        held: AtomicBool::new(false),
        opening: Gate::new(()),
        opening_held: AtomicBool::new(false),
    });
    if !WATCHING.swap(true, Ordering::AcqRel) {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        if let Ok(mark) = os::birthmark() {
            mark.store(NATIVE, Ordering::Release);
            let _ = BIRTHMARK.set(mark);
        }
        os::at_fork(prepare, parent, child).map_err(|e| Error::system("cannot watch for forks", e))?;
    }
    Ok(registry)
}

/// Open a device, its registration included, with no fork in the middle of it.
pub(crate) fn open<R>(open: impl FnOnce() -> Result<R>) -> Result<R> {
    let guard = registry()?.opening.enter();
    let result = open();
    let _ = guard.leave();
    result
}

/// This process's generation.
pub(crate) fn generation() -> u32 {
    if let Some(mark) = BIRTHMARK.get()
        && mark.load(Ordering::Acquire) != NATIVE
    {
        notice_unseen_fork(mark);
    }
    GENERATION.load(Ordering::Relaxed)
}

/// This is a child, and no handler has run: the first call that it makes here does their work, as far as that can still be
/// done. What a child that never calls keeps open, nobody can close.
#[cold]
fn notice_unseen_fork(mark: &AtomicU32) {
    let is_first = mark
        .compare_exchange(INHERITED, CHANGING, Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    if !is_first {
        while mark.load(Ordering::Acquire) == CHANGING {
            std::thread::yield_now();
        }
        return;
    }
    if let Some(registry) = REGISTRY.get()
        && let Some(devices) = registry.devices.enter_within(Duration::ZERO)
    {
        for shared in devices.iter() {
            if let Some(guard) = shared.gate.enter_within(Duration::ZERO) {
                std::mem::forget(guard);
                shared.held_for_fork.store(true, Ordering::Relaxed);
            }
        }
        std::mem::forget(devices);
        registry.held.store(true, Ordering::Relaxed);
    }
    // It may have lived for long, and have files of its own under the numbers of its parent's.
    os::while_in_doubt(|| child());
}

/// Close this device in every child from now on.
pub(crate) fn register(shared: &Arc<Shared>) -> Result<()> {
    let mut devices = registry()?.devices.enter();
    devices.push(shared.clone());
    let _ = devices.leave();
    Ok(())
}

/// The device is gone.
pub(crate) fn forget(shared: &Arc<Shared>) {
    // A child notices first what it is.
    generation();
    let Some(registry) = REGISTRY.get() else { return };
    let mut devices = registry.devices.enter();
    let position = devices.iter().position(|device| Arc::ptr_eq(device, shared));
    let removed = position.map(|position| devices.swap_remove(position));
    let _ = devices.leave();
    // Outside the gate, should this be the last owner.
    drop(removed);
}

/// Before the fork, in the forking thread: bring all devices to rest.
extern "C" fn prepare() {
    generation();
    let Some(registry) = REGISTRY.get() else { return };
    if let Some(opening) = registry.opening.enter_within(PATIENCE) {
        std::mem::forget(opening);
        registry.opening_held.store(true, Ordering::Relaxed);
    }
    let Some(devices) = registry.devices.enter_within(PATIENCE) else {
        return;
    };
    for shared in devices.iter() {
        if let Some(guard) = shared.gate.enter_within(PATIENCE) {
            std::mem::forget(guard);
            shared.held_for_fork.store(true, Ordering::Relaxed);
        }
    }
    std::mem::forget(devices);
    registry.held.store(true, Ordering::Relaxed);
}

/// After the fork, in the parent: everything goes on.
extern "C" fn parent() {
    let Some(registry) = REGISTRY.get() else { return };
    if registry.opening_held.swap(false, Ordering::Relaxed) {
        // SAFETY: `prepare` ran in this thread and forgot a guard, which is resumed only here.
        let _ = unsafe { registry.opening.resume() }.leave();
    }
    if !registry.held.swap(false, Ordering::Relaxed) {
        return;
    }
    // SAFETY: `prepare` ran in this thread and forgot a guard, which is resumed only here.
    let devices = unsafe { registry.devices.resume() };
    for shared in devices.iter() {
        if shared.held_for_fork.swap(false, Ordering::Relaxed) {
            // SAFETY: as above, for the gate of the device.
            shared.leave(unsafe { shared.gate.resume() });
        }
    }
    let _ = devices.leave();
}

/// After the fork, in the child, whose only thread this is.
extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    os::no_background_threads();
    disown_devices();
    if let Some(mark) = BIRTHMARK.get() {
        mark.store(NATIVE, Ordering::Release);
    }
}

/// In a child: close what its parent has open.
fn disown_devices() {
    let Some(registry) = REGISTRY.get() else { return };
    let mut list = Vec::new();
    if registry.held.swap(false, Ordering::Relaxed) {
        // SAFETY: `prepare` forgot a guard before the fork; the child's copy of it is resumed only here.
        let mut devices = unsafe { registry.devices.resume() };
        list = std::mem::take(&mut *devices);
        std::mem::forget(devices);
        // The list's own memory serves the child; nothing is freed here.
        for shared in list.drain(..) {
            close(&shared);
            std::mem::forget(shared);
        }
    }
    // SAFETY: this is the only thread, and its guard is forgotten. A list that was not at rest is leaked: another
    // thread of the parent may have been about to change it.
    unsafe { registry.devices.reset(list) };
    registry.opening_held.store(false, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { registry.opening.reset(()) };
}

fn close(shared: &Shared) {
    if shared.held_for_fork.swap(false, Ordering::Relaxed) {
        // SAFETY: `prepare` forgot a guard of this gate; the child's copy is resumed only here.
        let mut card = unsafe { shared.gate.resume() };
        card.close_in_child();
        if let Some(ear) = &*shared.ear {
            // SAFETY: the ear is never used again, nor dropped, in this process.
            unsafe { os::close_raw(ear.fd()) };
        }
        // Nobody enters a disowned device again.
        std::mem::forget(card);
    } else {
        for fd in &shared.fds {
            // SAFETY: the fabric that owns the descriptor is never used again, nor dropped, in this process.
            unsafe { os::close_raw(*fd) };
        }
    }
}

/// Do something in the gate of every open device, as far as that is had soon: `exit` may have been called by a signal
/// handler that interrupted a verb of this very thread. A child of `vfork` has no devices.
pub(crate) fn visit_open(mut visit: impl FnMut(&Shared, &mut Card)) {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let Some(registry) = REGISTRY.get() else { return };
    let Some(devices) = registry.devices.enter_within(PATIENCE) else {
        return;
    };
    for shared in devices.iter().filter(|shared| shared.is_owned()) {
        if let Some(mut guard) = shared.gate.enter_within(PATIENCE) {
            visit(shared, &mut guard);
            shared.leave(guard);
        }
    }
    let _ = devices.leave();
}
