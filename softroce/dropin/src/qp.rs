//! Queue pairs.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use verbs_api::{
    Context as _, Error, Object, ProtectionDomain as _, QpAttrMask, QpCap, QpInit, QpType, QueuePair as _,
    Result, SqSigType,
};
use verbs_sys::convert::{cap_from_c, cap_to_c, qp_attr_from_c, qp_attr_to_c, qp_type_from_c};
use verbs_sys::*;

use crate::entry::{self, null, number, place, pointer, value};
use crate::handle::Handle;
use crate::memory::PdHandle;
use crate::qp_ex::{self, Builder};
use crate::{P, Qp, XrcDomain, completion, context, srq, xrc};

/// The C struct is always the larger one; the functions in it are there when the program asked for them.
type ExHandle = Handle<ibv_qp_ex, Qp, QpExtra>;

/// What a queue pair keeps beside the provider's.
pub(crate) struct QpExtra {
    sq_sig: SqSigType,
    pub(crate) builder: Builder,
}

/// Access by the pointer that programs hold, which is that of the smaller struct at the head of the larger.
pub(crate) struct QpHandle;

impl QpHandle {
    /// # Safety
    /// As [`Handle::object`].
    pub(crate) unsafe fn object<'a>(qp: *mut ibv_qp, what: &str) -> Result<&'a Qp> {
        // SAFETY: the caller's promise.
        unsafe { ExHandle::object(qp.cast(), what) }
    }

    /// # Safety
    /// As [`Handle::extra`].
    pub(crate) unsafe fn extra<'a>(qp: *mut ibv_qp) -> &'a QpExtra {
        // SAFETY: the caller's promise.
        unsafe { ExHandle::extra(qp.cast()) }
    }
}

fn empty_qp() -> ibv_qp_ex {
    // SAFETY: zeroes are valid in every member: numbers, NULL pointers, absent functions, and a mutex and a condition
    // variable in their initial states.
    unsafe { std::mem::zeroed() }
}

/// What both ways of creating have in common.
///
/// # Safety
/// The pointers in `init` are NULL or alive; `context` is open; `pd` is alive, or NULL for an XRC target.
unsafe fn create(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    xrc_domain: Option<&XrcDomain>,
    ex: ibv_qp_ex,
) -> Result<(*mut ibv_qp, QpCap)> {
    let sq_sig = if init.sq_sig_all != 0 {
        SqSigType::All
    } else {
        SqSigType::OnRequest
    };
    let qp_type = qp_type_from_c(init.qp_type)?;
    if qp_type == QpType::Gsi {
        return Err(Error::invalid(
            "a queue pair for management datagrams (GSI) is not for programs, as the kernel has it",
        ));
    }
    // An XRC target stands in its XRC domain alone; the queue pair keeps this one alive, and nobody else.
    let nameless = match pd.is_null() {
        // SAFETY: the caller's promise.
        true => Some(unsafe { context::object(context) }?.alloc_pd()?),
        false => None,
    };
    // SAFETY: the caller's promise.
    let mut wanted = unsafe {
        QpInit::<P> {
            qp_type,
            send_cq: completion::optional(init.send_cq)?,
            recv_cq: completion::optional(init.recv_cq)?,
            srq: srq::optional(init.srq)?,
            xrc_domain,
            cap: cap_from_c(&init.cap),
            sq_sig,
        }
    };
    ignore_what_xrc_lacks(&mut wanted);
    let qp = match &nameless {
        Some(domain) => domain.create_qp(&wanted)?,
        // SAFETY: the caller's promise.
        None => unsafe { PdHandle::object(pd, "the protection domain") }?.create_qp(&wanted)?,
    };
    let cap = qp.cap();
    let mut c = ex;
    c.qp_base.qp_context = init.qp_context;
    c.qp_base.pd = pd;
    c.qp_base.send_cq = init.send_cq;
    c.qp_base.recv_cq = init.recv_cq;
    c.qp_base.srq = init.srq;
    Ok((hand_out(context, c, qp, sq_sig), cap))
}

