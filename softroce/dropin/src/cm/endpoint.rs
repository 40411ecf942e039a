//! Endpoints: an id with its address and queue pair in one call, synchronous.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{CmEventKind, Error, Result};
use verbs_sys::cm_constants::RAI_PASSIVE;
use verbs_sys::*;

use super::address::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use super::calls::await_event;
use super::queue_pair::{create_plain, rdma_destroy_qp};
use super::shared_receive::rdma_destroy_srq;
use super::{event, id, sockaddr};
use crate::entry::{self, number, place, value};

/// How long to look for an address or a route.
const PATIENCE_MS: c_int = 2000;

/// `rdma_create_ep`
///
/// # Safety
/// `id` is NULL or valid for a write, `found` NULL or valid with its addresses, `pd` NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C-unwind" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    found: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let mut made = null_mut();
    let mut is_passive = false;
    let created = entry::count("rdma_create_ep", || {
        // SAFETY: the caller's promise.
        let found = unsafe {
            place(id, "the place for the id")?;
            value(found, "the address information")?
        };
        sockaddr::check_family(found.ai_family, "the address information")?;
        is_passive = found.ai_flags & RAI_PASSIVE != 0;
        made = id::create(null_mut(), null_mut(), found.ai_port_space)?;
        id::hold(made)?.c().qp_type = found.ai_qp_type;
        Ok(0)
    });
    if created != 0 {
        return created;
    }
    // SAFETY: the caller's promise, and just made.
    unsafe {
        let result = match is_passive {
            true => prepare_passive(made, &*found, pd, init),
            false => prepare_active(made, &*found, pd, init),
        };
        match result {
            0 => *id = made,
            _ => {
                let errno = std::io::Error::last_os_error().raw_os_error();
                rdma_destroy_ep(made);
                entry::set_errno(errno.unwrap_or(libc::EIO));
            }
        }
        result
    }
}

/// Bound; what requests need is kept.
///
/// # Safety
/// `id` is alive, and so is what the others point at.
unsafe fn prepare_passive(
    id: *mut rdma_cm_id,
    found: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    let (bound, init) = unsafe { (rdma_bind_addr(id, found.ai_src_addr), init.as_ref()) };
    if bound != 0 {
        return bound;
    }
    entry::count("rdma_create_ep", || {
        let mut held = id::hold(id)?;
        if let Some(init) = init {
            let mut init = *init;
            init.qp_type = found.ai_qp_type;
            held.state.for_requests = Some((pd, init));
        }
        if !pd.is_null() {
            held.c().pd = pd;
        }
        Ok(0)
    })
}

/// Resolved, with a queue pair if one is wanted.
///
/// # Safety
/// As [`prepare_passive`].
unsafe fn prepare_active(
    id: *mut rdma_cm_id,
    found: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if rdma_resolve_addr(id, found.ai_src_addr, found.ai_dst_addr, PATIENCE_MS) != 0
            || rdma_resolve_route(id, PATIENCE_MS) != 0
        {
            return -1;
        }
        entry::count("rdma_create_ep", || {
            if let Some(init) = init.as_mut() {
                init.qp_type = found.ai_qp_type;
                create_plain(&mut id::hold(id)?, pd, init)?;
            }
            Ok(0)
        })
    }
}

/// `rdma_destroy_ep`: with its queue pair and shared receive queue.
///
/// # Safety
/// Both are alive, if the id has them.
pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    number("rdma_destroy_ep", || {
        let (has_qp, has_srq) = match id::hold(id) {
            Ok(mut held) => (!held.c().qp.is_null(), !held.c().srq.is_null()),
            Err(_) => (false, false),
        };
        // SAFETY: the caller's promise.
        unsafe {
            if has_qp {
                rdma_destroy_qp(id);
            }
            if has_srq {
                rdma_destroy_srq(id);
            }
        }
        id::destroy(id)
    });
}

/// `rdma_get_request`: waits for a request to a synchronous listener.
///
/// # Safety
/// `id` is NULL or valid for a write.
pub(crate) unsafe extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    const VERB: &str = "rdma_get_request";
    // SAFETY: the caller's promise.
    let has_place = entry::count(VERB, || unsafe { place(id, "the place for the id") }.map(|_| 0));
    let mut event = null_mut();
    if has_place != 0 || await_event(VERB, listener, &mut event) != 0 {
        return -1;
    }
    entry::count(VERB, || {
        // SAFETY: taken above, and not acknowledged.
        let (kind, new) = unsafe { ((*event).event, (*event).id) };
        if kind != CmEventKind::ConnectRequest as c_int {
            event::acknowledge(event)?;
            return Err(Error::invalid(format!(
                "an event of type {kind} came, and no request"
            )));
        }
        // SAFETY: the caller's promise.
        let place = unsafe { place(id, "the place for the id") };
        let ready = place.and_then(|place| {
            add_queue_pair(listener, new)?;
            // The new id has the event from now on.
            id::hold(new)?.c().event = event;
            *place = new;
            Ok(0)
        });
        if ready.is_err() {
            event::acknowledge(event)?;
            id::destroy(new)?;
        }
        ready
    })
}

/// The queue pair that the listener's endpoint was told to give to requests.
fn add_queue_pair(listener: *mut rdma_cm_id, new: *mut rdma_cm_id) -> Result<()> {
    let wanted = id::hold(listener)?.state.for_requests;
    match wanted {
        // SAFETY: what the program named when it made the endpoint, it has not destroyed.
        Some((pd, mut init)) => unsafe { create_plain(&mut id::hold(new)?, pd, &mut init) },
        None => Ok(()),
    }
}
