//! Functions that answer with a path: what lies in the tree is told as the place that the program knows.

use std::ffi::c_char;
use std::mem::transmute;

use libc::{AT_FDCWD, size_t};

use crate::border::{Next, leave_tree, refuse};
use crate::place::with_place;

static REALPATH: Next = Next::new("realpath\0");
static REALPATH_CHECKED: Next = Next::new("__realpath_chk\0");
static CANONICALIZE: Next = Next::new("canonicalize_file_name\0");
static GETCWD: Next = Next::new("getcwd\0");
static GETCWD_CHECKED: Next = Next::new("__getcwd_chk\0");
static GET_CURRENT_DIR_NAME: Next = Next::new("get_current_dir_name\0");

pub(super) static COUNTERPARTS: &[&Next] = &[
    &REALPATH,
    &REALPATH_CHECKED,
    &CANONICALIZE,
    &GETCWD,
    &GETCWD_CHECKED,
    &GET_CURRENT_DIR_NAME,
];

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*const c_char, *mut c_char) -> *mut c_char;
    let Some(next) = REALPATH.find() else {
        return refuse();
    };
    // SAFETY: the type of this function; our caller's promises are the C library's, and its answer is a string of the
    // caller's.
    unsafe {
        let next = transmute::<*mut _, Function>(next);
        let answer = with_place(AT_FDCWD, path, |path| next(path, resolved));
        leave_tree(answer);
        answer
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __realpath_chk(
    path: *const c_char,
    resolved: *mut c_char,
    room: size_t,
) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*const c_char, *mut c_char, size_t) -> *mut c_char;
    let Some(next) = REALPATH_CHECKED.find() else {
        return refuse();
    };
    // SAFETY: as in `realpath`.
    unsafe {
        let next = transmute::<*mut _, Function>(next);
        let answer = with_place(AT_FDCWD, path, |path| next(path, resolved, room));
        leave_tree(answer);
        answer
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*const c_char) -> *mut c_char;
    let Some(next) = CANONICALIZE.find() else {
        return refuse();
    };
    // SAFETY: as in `realpath`.
    unsafe {
        let next = transmute::<*mut _, Function>(next);
        let answer = with_place(AT_FDCWD, path, |path| next(path));
        leave_tree(answer);
        answer
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getcwd(text: *mut c_char, size: size_t) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*mut c_char, size_t) -> *mut c_char;
    let Some(next) = GETCWD.find() else {
        return refuse();
    };
    // SAFETY: as in `realpath`.
    unsafe {
        let answer = transmute::<*mut _, Function>(next)(text, size);
        leave_tree(answer);
        answer
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __getcwd_chk(text: *mut c_char, size: size_t, room: size_t) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*mut c_char, size_t, size_t) -> *mut c_char;
    let Some(next) = GETCWD_CHECKED.find() else {
        return refuse();
    };
    // SAFETY: as in `realpath`.
    unsafe {
        let answer = transmute::<*mut _, Function>(next)(text, size, room);
        leave_tree(answer);
        answer
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn get_current_dir_name() -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn() -> *mut c_char;
    let Some(next) = GET_CURRENT_DIR_NAME.find() else {
        return refuse();
    };
    // SAFETY: as in `realpath`.
    unsafe {
        let answer = transmute::<*mut _, Function>(next)();
        leave_tree(answer);
        answer
    }
}