/// An XRC initiator receives nothing and a target sends nothing: what C says about that half is not looked at.
fn ignore_what_xrc_lacks(init: &mut QpInit<'_, P>) {
    let receives = !matches!(init.qp_type, QpType::XrcInitiator | QpType::XrcTarget);
    if !receives {
        (init.recv_cq, init.srq) = (None, None);
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    }
    if init.qp_type == QpType::XrcTarget {
        init.send_cq = None;
        init.cap = QpCap::default();
    }
}

/// Hand a queue pair out to C, in a struct that knows what it was created from.
fn hand_out(context: *mut ibv_context, mut c: ibv_qp_ex, qp: Qp, sq_sig: SqSigType) -> *mut ibv_qp {
    let qpn = qp.qpn();
    c.qp_base.context = context;
    c.qp_base.qp_num = qpn;
    c.qp_base.qp_type = qp.qp_type() as c_int;
    let extra = QpExtra {
        sq_sig,
        builder: Builder::default(),
    };
    let handle = qp.event_handle();
    let pointer = ExHandle::hand_out(c, qp, extra).cast::<ibv_qp>();
    // SAFETY: the context is open while a queue pair on it lives.
    unsafe { context::extra(context) }.add_qp(handle, pointer);
    pointer
}

/// Hand one more handle of an XRC target out.
pub(crate) fn hand_out_target(context: *mut ibv_context, user: *mut c_void, qp: Qp) -> *mut ibv_qp {
    let mut c = empty_qp();
    c.qp_base.qp_context = user;
    hand_out(context, c, qp, SqSigType::OnRequest)
}

/// `ibv_create_qp`
///
/// # Safety
/// `pd` is NULL or alive, `init` NULL or valid, its pointers NULL or alive.
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    pointer("ibv_create_qp", || {
        // SAFETY: the caller's promise.
        let (qp, cap) = unsafe {
            if pd.is_null() {
                return Err(null("the protection domain"));
            }
            create(
                (*pd).context,
                pd,
                value(init, "the attributes")?,
                None,
                empty_qp(),
            )?
        };
        // SAFETY: not NULL, as shown above. The granted sizes go back to the program.
        unsafe { (*init).cap = cap_to_c(&cap) };
        Ok(qp)
    })
}

/// `create_qp_ex` of the second table.
///
/// # Safety
/// `context` is open, `init` NULL or valid, its pointers NULL or alive.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    pointer("ibv_create_qp_ex", || {
        // SAFETY: the caller's promise.
        let init = unsafe { place(init, "the attributes") }?;
        let known = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_XRCD
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let has = |bit: u32| init.comp_mask & bit != 0;
        if init.comp_mask & !known != 0 || has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0 {
            return Err(Error::unsupported(
                "a queue pair with these attributes (flags, TSO, RSS)",
            ));
        }
        let xrc_domain = match has(IBV_QP_INIT_ATTR_XRCD) {
            // SAFETY: the caller's promise.
            true => Some(unsafe { xrc::object(init.xrcd) }?),
            false => None,
        };
        let pd = match has(IBV_QP_INIT_ATTR_PD) {
            true => init.pd,
            false => null_mut(),
        };
        if pd.is_null() && xrc_domain.is_none() {
            return Err(Error::invalid("a queue pair needs a protection domain"));
        }
        let plain = ibv_qp_init_attr {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
        };
        let mut ex = empty_qp();
        if has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
            // SAFETY: the caller's promise.
            let can = unsafe { context::object(context) }?.capabilities();
            qp_ex::set_functions(&mut ex, init.send_ops_flags, &can)?;
        }
        // SAFETY: the caller's promise.
        let (qp, cap) = unsafe { create(context, pd, &plain, xrc_domain, ex) }?;
        init.cap = cap_to_c(&cap);
        Ok(qp)
    })
}

/// `ibv_qp_to_qp_ex`: NULL when it was not created with the builder's functions.
///
/// # Safety
/// `qp` is NULL or alive.
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's promise; the struct is always the larger one.
    match unsafe { qp.cast::<ibv_qp_ex>().as_ref() } {
        Some(ex) if ex.wr_start.is_some() => qp.cast(),
        Some(_) | None => null_mut(),
    }
}

