//! The two tables of operations in an open device, which the inline functions of the C header call.

use std::mem::offset_of;

use verbs_api::{Error, Result};
use verbs_sys::{ibv_context, verbs_context};

/// The larger struct that the context is the tail of, if it says so.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn extended(context: *mut ibv_context) -> Option<*const verbs_context> {
    // SAFETY: the context is open. When it says that it is the tail of the larger struct, that struct lies before it.
    unsafe {
        ((*context).abi_compat == ibv_context::EXTENDED).then(|| {
            context
                .byte_sub(offset_of!(verbs_context, context))
                .cast::<verbs_context>()
                .cast_const()
        })
    }
}

/// Whether the struct reaches so far back that the member at `offset` is in it.
///
/// # Safety
/// `table` is what [`extended`] returned.
pub(crate) unsafe fn reaches(table: *const verbs_context, offset: usize) -> bool {
    // SAFETY: `sz` has its fixed place near the end, in libraries of any age.
    unsafe { (&raw const (*table).sz).read() >= verbs_context::reach(offset) }
}

/// An operation of the second table, or `Unsupported` with its name.
macro_rules! extended_op {
    ($context:expr, $operation:ident) => {{
        let context: *mut verbs_sys::ibv_context = $context;
        // SAFETY: the context is open; the operation is read only when the table reaches it.
        let found = unsafe {
            $crate::tables::extended(context).and_then(|table| {
                let offset = std::mem::offset_of!(verbs_sys::verbs_context, $operation);
                match $crate::tables::reaches(table, offset) {
                    true => (&raw const (*table).$operation).read(),
                    false => None,
                }
            })
        };
        found
            .ok_or_else(|| $crate::tables::lacking(concat!("ibv_context operation ", stringify!($operation))))
    }};
}
pub(crate) use extended_op;

/// An operation of the first table, or `Unsupported` with its name.
macro_rules! op {
    ($context:expr, $operation:ident) => {{
        let context: *mut verbs_sys::ibv_context = $context;
        // SAFETY: the context is open.
        unsafe { (*context).ops.$operation }
            .ok_or_else(|| $crate::tables::lacking(concat!("ibv_context operation ", stringify!($operation))))
    }};
}
pub(crate) use op;

/// The error for an operation that the device's driver has not filled in.
pub(crate) fn lacking(operation: &str) -> Error {
    Error::unsupported(operation)
}

/// A count as C takes it.
pub(crate) fn int(number: u32, what: &str) -> Result<std::ffi::c_int> {
    number
        .try_into()
        .map_err(|_| Error::invalid(format!("{number} is too many {what}")))
}
