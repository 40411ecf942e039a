//! Calls on ids, and the events that those on synchronous ids wait for.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{CmEventKind, Error, Result};
use verbs_sys::{rdma_cm_event, rdma_cm_id};

use super::channel;
use super::event::{acknowledge, let_go, take};
use super::id::{Held, hold, hold_again};
use super::live::Serial;
use crate::{entry, wait};

/// What a call leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// A synchronous id waits for it, and its status is that of the call.
    Event,
}

/// A call on an id. A thread may be cancelled while it waits for the event, so by then nothing here has something to clean
/// up.
pub(super) fn call(
    verb: &'static str,
    id: *mut rdma_cm_id,
    ask: impl FnOnce(&mut Held<'_>) -> Result<Then>,
) -> c_int {
    let mut awaited = None;
    let asked = entry::count(verb, || {
        let mut held = hold(id)?;
        let then = ask(&mut held)?;
        if then == Then::Event && held.state.own_channel.is_some() {
            awaited = Some(held.serial());
            let before = held.take_event();
            drop(held);
            let_go(before);
        }
        Ok(0)
    });
    match (asked, awaited) {
        (0, Some(serial)) => complete(verb, id, serial),
        (asked, _) => asked,
    }
}

/// Wait for the event that a call on a synchronous id leads to.
fn complete(verb: &'static str, id: *mut rdma_cm_id, serial: Serial) -> c_int {
    loop {
        let mut event = null_mut();
        if take_own_event(verb, id, serial, &mut event) != 0 {
            return -1;
        }
        match entry::count(verb, || settle(id, serial, event)) {
            // Of another matter than the call.
            WAITS_ON => {}
            errno if errno > 0 => {
                entry::set_errno(errno);
                return -1;
            }
            done => return done,
        }
    }
}

const WAITS_ON: c_int = c_int::MAX;

/// Leave an event in the id, as the outcome of a call: the error number, 0 for none.
fn settle(id: *mut rdma_cm_id, serial: Serial, event: *mut rdma_cm_event) -> Result<c_int> {
    const REJECTED: c_int = CmEventKind::Rejected as c_int;
    const REMOVED: c_int = CmEventKind::DeviceRemoval as c_int;
    const ADDR_CHANGE: c_int = CmEventKind::AddrChange as c_int;
    // SAFETY: just taken, and not acknowledged.
    let (kind, status) = unsafe { ((*event).event, (*event).status) };
    if kind == ADDR_CHANGE {
        acknowledge(event)?;
        return Ok(WAITS_ON);
    }
    let before = match hold_again(id, serial) {
        Ok(mut held) => std::mem::replace(&mut held.c().event, event),
        Err(gone) => {
            acknowledge(event)?;
            return Err(gone);
        }
    };
    let_go(before);
    Ok(match (kind, status) {
        (REMOVED, _) => libc::ENODEV,
        (_, 0) => 0,
        (REJECTED, _) => libc::ECONNREFUSED,
        (_, status) => status.saturating_abs(),
    })
}

/// The next event of a synchronous id, which belongs to the caller then: 0, or -1 and `errno`. An event that an earlier
/// call has left in the id is acknowledged.
///
/// # Errors
/// And EINVAL: the id has a channel of the program's.
pub(super) fn await_event(verb: &'static str, id: *mut rdma_cm_id, place: &mut *mut rdma_cm_event) -> c_int {
    let mut awaited = None;
    let begun = entry::count(verb, || {
        let mut held = hold(id)?;
        if held.state.own_channel.is_none() {
            return Err(Error::invalid(
                "the id has an event channel, on which its requests arrive (rdma_get_cm_event)",
            ));
        }
        awaited = Some(held.serial());
        let before = held.take_event();
        drop(held);
        let_go(before);
        Ok(0)
    });
    match awaited {
        Some(serial) if begun == 0 => take_own_event(verb, id, serial, place),
        _ => begun,
    }
}

/// Wait for an event on an id's own channel, unless another thread destroys the id.
fn take_own_event(
    verb: &'static str,
    id: *mut rdma_cm_id,
    serial: Serial,
    place: *mut *mut rdma_cm_event,
) -> c_int {
    /// Whoever destroys the id wakes those who wait already; not one who is about to.
    const AGAIN_MS: c_int = 1000;
    wait::until_taken_looking(verb, AGAIN_MS, || {
        let held = hold_again(id, serial)?;
        let channel = channel::enter(held.state.own_channel.unwrap_or(null_mut()))?;
        drop(held);
        // SAFETY: the place outlives the wait, and nobody else knows it.
        take(&channel, unsafe { &mut *place })
    })
}
