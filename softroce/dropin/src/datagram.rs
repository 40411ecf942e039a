//! Address handles and multicast, for datagrams.

use std::ffi::c_int;

use verbs_api::{Gid, Object, ProtectionDomain as _, QueuePair as _};
use verbs_sys::convert::{ah_attr_from_c, ah_attr_to_c, wc_from_c};
use verbs_sys::*;

use crate::Ah;
use crate::context;
use crate::entry::{self, number, place, pointer, value};
use crate::handle::Handle;
use crate::memory::PdHandle;
use crate::qp::QpHandle;

pub(crate) type AhHandle = Handle<ibv_ah, Ah>;

/// # Safety
/// `pd` is alive.
unsafe fn hand_out(pd: *mut ibv_pd, ah: Ah) -> *mut ibv_ah {
    // SAFETY: the caller's promise.
    let context = unsafe { (*pd).context };
    AhHandle::hand_out(
        ibv_ah {
            context,
            pd,
            handle: 0,
        },
        ah,
        (),
    )
}

/// `ibv_create_ah`
///
/// # Safety
/// `pd` is NULL or alive, `attr` NULL or valid.
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer("ibv_create_ah", || {
        // SAFETY: the caller's promise.
        unsafe {
            let av = ah_attr_from_c(value(attr, "the address")?);
            let ah = PdHandle::object(pd, "the protection domain")?.create_ah(&av)?;
            Ok(hand_out(pd, ah))
        }
    })
}

/// `ibv_create_ah_from_wc`
///
/// # Safety
/// `pd` is NULL or alive; `wc` and `grh` are NULL or valid.
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut [u8; 40],
    port: u8,
) -> *mut ibv_ah {
    pointer("ibv_create_ah_from_wc", || {
        // SAFETY: the caller's promise.
        unsafe {
            let wc = wc_from_c(value(wc, "the completion")?);
            let grh = value(grh, "the GRH area")?;
            let ah = PdHandle::object(pd, "the protection domain")?.create_ah_from_wc(&wc, grh, port)?;
            Ok(hand_out(pd, ah))
        }
    })
}

/// `ibv_init_ah_from_wc`
///
/// # Safety
/// `context` is NULL or open; `wc` and `grh` are NULL or valid; `attr` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    entry::count("ibv_init_ah_from_wc", || {
        // SAFETY: the caller's promise; a GRH is 40 bytes.
        unsafe {
            let wc = wc_from_c(value(wc, "the completion")?);
            let grh = value(grh.cast::<[u8; 40]>(), "the GRH area")?;
            let sender = context::object(context)?.sender_of(&wc, grh, port)?;
            *place(attr, "the place for the address")? = ah_attr_to_c(&sender);
        }
        Ok(0)
    })
}

/// `ibv_destroy_ah`
///
/// # Safety
/// `ah` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_destroy_ah", || unsafe {
        AhHandle::destroy(ah, "the address handle", Object::destroy)
    })
}

/// `ibv_attach_mcast`
///
/// # Safety
/// `qp` is NULL or alive, `group` NULL or valid.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, lid: u16) -> c_int {
    number("ibv_attach_mcast", || {
        // SAFETY: the caller's promise.
        let (object, group) = unsafe {
            (
                QpHandle::object(qp, "the queue pair")?,
                value(group, "the group")?,
            )
        };
        object.attach_mcast(Gid(group.raw), lid)
    })
}

/// `ibv_detach_mcast`
///
/// # Safety
/// `qp` is NULL or alive, `group` NULL or valid.
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, lid: u16) -> c_int {
    number("ibv_detach_mcast", || {
        // SAFETY: the caller's promise.
        let (object, group) = unsafe {
            (
                QpHandle::object(qp, "the queue pair")?,
                value(group, "the group")?,
            )
        };
        object.detach_mcast(Gid(group.raw), lid)
    })
}
