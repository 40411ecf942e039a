//! Which ids, event channels and events a program holds: a pointer to anything else is refused, and never followed.
//!
//! Programs do use ids after their end (perftest, when it tries a refused connection again), and connections are made
//! seldom enough that looking costs nothing.

use std::collections::BTreeSet;

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

/// Addresses of what is alive.
#[derive(Default)]
pub(super) struct Live(Mutex<BTreeSet<usize>>);

/// The set of one kind.
type Kind = fn(&Process) -> &Live;

pub(super) const IDS: Kind = |process| &process.ids;
pub(super) const CHANNELS: Kind = |process| &process.channels;
pub(super) const EVENTS: Kind = |process| &process.events;

/// It is alive from now on.
pub(super) fn begins<T>(kind: Kind, pointer: *mut T) -> Result<*mut T> {
    kind(Registry::this()?.cm()).0.lock().insert(pointer as usize);
    Ok(pointer)
}

/// What a program's pointer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Ours,
    /// Of the process that forked this one: it is left alone.
    Inherited,
}

/// Look for what a program points at.
///
/// # Errors
/// EINVAL: NULL, or nothing that is alive.
pub(super) fn find<T>(kind: Kind, pointer: *mut T, what: &str) -> Result<Found> {
    if pointer.is_null() {
        return Err(null(what));
    }
    let registry = Registry::this()?;
    if kind(registry.cm()).0.lock().contains(&(pointer as usize)) {
        return Ok(Found::Ours);
    }
    // A lock of theirs may be held for ever, by a thread that is not here. Then it may be in there.
    let is_theirs = |parent: &Registry| {
        let live = kind(parent.cm()).0.try_lock();
        live.is_none_or(|live| live.contains(&(pointer as usize)))
    };
    if registry.parents().any(is_theirs) {
        return Ok(Found::Inherited);
    }
    Err(Error::invalid(format!(
        "{what} at {pointer:p} does not exist (any more)"
    )))
}

/// The same, for what a verb uses.
///
/// # Errors
/// And ENODEV: it was inherited through fork.
pub(super) fn check<T>(kind: Kind, pointer: *mut T, what: &str) -> Result<()> {
    match find(kind, pointer, what)? {
        Found::Ours => Ok(()),
        Found::Inherited => Err(Error::new(
            ErrorKind::NotFound,
            format!("{what} was inherited through fork; a child makes its own"),
        )),
    }
}

/// It ends now. What was inherited stays: `false`.
///
/// # Errors
/// As [`find`].
pub(super) fn ends<T>(kind: Kind, pointer: *mut T, what: &str) -> Result<bool> {
    match find(kind, pointer, what)? {
        // Of two threads that end it, one is first.
        Found::Ours => Ok(kind(Registry::this()?.cm()).0.lock().remove(&(pointer as usize))),
        Found::Inherited => Ok(false),
    }
}
