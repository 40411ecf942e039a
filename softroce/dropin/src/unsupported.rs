//! What exists only so that programs and vendor libraries load: every such name leads here.

use std::ffi::c_int;

use crate::entry::set_errno;

/// For functions that return a pointer or nothing.
pub(crate) extern "C" fn unsupported_pointer() -> *mut u8 {
    set_errno(libc::EOPNOTSUPP);
    std::ptr::null_mut()
}

/// For functions that return an error number.
pub(crate) extern "C" fn unsupported_number() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For functions that return nothing, or are asked to register or log something: nothing happens.
pub(crate) extern "C" fn ignored() -> c_int {
    0
}
