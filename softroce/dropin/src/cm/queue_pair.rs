//! Queue pairs on ids, with their completion queues.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{CmId as _, Error, QpType, Result};
use verbs_sys::convert::qp_type_from_c;
use verbs_sys::*;

use super::id::{self, IdHandle};
use super::{devices, done, made};
use crate::completion::{ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq};
use crate::entry::{self, number, place};
use crate::qp::{self, QpHandle, ibv_destroy_qp};

/// Bytes of inline data that a queue pair of an id takes at least. Cards round what a program asks for up, and programs of
/// librdmacm send inline without having asked (rdma_xclient).
const INLINE_LEAST: u32 = 16;

/// `rdma_create_qp`
///
/// # Safety
/// `id` is NULL or alive, `pd` NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    entry::count("rdma_create_qp", || {
        // SAFETY: the caller's promise.
        unsafe { create_plain(id, pd, place(init, "the attributes")?) }.map(|()| 0)
    })
}

/// # Safety
/// `id` and `pd` are NULL or alive; what `init` points at too.
pub(super) unsafe fn create_plain(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
    let mut ex: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    ex.qp_context = init.qp_context;
    ex.send_cq = init.send_cq;
    ex.recv_cq = init.recv_cq;
    ex.srq = init.srq;
    ex.cap = init.cap;
    ex.qp_type = init.qp_type;
    ex.sq_sig_all = init.sq_sig_all;
    if !pd.is_null() {
        ex.comp_mask = IBV_QP_INIT_ATTR_PD;
        ex.pd = pd;
    }
    // SAFETY: the caller's promise.
    unsafe { create(id, &mut ex) }?;
    init.send_cq = ex.send_cq;
    init.recv_cq = ex.recv_cq;
    init.srq = ex.srq;
    init.cap = ex.cap;
    Ok(())
}

/// `rdma_create_qp_ex`
///
/// # Safety
/// `id` is NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_qp_init_attr_ex,
) -> c_int {
    entry::count("rdma_create_qp_ex", || {
        // SAFETY: the caller's promise.
        unsafe { create(id, place(init, "the attributes")?) }.map(|()| 0)
    })
}

/// # Safety
/// `id` is NULL or alive; what `init` points at too.
unsafe fn create(id: *mut rdma_cm_id, init: &mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: the caller's promise.
    let c = unsafe {
        id::object(id)?;
        &*id
    };
    if c.verbs.is_null() {
        return Err(Error::invalid(
            "the id has no device yet; bind it to an address of one, or resolve one, first",
        ));
    }
    if !c.qp.is_null() {
        return Err(Error::invalid("the id has a queue pair already"));
    }
    let is_others = |own: *mut ibv_cq, said: *mut ibv_cq| !own.is_null() && !said.is_null() && own != said;
    if is_others(c.send_cq, init.send_cq) || is_others(c.recv_cq, init.recv_cq) {
        return Err(Error::invalid("the id has another completion queue already"));
    }
    if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
        init.comp_mask |= IBV_QP_INIT_ATTR_PD;
        init.pd = c.pd;
    }
    // SAFETY: a domain that a program passes is alive.
    if unsafe { init.pd.as_ref() }.is_none_or(|pd| pd.context != c.verbs) {
        return Err(Error::invalid(
            "the protection domain is of another device, or another context, than the id (id->verbs)",
        ));
    }
    let qp_type = qp_type_from_c(init.qp_type)?;
    init.cap.max_inline_data = init.cap.max_inline_data.max(INLINE_LEAST);
    if qp_type == QpType::XrcTarget && init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
        init.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        // SAFETY: the context is that of ids.
        init.xrcd = unsafe { devices::xrc_domain(c.verbs) }?;
    }
    // SAFETY: alive.
    unsafe { make_queues(id, [&init.send_cq, &init.recv_cq], &init.cap, qp_type) }?;
    // SAFETY: alive; the context is open for good.
    let result = unsafe { create_with_queues(id, init) };
    result.inspect_err(|_| {
        // SAFETY: alive; nothing uses the queues.
        let _ = unsafe { destroy_queues(id) };
    })
}

/// # Safety
/// `id` is alive and has its device and queues.
unsafe fn create_with_queues(id: *mut rdma_cm_id, init: &mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: the caller's promise.
    let (object, c) = unsafe { (id::object(id)?, &mut *id) };
    let or_own = |said: *mut ibv_cq, own: *mut ibv_cq| if said.is_null() { own } else { said };
    init.send_cq = or_own(init.send_cq, c.send_cq);
    init.recv_cq = or_own(init.recv_cq, c.recv_cq);
    if init.srq.is_null()
        && init.qp_type != QpType::XrcTarget as c_int
        && init.qp_type != QpType::XrcInitiator as c_int
    {
        init.srq = c.srq;
    }
    // SAFETY: the caller's promise; the context is open for good.
    let qp = made(
        unsafe { qp::create_qp_ex(c.verbs, init) },
        "the queue pair of the id cannot be made",
    )?;
    // SAFETY: just made.
    let bound = unsafe { QpHandle::object(qp, "the queue pair") }.and_then(|qp| object.bind_qp(qp));
    if let Err(error) = bound {
        // SAFETY: just made, and nobody has seen it.
        unsafe { ibv_destroy_qp(qp) };
        return Err(error);
    }
    c.qp = qp;
    c.pd = init.pd;
    Ok(())
}

