//! Protection domains and memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use softroce::lock::{Mutex, MutexGuard};
use verbs_api::{
    Access, Advice, Context as _, Error, MemoryRegion as _, Object, ProtectionDomain as _, Refused, Result,
};
use verbs_sys::convert;
use verbs_sys::*;

use crate::domain::ThreadDomain;
use crate::entry::{self, number, pointer, value};
use crate::handle::Handle;
use crate::import::{Export, destroy_exported};
use crate::{Mr, Pd, context};

pub(crate) type PdHandle = Handle<ibv_pd, Arc<Pd>, PdExtra>;
pub(crate) type MrHandle = Handle<ibv_mr, Arc<Mutex<Mr>>, Option<Export<Mutex<Mr>>>>;

/// What a protection domain keeps beside the provider's.
#[derive(Default)]
pub(crate) struct PdExtra {
    pub(crate) export: Option<Export<Pd>>,
    /// The thread domain that a parent domain names.
    _thread: Option<Arc<ThreadDomain>>,
}

/// The provider's region, for this caller alone.
///
/// # Safety
/// `mr` is NULL or alive during `'a`.
pub(crate) unsafe fn lock<'a>(mr: *mut ibv_mr) -> Result<MutexGuard<'a, Mr>> {
    // SAFETY: the caller's promise.
    let object = unsafe { MrHandle::object(mr, "the memory region") }?;
    Ok(object.lock())
}

/// `ibv_alloc_pd`
///
/// # Safety
/// `context` is NULL or open.
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer("ibv_alloc_pd", || {
        // SAFETY: the caller's promise.
        let pd = unsafe { context::object(context) }?.alloc_pd()?;
        // SAFETY: as above.
        Ok(unsafe { hand_out_pd(context, pd, None) })
    })
}

/// # Safety
/// `context` is open.
pub(crate) unsafe fn hand_out_pd(
    context: *mut ibv_context,
    pd: Pd,
    thread: Option<Arc<ThreadDomain>>,
) -> *mut ibv_pd {
    let pd = Arc::new(pd);
    // SAFETY: the caller's promise.
    let export = unsafe { context::exports(context) }.pds.export(&pd);
    let handle = export.number;
    let extra = PdExtra {
        export: Some(export),
        _thread: thread,
    };
    PdHandle::hand_out(ibv_pd { context, handle }, pd, extra)
}

/// `ibv_dealloc_pd`
///
/// # Safety
/// `pd` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_dealloc_pd", || unsafe {
        PdHandle::destroy(pd, "the protection domain", |object| {
            destroy_exported(object, PdHandle::extra(pd).export.as_ref(), Object::destroy)
        })
    })
}

/// Rights from C. Bits of the optional range that mean nothing to us are ignored, as the range is made for.
pub(crate) fn access(flags: c_uint) -> Result<Access> {
    const OPTIONAL_RANGE: c_uint = 0x3ff0_0000;
    let known = Access::from_bits_truncate(flags);
    if flags & !OPTIONAL_RANGE & !known.bits() != 0 {
        return Err(Error::invalid(format!(
            "access flags {flags:#x} have bits that mean nothing"
        )));
    }
    Ok(known)
}

pub(crate) fn hand_out(pd: *mut ibv_pd, mr: Mr, addr: *mut c_void) -> *mut ibv_mr {
    // SAFETY: the domain is alive.
    let context = unsafe { (*pd).context };
    let mut c = ibv_mr {
        context,
        pd,
        addr,
        length: mr.length() as usize,
        handle: 0,
        lkey: mr.lkey().0,
        rkey: mr.rkey().0,
    };
    let mr = Arc::new(Mutex::new(mr));
    // SAFETY: a context is open while a domain on it lives.
    let export = unsafe { context::exports(context) }.mrs.export(&mr);
    c.handle = export.number;
    MrHandle::hand_out(c, mr, Some(export))
}

unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> Result<*mut ibv_mr> {
    // SAFETY: NULL or alive, by the promise of our callers' callers.
    let object = unsafe { PdHandle::object(pd, "the protection domain") }?;
    // SAFETY: registering is the program's promise about its memory.
    let mr = unsafe { object.reg_mr_raw(addr.cast(), length, iova, access(flags)?) }?;
    Ok(hand_out(pd, mr, addr))
}

/// `ibv_reg_mr`
///
/// # Safety
/// `pd` is NULL or alive; the memory is the program's to register.
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer("ibv_reg_mr", || unsafe {
        register(pd, addr, length, addr as u64, access as c_uint)
    })
}

/// `ibv_reg_mr_iova`
///
/// # Safety
/// As `ibv_reg_mr`.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer("ibv_reg_mr_iova", || unsafe {
        register(pd, addr, length, iova, access as c_uint)
    })
}

/// `ibv_reg_mr_iova2`
///
/// # Safety
/// As `ibv_reg_mr`.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer("ibv_reg_mr_iova2", || unsafe {
        register(pd, addr, length, iova, access)
    })
}

