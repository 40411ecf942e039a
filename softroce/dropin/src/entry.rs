//! The border between C and Rust: no panic crosses it, and errors become what C expects.

use std::ffi::c_int;
use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use verbs_api::{Error, Result};

/// Set `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The thread cannot be cancelled while this lives: verbs make system calls in which a cancelled thread would end, with
/// locks held and things to clean up on its stack. (Where verbs wait, [`wait`](crate::wait) lets it end.)
struct Uncancellable {
    before: c_int,
}

impl Uncancellable {
    fn new() -> Self {
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: a valid place.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancellable { before }
    }
}

impl Drop for Uncancellable {
    fn drop(&mut self) {
        let mut unused = 0;
        // SAFETY: a valid place.
        unsafe { pthread_setcancelstate(self.before, &mut unused) };
    }
}

/// Run `body`; a panic is EIO.
fn guarded<T>(verb: &str, body: impl FnOnce() -> Result<T>) -> Result<T, c_int> {
    let _uncancellable = Uncancellable::new();
    // After a panic the objects involved may be in disorder, but every verb keeps memory safe on its own.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            if std::env::var_os("SOFTROCE_DEBUG").is_some() {
                explain(verb, &error);
            }
            // A program that asks again and again learns nothing new, nor does who reads the journal.
            if error.kind() != verbs_api::ErrorKind::Again {
                softroce::journal::note_failed_verb(verb, &error);
            }
            Err(error.errno())
        }
        Err(_) => {
            tell(format_args!(
                "{verb}: an internal error, reported to the program as EIO; please report it"
            ));
            Err(libc::EIO)
        }
    }
}

/// Tell the user why, in words: C has no place for them.
pub(crate) fn explain(verb: &str, error: &Error) {
    tell(format_args!("{verb}: {error}"));
}

/// One line on standard error, as far as that can be written to: it may be a full disk, or a pipe that nobody reads.
fn tell(words: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("softroce: {words}\n").as_bytes());
}

/// For verbs that return a pointer: NULL and `errno`.
pub(crate) fn pointer<T>(verb: &str, body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    guarded(verb, body).unwrap_or_else(|errno| {
        set_errno(errno);
        null_mut()
    })
}

/// For verbs that return 0 or an error number. `errno` is set too, as the kernel-backed library does in passing.
pub(crate) fn number(verb: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    match guarded(verb, body) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            errno
        }
    }
}

/// For verbs that return a count or index, or -1 and `errno`.
pub(crate) fn count(verb: &str, body: impl FnOnce() -> Result<c_int>) -> c_int {
    guarded(verb, body).unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

/// For calls that return 0, or -1 and `errno`.
pub(crate) fn number_or_minus_one(verb: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    count(verb, || body().map(|()| 0))
}

/// For calls that return a number of bytes, or -1 and `errno`.
pub(crate) fn size(verb: &str, body: impl FnOnce() -> Result<usize>) -> isize {
    match guarded(verb, body) {
        Ok(bytes) => bytes as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// NULL where an object is needed.
pub(crate) fn null(what: &str) -> Error {
    Error::invalid(format!("{what} is NULL"))
}

/// A place that C gave for a result.
///
/// # Safety
/// `place` is NULL or valid for writes of `T`, and nobody else uses it during `'a`.
pub(crate) unsafe fn place<'a, T>(place: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { place.as_mut() }.ok_or_else(|| null(what))
}

/// A value that C gave.
///
/// # Safety
/// `value` is NULL or points at a `T` that nobody changes during `'a`.
pub(crate) unsafe fn value<'a, T>(value: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { value.as_ref() }.ok_or_else(|| null(what))
}

#[cfg(test)]
mod tests {
    use verbs_api::ErrorKind;

    use super::*;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    #[test]
    fn errors_become_what_each_kind_of_verb_returns() {
        let full = || Error::new(ErrorKind::NoMemory, "full");
        assert!(pointer::<u8>("verb", || Err(full())).is_null());
        assert_eq!(errno(), libc::ENOMEM);
        assert_eq!(
            number("verb", || Err(Error::unsupported("this"))),
            libc::EOPNOTSUPP
        );
        assert_eq!(count("verb", || Err(Error::invalid("no"))), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!(count("verb", || Ok(3)), 3);
    }

    #[test]
    fn a_panic_ends_at_the_border() {
        assert_eq!(number("verb", || panic!("expected by this test")), libc::EIO);
    }
}
