//! Device memory.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use verbs_api::{Context as _, DeviceMemory as _, Error, Object, ProtectionDomain as _};
use verbs_sys::*;

use crate::entry::{null, number, pointer, value};
use crate::handle::Handle;
use crate::import::{Export, destroy_exported};
use crate::memory::{self, PdHandle};
use crate::{Dm, context};

pub(crate) type DmHandle = Handle<ibv_dm, Arc<Dm>, Option<Export<Dm>>>;

/// `alloc_dm` of the second table.
///
/// # Safety
/// `context` is NULL or open, `attr` NULL or valid.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    pointer("ibv_alloc_dm", || {
        // SAFETY: the caller's promise.
        let (object, attr) = unsafe { (context::object(context)?, value(attr, "the attributes")?) };
        if attr.comp_mask != 0 {
            return Err(Error::invalid(format!(
                "the attributes of device memory have no mask bits {:#x}",
                attr.comp_mask
            )));
        }
        let dm = Arc::new(context::ask(object, |object| {
            object.alloc_dm(attr.length, attr.log_align_req)
        })?);
        // SAFETY: the caller's promise.
        let (shared, exports) = unsafe { (context::extra(context), context::exports(context)) };
        let export = (!shared.is_inherited()).then(|| exports.dms.export(&dm));
        let handle = export.as_ref().map_or(0, |export| export.number);
        Ok(DmHandle::hand_out(as_c(context, handle), dm, export))
    })
}

pub(crate) fn as_c(context: *mut ibv_context, handle: u32) -> ibv_dm {
    ibv_dm {
        context,
        memcpy_to_dm: Some(copy_to),
        memcpy_from_dm: Some(copy_from),
        comp_mask: 0,
        handle,
    }
}

/// `free_dm` of the second table.
///
/// # Safety
/// `dm` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_free_dm", || unsafe {
        DmHandle::destroy(dm, "the device memory", |object| {
            destroy_exported(object, DmHandle::extra(dm).as_ref(), Object::destroy)
        })
    })
}

/// `reg_dm_mr` of the second table.
///
/// # Safety
/// `pd` and `dm` are NULL or alive.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    pointer("ibv_reg_dm_mr", || {
        // SAFETY: the caller's promise.
        let (domain, dm) = unsafe {
            (
                PdHandle::object(pd, "the protection domain")?,
                DmHandle::object(dm, "the device memory")?,
            )
        };
        let mr = domain.reg_dm_mr(dm, offset, length, memory::access(access)?)?;
        Ok(memory::hand_out(pd, mr, std::ptr::null_mut()))
    })
}

/// # Safety
/// `dm` is NULL or alive; `from` is NULL or valid for reads of `length` bytes.
unsafe extern "C" fn copy_to(dm: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int {
    number("ibv_memcpy_to_dm", || {
        // SAFETY: the caller's promise.
        let dm = unsafe { DmHandle::object(dm, "the device memory") }?;
        if length == 0 {
            return Ok(());
        }
        if from.is_null() {
            return Err(null("the source"));
        }
        // SAFETY: the caller's promise.
        dm.write(offset, unsafe { std::slice::from_raw_parts(from.cast(), length) })
    })
}

/// # Safety
/// `dm` is NULL or alive; `to` is NULL or valid for writes of `length` bytes.
unsafe extern "C" fn copy_from(to: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int {
    number("ibv_memcpy_from_dm", || {
        // SAFETY: the caller's promise.
        let dm = unsafe { DmHandle::object(dm, "the device memory") }?;
        if length == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(null("the target"));
        }
        // SAFETY: the caller's promise.
        dm.read(offset, unsafe {
            std::slice::from_raw_parts_mut(to.cast(), length)
        })
    })
}
