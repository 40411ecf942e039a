//! Queue pairs on ids, with their completion queues.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{CmId as _, Error, QpType, Result};
use verbs_sys::convert::qp_type_from_c;
use verbs_sys::*;

use super::id::{self, Held};
use super::{devices, done, live, made};
use crate::completion::{ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq};
use crate::entry::{self, number, place};
use crate::qp::{self, QpHandle, ibv_destroy_qp};

/// Bytes of inline data that a queue pair of an id takes at least. Cards round what a program asks for up, and programs of
/// librdmacm send inline without having asked (rdma_xclient).
const INLINE_LEAST: u32 = 16;

/// `rdma_create_qp`
///
/// # Safety
/// `pd` is NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    entry::count("rdma_create_qp", || {
        let mut held = id::hold(id)?;
        // SAFETY: the caller's promise.
        unsafe { create_plain(&mut held, pd, place(init, "the attributes")?) }.map(|()| 0)
    })
}

/// # Safety
/// `pd` is NULL or alive; what `init` points at is alive.
pub(super) unsafe fn create_plain(
    held: &mut Held<'_>,
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
    unsafe { create(held, &mut ex) }?;
    init.send_cq = ex.send_cq;
    init.recv_cq = ex.recv_cq;
    init.srq = ex.srq;
    init.cap = ex.cap;
    Ok(())
}

/// `rdma_create_qp_ex`
///
/// # Safety
/// `init` is NULL or valid.
pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_qp_init_attr_ex,
) -> c_int {
    entry::count("rdma_create_qp_ex", || {
        let mut held = id::hold(id)?;
        // SAFETY: the caller's promise.
        unsafe { create(&mut held, place(init, "the attributes")?) }.map(|()| 0)
    })
}

/// # Safety
/// What `init` points at is alive.
unsafe fn create(held: &mut Held<'_>, init: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let c = held.c();
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
    // SAFETY: as the caller's promise has it.
    let result = make_queues(held, [&init.send_cq, &init.recv_cq], &init.cap, qp_type)
        .and_then(|()| unsafe { create_with_queues(held, init) });
    result.inspect_err(|_| {
        // Nothing uses them yet.
        let _ = Queues::of(held).destroy();
    })
}

/// # Safety
/// What `init` points at is alive.
unsafe fn create_with_queues(held: &mut Held<'_>, init: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let c = held.c();
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
    let bound = unsafe { QpHandle::object(qp, "the queue pair") }.and_then(|qp| held.bind_qp(qp));
    if let Err(error) = bound {
        // SAFETY: just made, and nobody has seen it.
        unsafe { ibv_destroy_qp(qp) };
        return Err(error);
    }
    let c = held.c();
    c.qp = qp;
    c.pd = init.pd;
    Ok(())
}

/// Completion queues, with channels, for what a program has not named. Their context is the id.
fn make_queues(
    held: &mut Held<'_>,
    [send, recv]: [&*mut ibv_cq; 2],
    cap: &ibv_qp_cap,
    qp_type: QpType,
) -> Result<()> {
    let sends = qp_type != QpType::XrcTarget && cap.max_send_wr > 0;
    let receives = !matches!(qp_type, QpType::XrcTarget | QpType::XrcInitiator) && cap.max_recv_wr > 0;
    if send.is_null() && sends && held.c().send_cq.is_null() {
        let made = Queue::make(held, cap.max_send_wr)?;
        (held.c().send_cq_channel, held.c().send_cq) = (made.channel, made.cq);
        held.state.made_send_cq = true;
    }
    if recv.is_null() && receives {
        make_recv_queue(held, cap.max_recv_wr)?;
    }
    Ok(())
}

/// The id must have its device.
pub(super) fn make_recv_queue(held: &mut Held<'_>, depth: u32) -> Result<()> {
    if held.c().recv_cq.is_null() {
        let made = Queue::make(held, depth)?;
        (held.c().recv_cq_channel, held.c().recv_cq) = (made.channel, made.cq);
        held.state.made_recv_cq = true;
    }
    Ok(())
}

