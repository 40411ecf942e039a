//! `glob`: the C library looks at directories through functions of its caller, if it is given some; ours know the tree,
//! and the names that come out are those that the program knows.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use libc::{DIR, size_t};

use super::listings::{closedir, opendir, readdir};
use super::{lstat, stat};
use crate::border::{Next, is_worth_a_look, refuse};
use crate::place::ROOT;

static GLOB: Next = Next::new("glob\0");
static GLOB64: Next = Next::new("glob64\0");
pub(super) static COUNTERPARTS: &[&Next] = &[&GLOB, &GLOB64];

/// Use the functions in `Globbed`.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

/// `glob_t`, with the members that the `libc` crate hides.
#[repr(C)]
pub struct Globbed {
    paths: size_t,
    path: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    close: unsafe extern "C-unwind" fn(*mut DIR) -> c_int,
    read: unsafe extern "C-unwind" fn(*mut DIR) -> *mut libc::dirent,
    open: unsafe extern "C-unwind" fn(*const c_char) -> *mut DIR,
    lstat: unsafe extern "C-unwind" fn(*const c_char, *mut c_void) -> c_int,
    stat: unsafe extern "C-unwind" fn(*const c_char, *mut c_void) -> c_int,
}

type Function = unsafe extern "C-unwind" fn(*const c_char, c_int, *const c_void, *mut Globbed) -> c_int;

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn glob(
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Globbed,
) -> c_int {
    // SAFETY: our caller's promises are the C library's.
    unsafe { glob_with(&GLOB, pattern, flags, on_error, found) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn glob64(
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Globbed,
) -> c_int {
    // SAFETY: our caller's promises are the C library's.
    unsafe { glob_with(&GLOB64, pattern, flags, on_error, found) }
}

/// # Safety
/// As of `glob`.
unsafe fn glob_with(
    next: &Next,
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Globbed,
) -> c_int {
    let Some(next) = next.find() else { return refuse() };
    let mut flags = flags;
    if flags & GLOB_ALTDIRFUNC == 0 && !found.is_null() && ROOT.is_set() && is_worth_a_look(pattern) {
        flags |= GLOB_ALTDIRFUNC;
        // SAFETY: the caller's struct, of which the C library looks at these members only with this flag.
        unsafe {
            (&raw mut (*found).close).write(closedir);
            (&raw mut (*found).read).write(readdir);
            (&raw mut (*found).open).write(opendir);
            (&raw mut (*found).lstat).write(lstat);
            (&raw mut (*found).stat).write(stat);
        }
    }
    // SAFETY: the type of this function, and the caller's promises.
    unsafe { transmute::<*mut c_void, Function>(next)(pattern, flags, on_error, found) }
}
