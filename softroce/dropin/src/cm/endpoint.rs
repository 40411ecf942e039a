//! Endpoints: an id with its address and queue pair in one call, synchronous.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{CmEventKind, Error, Result};
use verbs_sys::cm_constants::RAI_PASSIVE;
use verbs_sys::*;

use super::address::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use super::event::take_event;
use super::id::{self, IdHandle};
use super::queue_pair::{create_plain, rdma_destroy_qp};
use super::shared_receive::rdma_destroy_srq;
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
        unsafe {
            place(id, "the place for the id")?;
            let found = value(found, "the address information")?;
            is_passive = found.ai_flags & RAI_PASSIVE != 0;
            made = id::create(null_mut(), null_mut(), found.ai_port_space)?;
            (*made).qp_type = found.ai_qp_type;
        }
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
    unsafe {
        let bound = rdma_bind_addr(id, found.ai_src_addr);
        if bound == 0
            && let Some(init) = init.as_ref()
        {
            let mut init = *init;
            init.qp_type = found.ai_qp_type;
            IdHandle::extra(id).lock().for_requests = Some((pd, init));
        }
        if bound == 0 && !pd.is_null() {
            (*id).pd = pd;
        }
        bound
    }
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
                create_plain(id, pd, init)?;
            }
            Ok(0)
        })
    }
}

/// `rdma_destroy_ep`: with its queue pair and shared receive queue.
///
/// # Safety
/// `id` is NULL or alive, and not used afterwards.
pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    number("rdma_destroy_ep", || {
        // SAFETY: the caller's promise.
        unsafe {
            if id::object(id).is_ok() {
                if !(*id).qp.is_null() {
                    rdma_destroy_qp(id);
                }
                if !(*id).srq.is_null() {
                    rdma_destroy_srq(id);
                }
            }
            id::destroy(id)
        }
    });
}

/// `rdma_get_request`: waits for a request to a synchronous listener.
///
/// # Safety
/// `listener` is NULL or alive, `id` NULL or valid for a write.
pub(crate) unsafe extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let may_wait = entry::count("rdma_get_request", || {
        // SAFETY: the caller's promise.
        unsafe {
            id::object(listener)?;
            place(id, "the place for the id")?;
            if IdHandle::extra(listener).lock().own_channel.is_none() {
                return Err(Error::invalid(
                    "the id has an event channel, on which its requests arrive (rdma_get_cm_event)",
                ));
            }
            id::let_go_of_event(listener);
        }
        Ok(0)
    });
    if may_wait != 0 {
        return may_wait;
    }
    // SAFETY: alive, as was just seen.
    unsafe {
        if take_event(
            "rdma_get_request",
            (*listener).channel,
            &raw mut (*listener).event,
        ) != 0
        {
            return -1;
        }
    }
    entry::count("rdma_get_request", || {
        // SAFETY: alive, and so is its event, just taken.
        unsafe {
            let event = (*listener).event;
            if (*event).event != CmEventKind::ConnectRequest as c_int {
                let what = format!("an event of type {} came, and no request", (*event).event);
                id::let_go_of_event(listener);
                return Err(Error::invalid(what));
            }
            let new = (*event).id;
            if let Err(error) = add_queue_pair(listener, new) {
                id::let_go_of_event(listener);
                id::destroy(new)?;
                return Err(error);
            }
            // The new id has the event from now on.
            (*listener).event = null_mut();
            (*new).event = event;
            *id = new;
        }
        Ok(0)
    })
}

/// The queue pair that the listener's endpoint was told to give to requests.
///
/// # Safety
/// Both are alive.
unsafe fn add_queue_pair(listener: *mut rdma_cm_id, new: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let wanted = IdHandle::extra(listener).lock().for_requests;
        match wanted {
            Some((pd, mut init)) => create_plain(new, pd, &mut init),
            None => Ok(()),
        }
    }
}