/// Attributes of the half that an XRC queue pair has not got: the kernel drops them from what programs say, and programs
/// count on it.
fn unlooked_at(kind: QpType) -> c_int {
    let attributes = match kind {
        QpType::XrcInitiator => QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
        QpType::XrcTarget => QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY,
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi | QpType::RawPacket => QpAttrMask::empty(),
    };
    attributes.bits() as c_int
}

/// `ibv_modify_qp`
///
/// # Safety
/// `qp` is NULL or alive, `attr` NULL or valid.
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    number("ibv_modify_qp", || {
        // SAFETY: the caller's promise.
        let (object, attr) = unsafe {
            (
                QpHandle::object(qp, "the queue pair")?,
                value(attr, "the attributes")?,
            )
        };
        let attr = qp_attr_from_c(attr, mask & !unlooked_at(object.qp_type()))?;
        object.modify(&attr)?;
        if let Some(state) = attr.state {
            // SAFETY: alive, and its owner waits for this call.
            unsafe { (*qp).state = state as c_int };
        }
        Ok(())
    })
}

/// `ibv_query_qp`
///
/// # Safety
/// `qp` is NULL or alive; `attr` and `init` are NULL or valid for writes.
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    number("ibv_query_qp", || {
        // SAFETY: the caller's promise.
        let (object, attr, init) = unsafe {
            (
                QpHandle::object(qp, "the queue pair")?,
                place(attr, "the place for attributes")?,
                place(init, "the place for initial attributes")?,
            )
        };
        let found = object.query()?;
        let cap = cap_to_c(&object.cap());
        *attr = qp_attr_to_c(&found).0;
        attr.cap = cap;
        // SAFETY: alive.
        let (c, extra) = unsafe { (&mut *qp, QpHandle::extra(qp)) };
        c.state = attr.qp_state;
        *init = ibv_qp_init_attr {
            qp_context: c.qp_context,
            send_cq: c.send_cq,
            recv_cq: c.recv_cq,
            srq: c.srq,
            cap,
            qp_type: c.qp_type,
            sq_sig_all: c_int::from(extra.sq_sig == SqSigType::All),
        };
        Ok(())
    })
}

/// `ibv_destroy_qp`: waits until all of its asynchronous events are acknowledged.
///
/// # Safety
/// `qp` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    number("ibv_destroy_qp", || {
        // SAFETY: the caller's promise.
        unsafe {
            let handle = QpHandle::object(qp, "the queue pair")?.event_handle();
            let context = (*qp).context;
            ExHandle::destroy(qp.cast(), "the queue pair", |object| {
                object.destroy()?;
                // Before the pointer dangles: no later event may name it.
                context::extra(context).remove_qp(handle, qp);
                Ok(())
            })
        }
    })
}

/// `ibv_query_qp_data_in_order`
///
/// # Safety
/// `qp` is NULL or alive.
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    opcode: c_int,
    _flags: u32,
) -> c_int {
    entry::count("ibv_query_qp_data_in_order", || {
        // SAFETY: the caller's promise.
        let object = unsafe { QpHandle::object(qp, "the queue pair") }?;
        let op = match opcode {
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => verbs_api::DataOp::Recv,
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => verbs_api::DataOp::Write,
            IBV_WR_RDMA_READ => verbs_api::DataOp::Read,
            _ => return Ok(0),
        };
        Ok(c_int::from(object.data_in_order(op)))
    })
}

/// `ibv_query_ece`: nothing to negotiate.
///
/// # Safety
/// Any pointer will do.
pub(crate) unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut c_void) -> c_int {
    number("ibv_query_ece", || {
        Err(Error::unsupported("enhanced connection establishment"))
    })
}

/// `ibv_set_ece`: as a card without, also for "no vendor".
///
/// # Safety
/// Any pointer will do.
pub(crate) unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut c_void) -> c_int {
    number("ibv_set_ece", || {
        Err(Error::unsupported("enhanced connection establishment"))
    })
}
