//! Shared receive queues on ids.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{Error, QpType, Result};
use verbs_sys::*;

use super::id::{self, Held};
use super::queue_pair::{Queues, make_recv_queue};
use super::{devices, done, live, made};
use crate::entry::{self, number, place};
use crate::srq::{create_srq_ex, ibv_destroy_srq};

/// `rdma_create_srq`: of XRC, if the id's queue pairs are targets of that.
///
/// # Safety
/// `pd` is NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> c_int {
    entry::count("rdma_create_srq", || {
        let mut held = id::hold(id)?;
        // SAFETY: the caller's promise.
        let init = unsafe { place(init, "the attributes") }?;
        // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
        let mut ex: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
        ex.srq_context = init.srq_context;
        ex.attr = init.attr;
        if held.c().qp_type == QpType::XrcTarget as c_int {
            ex.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE;
            ex.srq_type = IBV_SRQT_XRC;
        }
        if !pd.is_null() {
            ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            ex.pd = pd;
        }
        // SAFETY: the caller's promise.
        unsafe { create(&mut held, &mut ex) }?;
        init.attr = ex.attr;
        Ok(0)
    })
}

/// The domain to use, when the id may have a shared receive queue now.
///
/// # Safety
/// `pd` is NULL or alive.
unsafe fn checked(held: &mut Held<'_>, pd: *mut ibv_pd) -> Result<*mut ibv_pd> {
    let c = held.c();
    if c.verbs.is_null() {
        return Err(Error::invalid(
            "the id has no device yet; bind it to an address of one, or resolve one, first",
        ));
    }
    if !c.srq.is_null() {
        return Err(Error::invalid("the id has a shared receive queue already"));
    }
    let pd = if pd.is_null() { c.pd } else { pd };
    // SAFETY: the caller's promise.
    match unsafe { pd.as_ref() } {
        Some(domain) if domain.context == c.verbs => Ok(pd),
        _ => Err(Error::invalid(
            "the protection domain is of another device, or another context, than the id (id->verbs)",
        )),
    }
}

/// `rdma_create_srq_ex`
///
/// # Safety
/// `init` is NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_srq_init_attr_ex,
) -> c_int {
    entry::count("rdma_create_srq_ex", || {
        let mut held = id::hold(id)?;
        // SAFETY: the caller's promise.
        unsafe { create(&mut held, place(init, "the attributes")?) }.map(|()| 0)
    })
}

/// # Safety
/// What `init` points at is alive.
unsafe fn create(held: &mut Held<'_>, init: &mut ibv_srq_init_attr_ex) -> Result<()> {
    let said = match init.comp_mask & IBV_SRQ_INIT_ATTR_PD {
        0 => null_mut(),
        _ => init.pd,
    };
    // SAFETY: the caller's promise.
    init.pd = unsafe { checked(held, said) }?;
    init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    let is_xrc = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && init.srq_type == IBV_SRQT_XRC;
    if is_xrc {
        add_what_xrc_needs(held, init)?;
    }
    // SAFETY: the caller's promise; the context is open for good.
    let srq = unsafe { create_srq_ex(held.c().verbs, init) };
    let srq = made(srq, "the shared receive queue of the id cannot be made").inspect_err(|_| {
        if held.c().qp.is_null() {
            // Nothing uses them yet.
            let _ = Queues::of(held).destroy();
        }
    })?;
    (held.c().srq, held.c().pd) = (srq, init.pd);
    Ok(())
}

/// A domain and a completion queue, where the program has named none. The id must have its device.
fn add_what_xrc_needs(held: &mut Held<'_>, init: &mut ibv_srq_init_attr_ex) -> Result<()> {
    if init.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 {
        // SAFETY: the context is that of ids.
        init.xrcd = unsafe { devices::xrc_domain(held.c().verbs) }?;
        init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    }
    if init.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 {
        make_recv_queue(held, init.attr.max_wr)?;
        init.cq = held.c().recv_cq;
        init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    }
    Ok(())
}

/// `rdma_destroy_srq`: waits until its events are acknowledged; meanwhile other threads may use the id.
///
/// # Safety
/// The shared receive queue of the id, if it has one, is alive.
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    number("rdma_destroy_srq", || {
        // The id stays until all of this is done.
        let _visit = live::enter(live::IDS, id, "the id")?;
        let srq = std::mem::replace(&mut id::hold(id)?.c().srq, null_mut());
        if srq.is_null() {
            return Err(Error::invalid("the id has no shared receive queue"));
        }
        // SAFETY: the caller's promise, and of several threads one has it.
        let destroyed = done(
            unsafe { ibv_destroy_srq(srq) },
            "the shared receive queue of the id is in use",
        );
        let mut held = id::hold(id)?;
        if let Err(error) = destroyed {
            if held.c().srq.is_null() {
                held.c().srq = srq;
            }
            return Err(error);
        }
        let queues = match held.c().qp.is_null() {
            true => Queues::of(&mut held),
            false => return Ok(()),
        };
        drop(held);
        queues.destroy_of(id)
    });
}
