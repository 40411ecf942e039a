//! For ThreadSanitizer: where one thread hands something to another.
//!
//! The sanitizer watches a program that was compiled for it, and follows the locks of the C library. This library is
//! not compiled for it, and its atomics are invisible. So it would take for a race what is none: one thread makes a
//! request and posts it, another takes the completion and frees what the request was about. The sanitizer's runtime has
//! two functions by which such libraries tell of hand-overs. They are looked up once; where there is no sanitizer an
//! announcement is a load and a branch.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type Announcement = extern "C" fn(*mut c_void);

static ACQUIRE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static RELEASE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Look whether the program runs under the sanitizer. Before the first announcement; again is harmless.
pub fn start() {
    RELEASE.store(find(c"__tsan_release"), Ordering::Relaxed);
    ACQUIRE.store(find(c"__tsan_acquire"), Ordering::Relaxed);
}

fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; a name that nobody has gives NULL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// What this thread has done so far is known to whoever [takes](taken) the same thing later.
#[inline]
pub fn given<T: ?Sized>(thing: *const T) {
    announce(&RELEASE, thing.cast());
}

/// This thread knows what those have done who [gave](given) the same thing before.
#[inline]
pub fn taken<T: ?Sized>(thing: *const T) {
    announce(&ACQUIRE, thing.cast());
}

#[inline]
fn announce(how: &AtomicPtr<c_void>, thing: *const c_void) {
    let how = how.load(Ordering::Relaxed);
    if !how.is_null() {
        call(how, thing);
    }
}

#[cold]
fn call(how: *mut c_void, thing: *const c_void) {
    // SAFETY: the sanitizer's function of that name, which takes an address as a mere name and touches nothing there.
    let how = unsafe { std::mem::transmute::<*mut c_void, Announcement>(how) };
    how(thing.cast_mut());
}
