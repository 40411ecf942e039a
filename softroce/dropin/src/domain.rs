//! Thread domains and parent domains: hints about who uses what, which the card has no use for.

use std::ffi::c_int;
use std::sync::Arc;

use verbs_api::{Error, ErrorKind, ProtectionDomain as _, Refused};
use verbs_sys::*;

use crate::context;
use crate::entry::{number, pointer, value};
use crate::handle::Handle;
use crate::memory::{self, PdHandle};

/// The parent domains that name a thread domain hold it.
type TdHandle = Handle<ibv_td, Arc<ThreadDomain>>;

pub(crate) struct ThreadDomain;

/// `alloc_td` of the second table.
///
/// # Safety
/// `context` is NULL or open, `init` NULL or valid.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    init: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    pointer("ibv_alloc_td", || {
        // SAFETY: the caller's promise.
        let init = unsafe {
            context::object(context)?;
            value(init, "the attributes")?
        };
        if init.comp_mask != 0 {
            return Err(Error::invalid("a thread domain has no attributes"));
        }
        Ok(TdHandle::hand_out(ibv_td { context }, Arc::new(ThreadDomain), ()))
    })
}

/// `dealloc_td` of the second table: EBUSY while a parent domain names it.
///
/// # Safety
/// `td` is NULL or alive, and not used afterwards.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_dealloc_td", || unsafe {
        TdHandle::destroy(td, "the thread domain", |domain| {
            Arc::try_unwrap(domain).map(drop).map_err(|object| Refused {
                object,
                error: Error::new(ErrorKind::Busy, "a parent domain names the thread domain"),
            })
        })
    })
}

/// `alloc_parent_domain` of the second table. It goes by `ibv_dealloc_pd`.
///
/// # Safety
/// `context` is NULL or open, `init` NULL or valid, its domains NULL or alive.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    init: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const ALLOCATORS: u32 = 1;
    const PD_CONTEXT: u32 = 1 << 1;
    pointer("ibv_alloc_parent_domain", || {
        // SAFETY: the caller's promise.
        let init: &ibv_parent_domain_init_attr = unsafe { value(init, "the attributes") }?;
        if init.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
            return Err(Error::invalid(format!(
                "a parent domain has no attributes {:#x}",
                init.comp_mask
            )));
        }
        // SAFETY: the caller's promise. The allocators are not needed: nothing lies in a program's memory.
        let below = unsafe { PdHandle::object(init.pd, "the protection domain") }?;
        let parent = below.parent_domain()?;
        let thread = match init.td.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { TdHandle::object(init.td, "the thread domain") }?.clone()),
        };
        // SAFETY: the caller's promise.
        unsafe {
            context::object(context)?;
            Ok(memory::hand_out_pd(context, parent, thread))
        }
    })
}
