//! The system calls of the UDP fabric, each behind a safe function. All `unsafe` of the fabric is in here.
//!
//! Nothing in here knows the protocol. Every descriptor is close-on-exec and non-blocking.

mod poll;
mod seqpacket;
mod udp;

pub(super) use poll::{Epoll, Ready, Timer};
pub(super) use seqpacket::{Connection, Listener};
pub use udp::HeaderFields;
pub(super) use udp::{
    Datagram, Message, ReceiveArena, SendArena, Sharing, SocketOptions, UdpSocket, largest_train_segments,
};

use std::io;
use std::mem;
use std::os::fd::RawFd;

/// Turn the C convention (-1 and `errno`) into a result.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Set a socket option whose value is an `int`.
fn set_int_option(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives across the call; the kernel only reads it.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Set a socket option whose value is a C struct of integers.
fn set_struct_option<T: Copy>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which lives across the call; the kernel only reads it.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const *value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Read a socket option into `value`; returns how many bytes the kernel wrote.
///
/// `T` must be plain old data that any bytes are valid for; the callers use integers and C structs of integers.
fn read_option<T: Copy>(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the kernel writes at most that much.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut *value).cast(), &raw mut length) })?;
    Ok(length as usize)
}

/// 64 random bits of the system (which has them on every Linux that we run on).
pub(super) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: pointer and length describe `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 {
        u64::from_ne_bytes(bytes)
    } else {
        // Only uniqueness among processes of one machine is needed; secrecy is a bonus.
        // SAFETY: takes no arguments and cannot fail.
        let pid = unsafe { libc::getpid() } as u64;
        pid.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ crate::clock::monotonic_ns()
    }
}

/// The effective user of this process.
pub(super) fn current_uid() -> libc::uid_t {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}