/// A completion queue that an id has made, and its channel.
#[derive(Clone, Copy)]
struct Queue {
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Queue {
    fn make(held: &mut Held<'_>, depth: u32) -> Result<Queue> {
        let depth = c_int::try_from(depth).map_err(|_| {
            Error::invalid(format!(
                "{depth} work requests are too many for a completion queue"
            ))
        })?;
        let (verbs, context) = (held.c().verbs, held.pointer());
        // SAFETY: the context is open for good.
        unsafe {
            let channel = made(
                ibv_create_comp_channel(verbs),
                "the completion channel of the id cannot be made",
            )?;
            let cq = ibv_create_cq(verbs, depth, context.cast(), channel, 0);
            let cq = made(cq, "the completion queue of the id cannot be made").inspect_err(|_| {
                ibv_destroy_comp_channel(channel);
            })?;
            Ok(Queue { cq, channel })
        }
    }
}

/// Completion queues that an id made, taken out of it.
pub(super) struct Queues {
    send: Option<Queue>,
    recv: Option<Queue>,
}

impl Queues {
    /// Take them out; those that a shared receive queue of the id needs stay.
    pub(super) fn of(held: &mut Held<'_>) -> Queues {
        let (made_send, made_recv) = (held.state.made_send_cq, held.state.made_recv_cq);
        let c = held.c();
        let mut queues = Queues {
            send: None,
            recv: None,
        };
        if made_send && !c.send_cq.is_null() {
            queues.send = Some(Queue {
                cq: std::mem::replace(&mut c.send_cq, null_mut()),
                channel: std::mem::replace(&mut c.send_cq_channel, null_mut()),
            });
        }
        if made_recv && !c.recv_cq.is_null() && c.srq.is_null() {
            queues.recv = Some(Queue {
                cq: std::mem::replace(&mut c.recv_cq, null_mut()),
                channel: std::mem::replace(&mut c.recv_cq_channel, null_mut()),
            });
        }
        held.state.made_send_cq &= queues.send.is_none();
        held.state.made_recv_cq &= queues.recv.is_none();
        queues
    }

    /// Destroy them, which waits until their events are acknowledged: the id is given back before, or nobody has seen them.
    /// What is in use still stays in `self`.
    fn destroy_each(&mut self) -> Result<()> {
        for place in [&mut self.send, &mut self.recv] {
            let Some(queue) = *place else { continue };
            // SAFETY: made by the id, and taken out of it.
            unsafe {
                done(
                    ibv_destroy_cq(queue.cq),
                    "the completion queue of the id is in use",
                )?;
                *place = None;
                done(ibv_destroy_comp_channel(queue.channel), "its channel is in use")?;
            }
        }
        Ok(())
    }

    /// The same for those that nobody has seen.
    pub(super) fn destroy(mut self) -> Result<()> {
        self.destroy_each()
    }

    /// The same for those of an id that was given back; what is in use comes back to it.
    pub(super) fn destroy_of(mut self, id: *mut rdma_cm_id) -> Result<()> {
        let destroyed = self.destroy_each();
        if destroyed.is_err() {
            self.give_back(&mut id::hold(id)?);
        }
        destroyed
    }

    /// Back to the id, unless it has made others meanwhile.
    fn give_back(self, held: &mut Held<'_>) {
        if let Some(send) = self.send
            && held.c().send_cq.is_null()
        {
            (held.c().send_cq, held.c().send_cq_channel) = (send.cq, send.channel);
            held.state.made_send_cq = true;
        }
        if let Some(recv) = self.recv
            && held.c().recv_cq.is_null()
        {
            (held.c().recv_cq, held.c().recv_cq_channel) = (recv.cq, recv.channel);
            held.state.made_recv_cq = true;
        }
    }
}

/// `rdma_destroy_qp`: with the completion queues that were made for it. It waits until their events, and the queue pair's,
/// are acknowledged; meanwhile other threads may use the id.
///
/// # Safety
/// The queue pair of the id, if it has one, is alive.
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    number("rdma_destroy_qp", || {
        // The id stays until all of this is done.
        let _visit = live::enter(live::IDS, id, "the id")?;
        let (qp, queues) = {
            let mut held = id::hold(id)?;
            let qp = std::mem::replace(&mut held.c().qp, null_mut());
            if qp.is_null() {
                return Err(Error::invalid("the id has no queue pair"));
            }
            held.unbind_qp();
            // Taken at once: another thread may make a queue pair, which needs others.
            (qp, Queues::of(&mut held))
        };
        // SAFETY: the caller's promise, and of several threads one has it.
        let destroyed = done(
            unsafe { ibv_destroy_qp(qp) },
            "the queue pair of the id is in use",
        );
        if destroyed.is_ok() {
            return queues.destroy_of(id);
        }
        let mut held = id::hold(id)?;
        if held.c().qp.is_null() {
            held.c().qp = qp;
            queues.give_back(&mut held);
        }
        destroyed
    });
}
