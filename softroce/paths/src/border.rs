//! The border to C: pointers that come in, and what is asked of the C library and the kernel.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::place::{PathBuffer, ROOT};

/// The C library's function of one name, behind ours.
pub(crate) struct Next {
    /// Ends with a zero byte.
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static str) -> Self {
        Next {
            name,
            found: AtomicPtr::new(null_mut()),
        }
    }

    /// Its address; none if the C library has no such function.
    #[inline]
    pub(crate) fn find(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            self.look_up()
        } else {
            Some(found)
        }
    }

    /// Look for it now: that is nothing to do in a signal handler.
    #[cold]
    pub(crate) fn look_up(&self) -> Option<*mut c_void> {
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).ok()?;
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// How a function answers that cannot be done.
pub(crate) trait Refusal {
    const REFUSAL: Self;
}

impl Refusal for c_int {
    const REFUSAL: Self = -1;
}

impl Refusal for isize {
    const REFUSAL: Self = -1;
}

impl<T> Refusal for *mut T {
    const REFUSAL: Self = null_mut();
}

/// The answer of a function that the C library lacks.
#[cold]
pub(crate) fn refuse<T: Refusal>() -> T {
    set_errno(libc::ENOSYS);
    T::REFUSAL
}

fn set_errno(errno: c_int) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Whether a path may be one of ours, by its first two bytes. Most are not.
#[inline]
pub(crate) fn is_worth_a_look(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: a C string by the caller's contract with the C library; the second byte is read only if the first is not
    // its end.
    let (first, second) = unsafe {
        let first = *path as u8;
        (first, if first == 0 { 0 } else { *path.add(1) as u8 })
    };
    match first {
        b'/' => matches!(second, b's' | b'd' | b'/' | b'.'),
        // The first letters of what `may_lead_to_place` knows.
        b'.' | b's' | b'c' | b'd' | b'v' | b'i' => true,
        _ => false,
    }
}

/// The bytes of a C string.
pub(crate) fn bytes_of<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string by the caller's contract with the C library, which lives as long as the call that it came with.
    Some(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// The physical path of an open directory, or of the working directory (`AT_FDCWD`).
pub(crate) fn directory_of(base: c_int) -> Option<PathBuffer> {
    let before = errno();
    let directory = if base == libc::AT_FDCWD {
        PathBuffer::new().fill(|room| {
            // By its number, since the C library's function leads here. SAFETY: pointer and length describe `room`.
            let length = unsafe { libc::syscall(libc::SYS_getcwd, room.as_mut_ptr(), room.len()) };
            // With its end, which does not count.
            usize::try_from(length).ok()?.checked_sub(1)
        })
    } else {
        let link = descriptor_link(base)?;
        PathBuffer::new().fill(|room| {
            // SAFETY: a C string, and pointer and length describe `room`.
            let length = unsafe {
                libc::syscall(
                    libc::SYS_readlinkat,
                    libc::AT_FDCWD,
                    link.as_ptr(),
                    room.as_mut_ptr(),
                    room.len(),
                )
            };
            usize::try_from(length).ok()
        })
    };
    set_errno(before);
    // Else it is no path: a pipe, or a directory outside of this root.
    directory.filter(|directory| directory.bytes().first() == Some(&b'/'))
}

/// `/proc/self/fd/N`
fn descriptor_link(descriptor: c_int) -> Option<[u8; 32]> {
    use std::io::Write;
    let mut link = [0; 32];
    let number = u32::try_from(descriptor).ok()?;
    // The last byte stays zero: a number has at most ten digits.
    write!(&mut link[..31], "/proc/self/fd/{number}").ok()?;
    Some(link)
}

/// Take the root off a path that the C library wrote, so that the program sees the place that it knows.
///
/// # Safety
/// `path` is NULL or a C string that may be written to.
pub(crate) unsafe fn leave_tree(path: *mut c_char) {
    let Some(bytes) = bytes_of(path) else { return };
    let Some(length) = ROOT.prefix_of(bytes) else {
        return;
    };
    let left = bytes.len() - length;
    if left == 0 {
        // The root itself is `/`, for which there is room.
        // SAFETY: the root is longer than one byte.
        unsafe { path.cast::<[u8; 2]>().write(*b"/\0") };
        return;
    }
    // SAFETY: the end of the string moves forward within it, its zero byte with it.
    unsafe { std::ptr::copy(path.add(length), path, left + 1) };
}

/// Runs before the program, and before most of its libraries: signal handlers come later.
extern "C" fn start() {
    // SAFETY: a C string. While the program starts, nobody changes the environment.
    let value = unsafe { libc::getenv(c"SOFTROCE_PATHS".as_ptr()) };
    if let Some(value) = bytes_of(value) {
        ROOT.set(value);
    }
    crate::functions::prepare();
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))] // Tests are for themselves.
static START: extern "C" fn() = start;
