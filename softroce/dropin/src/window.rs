//! Memory windows.

use std::ffi::{c_int, c_uint};

use softroce::lock::{Mutex, MutexGuard};
use verbs_api::{
    BindInfo, Error, MemoryWindow as _, MwType, Object, Payload, ProtectionDomain as _, QueuePair as _, RKey,
    Refused, Result, SendFlags, SendOp, SendWr,
};
use verbs_sys::*;

use crate::entry::{null, number, pointer, value};
use crate::handle::Handle;
use crate::memory::{self, PdHandle};
use crate::qp::QpHandle;
use crate::{Mw, P, Qp};

type MwHandle = Handle<ibv_mw, Mutex<Mw>>;

/// # Safety
/// `mw` is NULL or alive during `'a`.
unsafe fn lock<'a>(mw: *mut ibv_mw) -> Result<MutexGuard<'a, Mw>> {
    // SAFETY: the caller's promise.
    let window = unsafe { MwHandle::object(mw, "the memory window") }?;
    Ok(window.lock())
}

/// `alloc_mw` of the first table.
///
/// # Safety
/// `pd` is NULL or alive.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: c_int) -> *mut ibv_mw {
    pointer("ibv_alloc_mw", || {
        let kind = match mw_type {
            1 => MwType::Type1,
            2 => MwType::Type2,
            other => {
                return Err(Error::invalid(format!(
                    "{other} is no type of memory windows; there are 1 and 2"
                )));
            }
        };
        // SAFETY: the caller's promise.
        let mw = unsafe { PdHandle::object(pd, "the protection domain") }?.alloc_mw(kind)?;
        let c = ibv_mw {
            // SAFETY: not NULL, as shown above.
            context: unsafe { (*pd).context },
            pd,
            rkey: mw.rkey().0,
            handle: 0,
            r#type: mw_type,
        };
        Ok(MwHandle::hand_out(c, Mutex::new(mw), ()))
    })
}

/// `dealloc_mw` of the first table.
///
/// # Safety
/// `mw` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    number("ibv_dealloc_mw", || {
        let how = |object: Mutex<Mw>| {
            let mw = object.into_inner();
            mw.destroy().map_err(|refused| Refused {
                object: Mutex::new(refused.object),
                error: refused.error,
            })
        };
        // SAFETY: the caller's promise.
        unsafe { MwHandle::destroy(mw, "the memory window", how) }
    })
}

/// `bind_mw` of the first table: windows of type 1. The window's key changes with it.
///
/// # Safety
/// `qp` and `mw` are NULL or alive, `bind` is NULL or valid, and its region NULL or alive.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    number("ibv_bind_mw", || {
        // SAFETY: the caller's promise.
        let (object, bind) = unsafe {
            (
                QpHandle::object(qp, "the queue pair")?,
                value(bind, "the attributes")?,
            )
        };
        let info = &bind.bind_info;
        // SAFETY: the caller's promise.
        let mut window = unsafe { lock(mw) }?;
        let signaled = bind.send_flags & SendFlags::SIGNALED.bits() != 0;
        let bound =
            |bind: &BindInfo<'_, P>, window: &mut Mw, wr_id| object.bind_mw(window, wr_id, bind, signaled);
        // SAFETY: the caller's promise.
        let rkey = unsafe { with_info(mw, info, |info| bound(info, &mut window, bind.wr_id)) }?;
        // SAFETY: alive, and its owner waits for this call.
        unsafe { (*mw).rkey = rkey.0 };
        Ok(())
    })
}

/// Bind a window of type 2 by a work request.
///
/// # Safety
/// `mw` is NULL or alive, and so is the region of `info`.
pub(crate) unsafe fn post_bind(
    object: &Qp,
    (wr_id, flags): (u64, SendFlags),
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let guard = unsafe { lock(mw) }?;
    let window: &Mw = &guard;
    let post = |bind: &BindInfo<'_, P>| {
        let request = SendWr {
            wr_id,
            op: SendOp::BindMw {
                mw: window,
                rkey: RKey(rkey),
                bind: *bind,
            },
            payload: Payload::Sges(&[]),
            flags,
            xrc_srqn: None,
        };
        object.post_send(&[request]).map_err(|refused| refused.error)
    };
    // SAFETY: the caller's promise.
    unsafe { with_info(mw, info, post) }
}

/// Call `f` with what to bind to, its region locked meanwhile. Nothing at all, without a region, unbinds.
///
/// # Safety
/// `mw` is alive, the region NULL or alive.
unsafe fn with_info<R>(
    mw: *mut ibv_mw,
    info: &ibv_mw_bind_info,
    f: impl FnOnce(&BindInfo<'_, P>) -> Result<R>,
) -> Result<R> {
    let access = memory::access(info.mw_access_flags as c_uint)?;
    if !info.mr.is_null() {
        // SAFETY: the caller's promise.
        let mr = unsafe { memory::lock(info.mr) }?;
        return f(&BindInfo {
            mr: &mr,
            addr: info.addr,
            length: info.length,
            access,
        });
    }
    if info.addr != 0 || info.length != 0 {
        return Err(null("the memory region to bind to"));
    }
    // Of no bytes the region is never looked for; the window's domain has one for the time being.
    // SAFETY: the window is alive, and its domain with it.
    let nothing = unsafe { PdHandle::object((*mw).pd, "the protection domain") }?.alloc_null_mr()?;
    f(&BindInfo {
        mr: &nothing,
        addr: 0,
        length: 0,
        access,
    })
}
