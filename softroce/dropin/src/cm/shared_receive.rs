//! Shared receive queues on ids.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{Error, QpType, Result};
use verbs_sys::*;

use super::queue_pair::{destroy_queues, make_recv_queue};
use super::{devices, done, id, made};
use crate::entry::{self, number, place};
use crate::srq::{create_srq_ex, ibv_destroy_srq};

/// `rdma_create_srq`: of XRC, if the id's queue pairs are targets of that.
///
/// # Safety
/// `id` is NULL or alive, `pd` NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> c_int {
    entry::count("rdma_create_srq", || {
        // SAFETY: the caller's promise.
        let init = unsafe {
            id::object(id)?;
            place(init, "the attributes")?
        };
        // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
        let mut ex: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
        ex.srq_context = init.srq_context;
        ex.attr = init.attr;
        // SAFETY: alive.
        if unsafe { (*id).qp_type } == QpType::XrcTarget as c_int {
            ex.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE;
            ex.srq_type = IBV_SRQT_XRC;
        }
        if !pd.is_null() {
            ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            ex.pd = pd;
        }
        // SAFETY: the caller's promise.
        unsafe { create(id, &mut ex) }?;
        init.attr = ex.attr;
        Ok(0)
    })
}

/// The domain to use, when the id may have a shared receive queue now.
///
/// # Safety
/// `id` and `pd` are NULL or alive.
unsafe fn checked(id: *mut rdma_cm_id, pd: *mut ibv_pd) -> Result<*mut ibv_pd> {
    // SAFETY: the caller's promise.
    unsafe {
        id::object(id)?;
        if (*id).verbs.is_null() {
            return Err(Error::invalid(
                "the id has no device yet; bind it to an address of one, or resolve one, first",
            ));
        }
        if !(*id).srq.is_null() {
            return Err(Error::invalid("the id has a shared receive queue already"));
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        match pd.as_ref() {
            Some(domain) if domain.context == (*id).verbs => Ok(pd),
            _ => Err(Error::invalid(
                "the protection domain is of another device, or another context, than the id (id->verbs)",
            )),
        }
    }
}

/// `rdma_create_srq_ex`
///
/// # Safety
/// `id` is NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_srq_init_attr_ex,
) -> c_int {
    entry::count("rdma_create_srq_ex", || {
        // SAFETY: the caller's promise.
        unsafe { create(id, place(init, "the attributes")?) }.map(|()| 0)
    })
}

/// # Safety
/// `id` is NULL or alive; what `init` points at too.
unsafe fn create(id: *mut rdma_cm_id, init: &mut ibv_srq_init_attr_ex) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let said = match init.comp_mask & IBV_SRQ_INIT_ATTR_PD {
            0 => null_mut(),
            _ => init.pd,
        };
        init.pd = checked(id, said)?;
        init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        let is_xrc = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && init.srq_type == IBV_SRQT_XRC;
        if is_xrc {
            add_what_xrc_needs(id, init)?;
        }
        let srq = create_srq_ex((*id).verbs, init);
        let srq = made(srq, "the shared receive queue of the id cannot be made").inspect_err(|_| {
            let _ = destroy_queues(id);
        })?;
        ((*id).srq, (*id).pd) = (srq, init.pd);
    }
    Ok(())
}

/// A domain and a completion queue, where the program has named none.
///
/// # Safety
/// `id` is alive and has its device.
unsafe fn add_what_xrc_needs(id: *mut rdma_cm_id, init: &mut ibv_srq_init_attr_ex) -> Result<()> {
    // SAFETY: the caller's promise; the context is that of ids.
    unsafe {
        if init.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 {
            init.xrcd = devices::xrc_domain((*id).verbs)?;
            init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        }
        if init.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 {
            make_recv_queue(id, init.attr.max_wr)?;
            init.cq = (*id).recv_cq;
            init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        }
    }
    Ok(())
}

/// `rdma_destroy_srq`
///
/// # Safety
/// `id` is NULL or alive, and so is its shared receive queue, if it has one.
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    number("rdma_destroy_srq", || {
        // SAFETY: the caller's promise.
        unsafe {
            id::object(id)?;
            if (*id).srq.is_null() {
                return Err(Error::invalid("the id has no shared receive queue"));
            }
            done(
                ibv_destroy_srq((*id).srq),
                "the shared receive queue of the id is in use",
            )?;
            (*id).srq = null_mut();
            match (*id).qp.is_null() {
                true => destroy_queues(id),
                false => Ok(()),
            }
        }
    });
}
