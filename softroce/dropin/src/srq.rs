//! Shared receive queues.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use verbs_api::{Error, Object, ProtectionDomain as _, Result, SharedReceiveQueue as _, SrqInit};
use verbs_sys::*;

use crate::entry::{null, number, place, pointer, value};
use crate::handle::Handle;
use crate::memory::PdHandle;
use crate::post::post_receives;
use crate::{Cq, P, Srq, XrcDomain, completion, xrc};

type SrqHandle = Handle<ibv_srq, Srq>;

/// # Safety
/// `pd` is NULL or alive.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(&XrcDomain, &Cq)>,
) -> Result<*mut ibv_srq> {
    // SAFETY: the caller's promise.
    let domain = unsafe { PdHandle::object(pd, "the protection domain") }?;
    let reserved = Box::new(MaybeUninit::<SrqHandle>::uninit());
    let srq = domain.create_srq(&SrqInit::<P> {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        limit: attr.srq_limit,
        cookie: reserved.as_ptr() as u64,
        xrc,
    })?;
    let granted = srq.query()?;
    (attr.max_wr, attr.max_sge) = (granted.max_wr, granted.max_sge);
    // SAFETY: zeroes are valid in every member, a mutex and a condition variable in their initial states included.
    let mut c: ibv_srq = unsafe { std::mem::zeroed() };
    // SAFETY: not NULL, as shown above.
    c.context = unsafe { (*pd).context };
    c.srq_context = srq_context;
    c.pd = pd;
    Ok(SrqHandle::hand_out_at(reserved, c, srq, ()))
}

/// `ibv_create_srq`
///
/// # Safety
/// `pd` is NULL or alive, `init` NULL or valid.
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pointer("ibv_create_srq", || {
        // SAFETY: the caller's promise.
        unsafe {
            let init = place(init, "the attributes")?;
            create(pd, init.srq_context, &mut init.attr, None)
        }
    })
}

/// `create_srq_ex` of the second table.
///
/// # Safety
/// `context` is open, `init` NULL or valid.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const INIT_TYPE: u32 = 1;
    const INIT_PD: u32 = 1 << 1;
    const INIT_XRCD: u32 = 1 << 2;
    const INIT_CQ: u32 = 1 << 3;
    const BASIC: c_int = 0;
    const XRC: c_int = 1;
    pointer("ibv_create_srq_ex", || {
        // SAFETY: the caller's promise.
        let init = unsafe { place(init, "the attributes") }?;
        if init.comp_mask & !(INIT_TYPE | INIT_PD | INIT_XRCD | INIT_CQ) != 0 {
            return Err(Error::unsupported("a shared receive queue that matches tags"));
        }
        if init.comp_mask & INIT_PD == 0 {
            return Err(Error::invalid("a shared receive queue needs a protection domain"));
        }
        let kind = match init.comp_mask & INIT_TYPE {
            0 => BASIC,
            _ => init.srq_type,
        };
        let xrc = match (kind, init.comp_mask & (INIT_XRCD | INIT_CQ)) {
            (BASIC, _) => None,
            (XRC, bits) if bits == INIT_XRCD | INIT_CQ => {
                // SAFETY: the caller's promise.
                let (domain, cq) = unsafe { (xrc::object(init.xrcd)?, completion::optional(init.cq)?) };
                Some((domain, cq.ok_or_else(|| null("the completion queue"))?))
            }
            (XRC, _) => {
                return Err(Error::invalid(
                    "an XRC shared receive queue needs a domain and a completion queue",
                ));
            }
            (_, _) => {
                return Err(Error::unsupported(
                    "a shared receive queue that is neither a basic one nor one of XRC",
                ));
            }
        };
        // SAFETY: the caller's promise.
        unsafe { create(init.pd, init.srq_context, &mut init.attr, xrc) }
    })
}

/// `get_srq_num` of the second table.
///
/// # Safety
/// `srq` is NULL or alive, `number` NULL or valid for a write.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srqn: *mut u32) -> c_int {
    number("ibv_get_srq_num", || {
        // SAFETY: the caller's promise.
        unsafe {
            *place(srqn, "the place for the number")? =
                SrqHandle::object(srq, "the shared receive queue")?.srqn();
        }
        Ok(())
    })
}

/// `ibv_modify_srq`
///
/// # Safety
/// `srq` is NULL or alive, `attr` NULL or valid.
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    const MAX_WR: c_int = 1;
    const LIMIT: c_int = 1 << 1;
    number("ibv_modify_srq", || {
        // SAFETY: the caller's promise.
        let (object, attr) = unsafe {
            (
                SrqHandle::object(srq, "the shared receive queue")?,
                value(attr, "the attributes")?,
            )
        };
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(Error::invalid(format!(
                "the attribute mask {mask:#x} has bits that mean nothing"
            )));
        }
        let max_wr = (mask & MAX_WR != 0).then_some(attr.max_wr);
        object.modify(max_wr, (mask & LIMIT != 0).then_some(attr.srq_limit))
    })
}

/// `ibv_query_srq`
///
/// # Safety
/// `srq` is NULL or alive, `attr` NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    number("ibv_query_srq", || {
        // SAFETY: the caller's promise.
        let (object, attr) = unsafe {
            (
                SrqHandle::object(srq, "the shared receive queue")?,
                place(attr, "the place for attributes")?,
            )
        };
        let found = object.query()?;
        *attr = ibv_srq_attr {
            max_wr: found.max_wr,
            max_sge: found.max_sge,
            srq_limit: found.limit,
        };
        Ok(())
    })
}

/// `ibv_destroy_srq`
///
/// # Safety
/// `srq` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_destroy_srq", || unsafe {
        SrqHandle::destroy(srq, "the shared receive queue", Object::destroy)
    })
}

/// `post_srq_recv` of the first table.
///
/// # Safety
/// `srq` is NULL or alive; `request` is NULL or a list that is valid during the call; `bad` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    request: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    number("ibv_post_srq_recv", || {
        // SAFETY: the caller's promise.
        unsafe {
            let object = SrqHandle::object(srq, "the shared receive queue")?;
            post_receives(request, bad, |batch| object.post_recv(batch))
        }
    })
}

/// The provider's queue, for queue pairs; `None` for NULL.
///
/// # Safety
/// `srq` is NULL or alive during `'a`.
pub(crate) unsafe fn optional<'a>(srq: *mut ibv_srq) -> Result<Option<&'a Srq>> {
    match srq.is_null() {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => unsafe { SrqHandle::object(srq, "the shared receive queue") }.map(Some),
    }
}