/// Completion queues, with channels, for what a program has not named. Their context is the id.
///
/// # Safety
/// `id` is alive and has its device.
unsafe fn make_queues(
    id: *mut rdma_cm_id,
    [send, recv]: [&*mut ibv_cq; 2],
    cap: &ibv_qp_cap,
    qp_type: QpType,
) -> Result<()> {
    let sends = qp_type != QpType::XrcTarget && cap.max_send_wr > 0;
    let receives = !matches!(qp_type, QpType::XrcTarget | QpType::XrcInitiator) && cap.max_recv_wr > 0;
    // SAFETY: the caller's promise.
    unsafe {
        if send.is_null() && sends {
            make_send_queue(id, cap.max_send_wr)?;
        }
        if recv.is_null() && receives {
            let made = make_recv_queue(id, cap.max_recv_wr);
            if made.is_err() {
                destroy_queues(id)?;
            }
            made?;
        }
    }
    Ok(())
}

/// # Safety
/// `id` is alive and has its device.
unsafe fn make_send_queue(id: *mut rdma_cm_id, depth: u32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        if (*id).send_cq.is_null() {
            ((*id).send_cq_channel, (*id).send_cq) = make_queue(id, depth)?;
            IdHandle::extra(id).lock().made_send_cq = true;
        }
    }
    Ok(())
}

/// # Safety
/// `id` is alive and has its device.
pub(super) unsafe fn make_recv_queue(id: *mut rdma_cm_id, depth: u32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        if (*id).recv_cq.is_null() {
            ((*id).recv_cq_channel, (*id).recv_cq) = make_queue(id, depth)?;
            IdHandle::extra(id).lock().made_recv_cq = true;
        }
    }
    Ok(())
}

/// # Safety
/// `id` is alive and has its device.
unsafe fn make_queue(id: *mut rdma_cm_id, depth: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let depth = c_int::try_from(depth).map_err(|_| {
        Error::invalid(format!(
            "{depth} work requests are too many for a completion queue"
        ))
    })?;
    // SAFETY: the context is open for good.
    unsafe {
        let channel = made(
            ibv_create_comp_channel((*id).verbs),
            "the completion channel of the id cannot be made",
        )?;
        let cq = ibv_create_cq((*id).verbs, depth, id.cast(), channel, 0);
        let cq = made(cq, "the completion queue of the id cannot be made").inspect_err(|_| {
            ibv_destroy_comp_channel(channel);
        })?;
        Ok((channel, cq))
    }
}

/// Destroy the completion queues that the id made; those that a shared receive queue of it needs stay.
///
/// # Safety
/// `id` is alive.
pub(super) unsafe fn destroy_queues(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller's promise; what the id made is alive.
    unsafe {
        let c = &mut *id;
        let (made_send, made_recv) = {
            let state = IdHandle::extra(id).lock();
            (state.made_send_cq, state.made_recv_cq)
        };
        if made_send && !c.send_cq.is_null() {
            done(
                ibv_destroy_cq(c.send_cq),
                "the completion queue of the id is in use",
            )?;
            done(
                ibv_destroy_comp_channel(c.send_cq_channel),
                "its channel is in use",
            )?;
            (c.send_cq, c.send_cq_channel) = (null_mut(), null_mut());
            IdHandle::extra(id).lock().made_send_cq = false;
        }
        if made_recv && !c.recv_cq.is_null() && c.srq.is_null() {
            done(
                ibv_destroy_cq(c.recv_cq),
                "the completion queue of the id is in use",
            )?;
            done(
                ibv_destroy_comp_channel(c.recv_cq_channel),
                "its channel is in use",
            )?;
            (c.recv_cq, c.recv_cq_channel) = (null_mut(), null_mut());
            IdHandle::extra(id).lock().made_recv_cq = false;
        }
    }
    Ok(())
}

/// `rdma_destroy_qp`: with the completion queues that were made for it.
///
/// # Safety
/// `id` is NULL or alive, and so is its queue pair, if it has one.
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    number("rdma_destroy_qp", || {
        // SAFETY: the caller's promise.
        unsafe {
            let object = id::object(id)?;
            let qp = (*id).qp;
            if qp.is_null() {
                return Err(Error::invalid("the id has no queue pair"));
            }
            object.unbind_qp();
            done(ibv_destroy_qp(qp), "the queue pair of the id is in use")?;
            (*id).qp = null_mut();
            destroy_queues(id)
        }
    });
}
