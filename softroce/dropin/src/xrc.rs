//! XRC domains, and further handles of XRC targets.

use std::ffi::c_int;

use softroce::XrcOpen;
use verbs_api::{Context as _, Error, Object, Result};
use verbs_sys::*;

use crate::entry::{number, pointer, value};
use crate::handle::Handle;
use crate::{XrcDomain, context, qp};

type XrcHandle = Handle<ibv_xrcd, XrcDomain>;

/// `open_xrcd` of the second table.
///
/// # Safety
/// `context` is NULL or open, `init` NULL or valid.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    const FD: u32 = 1;
    const OFLAGS: u32 = 1 << 1;
    pointer("ibv_open_xrcd", || {
        // SAFETY: the caller's promise.
        let (object, init) = unsafe { (context::object(context)?, value(init, "the attributes")?) };
        if init.comp_mask != FD | OFLAGS {
            return Err(Error::invalid(format!(
                "the attributes of an XRC domain are a descriptor and flags, not the mask {:#x}",
                init.comp_mask
            )));
        }
        let mode = match (init.oflags & libc::O_CREAT != 0, init.oflags & libc::O_EXCL != 0) {
            (false, _) => XrcOpen::Existing,
            (true, false) => XrcOpen::Either,
            (true, true) => XrcOpen::New,
        };
        let fd = (init.fd != -1).then_some(init.fd);
        let domain = object.open_xrc_domain_as(fd, mode)?;
        Ok(XrcHandle::hand_out(ibv_xrcd { context }, domain, ()))
    })
}

/// `close_xrcd` of the second table.
///
/// # Safety
/// `domain` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn close_xrcd(domain: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_close_xrcd", || unsafe {
        XrcHandle::destroy(domain, "the XRC domain", Object::destroy)
    })
}

/// `open_qp` of the second table.
///
/// # Safety
/// `context` is NULL or open, `attr` NULL or valid, its domain NULL or alive.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    const QPN: u32 = 1;
    const DOMAIN: u32 = 1 << 1;
    const CONTEXT: u32 = 1 << 2;
    const TYPE: u32 = 1 << 3;
    pointer("ibv_open_qp", || {
        // SAFETY: the caller's promise.
        let (object, attr) = unsafe { (context::object(context)?, value(attr, "the attributes")?) };
        let needed = QPN | DOMAIN | TYPE;
        if attr.comp_mask & needed != needed || attr.comp_mask & !(needed | CONTEXT) != 0 {
            return Err(Error::invalid(format!(
                "opening a queue pair takes a number, an XRC domain and a type, not the mask {:#x}",
                attr.comp_mask
            )));
        }
        if attr.qp_type != verbs_api::QpType::XrcTarget as c_int {
            return Err(Error::invalid(format!(
                "only XRC targets can be opened, not queue pairs of type {}",
                attr.qp_type
            )));
        }
        // SAFETY: the caller's promise.
        let domain = unsafe { self::object(attr.xrcd) }?;
        let opened = object.open_qp(domain, attr.qp_num)?;
        let user = match attr.comp_mask & CONTEXT {
            0 => std::ptr::null_mut(),
            _ => attr.qp_context,
        };
        Ok(qp::hand_out_target(context, user, opened))
    })
}

/// The provider's domain.
///
/// # Safety
/// `domain` is NULL or alive during `'a`.
pub(crate) unsafe fn object<'a>(domain: *mut ibv_xrcd) -> Result<&'a XrcDomain> {
    // SAFETY: the caller's promise.
    unsafe { XrcHandle::object(domain, "the XRC domain") }
}
