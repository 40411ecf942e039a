//! Which ids, event channels and events a program holds: a pointer to anything else is refused, and never followed.
//!
//! Programs do use ids after their end (perftest, when it tries a refused connection again), also in one thread while
//! another ends them. So a call [enters](enter) what it uses, and whoever ends it waits until all calls have left.
//! Connections are made seldom enough that looking costs nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, PoisonError};

use softroce::announce;
use softroce::lock::Mutex;
use verbs_api::{Error, ErrorKind, Result};

use super::Devices;
use crate::device::Registry;
use crate::entry::null;

/// What this process has of RDMA CM.
#[derive(Default)]
pub(crate) struct Process {
    pub(super) devices: Devices,
    pub(super) ids: Live,
    pub(super) channels: Live,
    pub(super) events: Live,
}

/// What is alive, by its address.
#[derive(Default)]
pub(super) struct Live(Mutex<BTreeMap<usize, Arc<Visitors>>>);

/// The set of one kind.
type Kind = fn(&Process) -> &Live;

pub(super) const IDS: Kind = |process| &process.ids;
pub(super) const CHANNELS: Kind = |process| &process.channels;
pub(super) const EVENTS: Kind = |process| &process.events;

/// Which of those that have been at an address one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Serial(u64);

/// The calls that use something now.
struct Visitors {
    serial: Serial,
    count: std::sync::Mutex<u32>,
    none: Condvar,
}

impl Visitors {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Visitors {
            serial: Serial(NEXT.fetch_add(1, Ordering::Relaxed)),
            count: std::sync::Mutex::new(0),
            none: Condvar::new(),
        }
    }

    fn wait_for_none(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self.none.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        announce::taken(&raw const *self);
    }
}

/// A call that uses something: until it has left, that stays.
pub(super) struct Visit(Arc<Visitors>);

impl Visit {
    fn of(visitors: &Arc<Visitors>) -> Visit {
        *visitors.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Visit(visitors.clone())
    }

    pub(super) fn serial(&self) -> Serial {
        self.0.serial
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        announce::given(Arc::as_ptr(&self.0));
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

/// It is alive from now on.
pub(super) fn begins<T>(kind: Kind, pointer: *mut T) -> Result<*mut T> {
    let visitors = Arc::new(Visitors::new());
    kind(Registry::this()?.cm())
        .0
        .lock()
        .insert(pointer as usize, visitors);
    Ok(pointer)
}

/// Whether it was the parent's of which this process was forked: it is left alone. Otherwise why not.
fn inherited<T>(registry: &Registry, kind: Kind, pointer: *mut T, what: &str) -> Result<()> {
    // A lock of theirs may be held for ever, by a thread that is not here. Then it may be in there.
    let is_theirs = |parent: &Registry| {
        let live = kind(parent.cm()).0.try_lock();
        live.is_none_or(|live| live.contains_key(&(pointer as usize)))
    };
    if registry.parents().any(is_theirs) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} at {pointer:p} does not exist (any more)"
    )))
}

/// Use what a program points at.
///
/// # Errors
/// EINVAL: NULL, or nothing that is alive. ENODEV: it was inherited through fork.
pub(super) fn enter<T>(kind: Kind, pointer: *mut T, what: &str) -> Result<Visit> {
    if pointer.is_null() {
        return Err(null(what));
    }
    let registry = Registry::this()?;
    if let Some(visitors) = kind(registry.cm()).0.lock().get(&(pointer as usize)) {
        return Ok(Visit::of(visitors));
    }
    inherited(registry, kind, pointer, what)?;
    Err(Error::new(
        ErrorKind::NotFound,
        format!("{what} was inherited through fork; a child makes its own"),
    ))
}

/// The same, unless it is another one by now.
pub(super) fn enter_again<T>(kind: Kind, pointer: *mut T, serial: Serial, what: &str) -> Result<Visit> {
    let visit = enter(kind, pointer, what)?;
    match visit.serial() == serial {
        true => Ok(visit),
        false => Err(Error::invalid(format!(
            "{what} at {pointer:p} does not exist any more"
        ))),
    }
}

/// Whether a call with this pointer would find nothing, alive or inherited.
pub(super) fn is_gone<T>(kind: Kind, pointer: *mut T) -> bool {
    enter(kind, pointer, "").is_err_and(|error| error.kind() == ErrorKind::Invalid)
}

/// It ends now, once all calls have left it. What was inherited stays: `false`.
///
/// # Errors
/// EINVAL: NULL, or nothing that is alive.
pub(super) fn ends<T>(kind: Kind, pointer: *mut T, what: &str) -> Result<bool> {
    if pointer.is_null() {
        return Err(null(what));
    }
    let registry = Registry::this()?;
    // Of two threads that end it, one is first.
    let visitors = kind(registry.cm()).0.lock().remove(&(pointer as usize));
    match visitors {
        Some(visitors) => {
            visitors.wait_for_none();
            Ok(true)
        }
        None => inherited(registry, kind, pointer, what).map(|()| false),
    }
}
