//! A mark that no child inherits, however it was made.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A number of this process, 0 from the start, and 0 again in every child (`MADV_WIPEONFORK`, since Linux 4.14): also in one
/// made by a system call, past the handlers of the C library. A child that shares its parent's memory (vfork, threads)
/// shares the number.
pub(crate) fn birthmark() -> io::Result<&'static AtomicU32> {
    /// The smallest piece of memory that the kernel wipes.
    const PAGE_BYTES: usize = 1;
    // SAFETY: new private memory at a place of the kernel's choice; rounded up to a whole page.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let mark = NonNull::new(page.cast::<AtomicU32>()).filter(|_| page != libc::MAP_FAILED);
    let mark = mark.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the page is ours, and this advice changes nothing here.
    if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: aligned to a page, zeroed, never unmapped, and used through this reference alone.
    Ok(unsafe { mark.as_ref() })
}