/// `reg_mr_ex` of the second table: memory by its address alone.
///
/// # Safety
/// As `ibv_reg_mr`; `init` is NULL or valid.
pub(crate) unsafe extern "C" fn reg_mr_ex(pd: *mut ibv_pd, init: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    const IOVA: u64 = 1;
    const ADDR: u64 = 1 << 1;
    pointer("ibv_reg_mr_ex", || {
        // SAFETY: the caller's promise.
        let init = unsafe { value(init, "the attributes") }?;
        if init.comp_mask & !(IOVA | ADDR) != 0 {
            return Err(Error::unsupported(
                "registering memory by a descriptor, or with hints for a PCIe card's caches,",
            ));
        }
        if init.comp_mask & ADDR == 0 {
            return Err(Error::invalid("memory without an address"));
        }
        let iova = match init.comp_mask & IOVA {
            0 => init.addr as u64,
            _ => init.iova,
        };
        // SAFETY: the caller's promise.
        unsafe { register(pd, init.addr, init.length, iova, init.access as c_uint) }
    })
}

/// `alloc_null_mr` of the second table.
///
/// # Safety
/// `pd` is NULL or alive.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer("ibv_alloc_null_mr", || {
        // SAFETY: the caller's promise.
        let mr = unsafe { PdHandle::object(pd, "the protection domain") }?.alloc_null_mr()?;
        Ok(hand_out(pd, mr, std::ptr::null_mut()))
    })
}

/// `advise_mr` of the second table. With or without `IBV_ADVISE_MR_FLAG_FLUSH` the pages are there when it returns; but
/// without, it is no more than a hint: pages that are missing are nobody's error then.
///
/// # Safety
/// `pd` is NULL or alive, `list` NULL or valid for `count` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    const FLUSH: u32 = 1;
    number("ibv_advise_mr", || {
        // SAFETY: the caller's promise.
        let domain = unsafe { PdHandle::object(pd, "the protection domain") }?;
        let advice = match advice {
            0 => Advice::Prefetch,
            1 => Advice::PrefetchWrite,
            2 => Advice::PrefetchNoFault,
            other => {
                return Err(Error::unsupported(&format!("the advice {other}")));
            }
        };
        if flags & !FLUSH != 0 {
            return Err(Error::invalid(format!("advice has no flags {flags:#x}")));
        }
        if count == 0 {
            return Err(Error::invalid("advice about no memory at all"));
        }
        // SAFETY: the caller's promise.
        let sges = unsafe { convert::sge_list(list, c_int::try_from(count).unwrap_or(-1)) }
            .ok_or_else(|| Error::invalid("the list of entries is NULL or too long"))?;
        if flags & FLUSH == 0 {
            // Keys and bounds must be right all the same.
            domain.advise_mr(Advice::PrefetchNoFault, sges)?;
            let _ = domain.advise_mr(advice, sges);
            return Ok(());
        }
        domain.advise_mr(advice, sges)
    })
}

const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 2;
const CHANGE_ACCESS: c_int = 4;

/// `ibv_rereg_mr`: 0, or `IBV_REREG_MR_ERR_INPUT` (-1) with the old region untouched.
///
/// # Safety
/// `mr` is NULL or alive, `pd` too when it is to change; the memory is the program's to register.
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access_flags: c_int,
) -> c_int {
    entry::count("ibv_rereg_mr", || {
        if flags == 0 || flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) != 0 {
            return Err(Error::invalid(format!(
                "{flags:#x} says nothing, or nothing known, about what to change"
            )));
        }
        // SAFETY: the caller's promise.
        let mut object = unsafe { lock(mr) }?;
        let new_pd = match flags & CHANGE_PD {
            0 => None,
            // SAFETY: the caller's promise.
            _ => Some(&**unsafe { PdHandle::object(pd, "the new protection domain") }?),
        };
        let memory = (flags & CHANGE_TRANSLATION != 0).then_some((addr.cast::<u8>(), length));
        let new_access = match flags & CHANGE_ACCESS {
            0 => None,
            _ => Some(access(access_flags as c_uint)?),
        };
        // SAFETY: registering is the program's promise about its memory.
        unsafe { object.rereg_raw(new_pd, memory, new_access) }?;
        // SAFETY: the region is alive, and its owner waits for this call.
        unsafe {
            (*mr).lkey = object.lkey().0;
            (*mr).rkey = object.rkey().0;
            if memory.is_some() {
                (*mr).addr = addr;
                (*mr).length = length;
            }
            if new_pd.is_some() {
                (*mr).pd = pd;
            }
        }
        Ok(0)
    })
}

/// `ibv_dereg_mr`
///
/// # Safety
/// `mr` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    number("ibv_dereg_mr", || {
        let destroy = |object: Mutex<Mr>| {
            let mr = object.into_inner();
            mr.destroy().map_err(|refused| Refused {
                object: Mutex::new(refused.object),
                error: refused.error,
            })
        };
        // SAFETY: the caller's promise.
        unsafe {
            MrHandle::destroy(mr, "the memory region", |object| {
                destroy_exported(object, MrHandle::extra(mr).as_ref(), destroy)
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_rights_that_mean_nothing_are_ignored_and_others_refused() {
        assert_eq!(
            access(1 | 1 << 20 | 1 << 25).unwrap(),
            Access::LOCAL_WRITE | Access::RELAXED_ORDERING
        );
        assert_eq!(access(1 << 15).unwrap_err().errno(), libc::EINVAL);
    }
}
