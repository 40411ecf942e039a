//! The functions of the C library that take a path, with ours in front of them.
//!
//! They are declared with as many arguments as the C library reads. `open` and its like take the mode only if they
//! create a file: what stands in its place otherwise is handed on, and nobody looks at it.
//!
//! Tests have them under other names: else they would be the functions of the test program itself.
//!
//! `C-unwind`, since a thread may be cancelled within: that passes through these frames, in which nothing is to be
//! cleaned up.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::transmute;

use libc::{AT_FDCWD, FILE, mode_t, size_t, ssize_t};

use crate::border::refuse;
use crate::place::with_place;

mod answers;
mod listings;
mod patterns;

/// Put functions in front of those of the C library: `@path` stands for the path, which is seen from the directory that
/// is named after `from`.
macro_rules! in_front_of {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* @path from $base:ident $(, $after:ident: $after_type:ty)*) -> $answer:ty;)*) => {
        /// Their counterparts in the C library.
        #[allow(non_upper_case_globals)]
        mod counterparts {
            use crate::border::Next;
            $(pub(super) static $name: Next = Next::new(concat!(stringify!($name), "\0"));)*
            pub(super) static ALL: &[&Next] = &[$(&$name),*];
        }

        $(
            /// As in the C library.
            ///
            /// # Safety
            /// As in the C library.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(
                $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
            ) -> $answer {
                type Function = unsafe extern "C-unwind" fn($($before_type,)* *const c_char $(, $after_type)*) -> $answer;
                let Some(next) = counterparts::$name.find() else {
                    return refuse();
                };
                // SAFETY: the function of this name in the C library has this type.
                let next = unsafe { transmute::<*mut c_void, Function>(next) };
                // SAFETY: our caller's promises are the C library's; the path is another C string at most.
                with_place($base, path, |path| unsafe { next($($before,)* path $(, $after)*) })
            }
        )*
    };
}

/// A `struct stat`, `statfs`, … of the caller.
type Place = *mut c_void;
/// A function of the caller.
type Callback = *const c_void;

in_front_of! {
    fn open(@path from AT_FDCWD, flags: c_int, mode: mode_t) -> c_int;
    fn open64(@path from AT_FDCWD, flags: c_int, mode: mode_t) -> c_int;
    fn __open_2(@path from AT_FDCWD, flags: c_int) -> c_int;
    fn __open64_2(@path from AT_FDCWD, flags: c_int) -> c_int;
    fn openat(directory: c_int, @path from directory, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(directory: c_int, @path from directory, flags: c_int, mode: mode_t) -> c_int;
    fn __openat_2(directory: c_int, @path from directory, flags: c_int) -> c_int;
    fn __openat64_2(directory: c_int, @path from directory, flags: c_int) -> c_int;
    fn fopen(@path from AT_FDCWD, mode: *const c_char) -> *mut FILE;
    fn fopen64(@path from AT_FDCWD, mode: *const c_char) -> *mut FILE;
    fn freopen(@path from AT_FDCWD, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn freopen64(@path from AT_FDCWD, mode: *const c_char, stream: *mut FILE) -> *mut FILE;

    fn scandir(@path from AT_FDCWD, list: Place, filter: Callback, order: Callback) -> c_int;
    fn scandir64(@path from AT_FDCWD, list: Place, filter: Callback, order: Callback) -> c_int;
    fn scandirat(directory: c_int, @path from directory, list: Place, filter: Callback, order: Callback) -> c_int;
    fn scandirat64(directory: c_int, @path from directory, list: Place, filter: Callback, order: Callback) -> c_int;
    fn chdir(@path from AT_FDCWD) -> c_int;

    fn stat(@path from AT_FDCWD, place: Place) -> c_int;
    fn stat64(@path from AT_FDCWD, place: Place) -> c_int;
    fn lstat(@path from AT_FDCWD, place: Place) -> c_int;
    fn lstat64(@path from AT_FDCWD, place: Place) -> c_int;
    fn fstatat(directory: c_int, @path from directory, place: Place, flags: c_int) -> c_int;
    fn fstatat64(directory: c_int, @path from directory, place: Place, flags: c_int) -> c_int;
    fn __xstat(version: c_int, @path from AT_FDCWD, place: Place) -> c_int;
    fn __xstat64(version: c_int, @path from AT_FDCWD, place: Place) -> c_int;
    fn __lxstat(version: c_int, @path from AT_FDCWD, place: Place) -> c_int;
    fn __lxstat64(version: c_int, @path from AT_FDCWD, place: Place) -> c_int;
    fn __fxstatat(version: c_int, directory: c_int, @path from directory, place: Place, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, directory: c_int, @path from directory, place: Place, flags: c_int) -> c_int;
    fn statx(directory: c_int, @path from directory, flags: c_int, mask: c_uint, place: Place) -> c_int;
    fn statfs(@path from AT_FDCWD, place: Place) -> c_int;
    fn statfs64(@path from AT_FDCWD, place: Place) -> c_int;
    fn statvfs(@path from AT_FDCWD, place: Place) -> c_int;
    fn statvfs64(@path from AT_FDCWD, place: Place) -> c_int;

    fn access(@path from AT_FDCWD, mode: c_int) -> c_int;
    fn eaccess(@path from AT_FDCWD, mode: c_int) -> c_int;
    fn euidaccess(@path from AT_FDCWD, mode: c_int) -> c_int;
    fn faccessat(directory: c_int, @path from directory, mode: c_int, flags: c_int) -> c_int;

    fn readlink(@path from AT_FDCWD, text: *mut c_char, size: size_t) -> ssize_t;
    fn readlinkat(directory: c_int, @path from directory, text: *mut c_char, size: size_t) -> ssize_t;
    fn __readlink_chk(@path from AT_FDCWD, text: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    fn __readlinkat_chk(directory: c_int, @path from directory, text: *mut c_char, size: size_t, room: size_t) -> ssize_t;

    fn getxattr(@path from AT_FDCWD, name: *const c_char, value: Place, size: size_t) -> ssize_t;
    fn lgetxattr(@path from AT_FDCWD, name: *const c_char, value: Place, size: size_t) -> ssize_t;
    fn listxattr(@path from AT_FDCWD, list: Place, size: size_t) -> ssize_t;
    fn llistxattr(@path from AT_FDCWD, list: Place, size: size_t) -> ssize_t;
    fn inotify_add_watch(descriptor: c_int, @path from AT_FDCWD, mask: u32) -> c_int;
}

/// Look everything up that is needed later, when that may be in a signal handler.
pub(crate) fn prepare() {
    let lists = [
        counterparts::ALL,
        answers::COUNTERPARTS,
        listings::COUNTERPARTS,
        patterns::COUNTERPARTS,
    ];
    for next in lists.into_iter().flatten() {
        next.look_up();
    }
    listings::find_parents();
}
