//! The end of a process that runs no handlers of `exit`: forked children and daemons end by `_exit`.
//!
//! An acknowledgement may wait a little for the answer that the program is likely to post. A card would have sent it
//! long ago; so what waits is sent before the process goes. Nobody can do that for a process that is killed.

use std::ffi::c_int;
use std::panic::catch_unwind;

fn leave(status: c_int) -> ! {
    // Whatever goes wrong, the process ends with the status that it asked for.
    let _ = catch_unwind(softroce::send_what_waits);
    loop {
        // SAFETY: it takes a number, and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// `_exit(2)`, in front of the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    leave(status)
}

/// `_Exit(3)`, in front of the C library's.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    leave(status)
}
