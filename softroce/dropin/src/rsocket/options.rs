//! Options of sockets: rsetsockopt, rgetsockopt, rfcntl.

use std::ffi::{c_int, c_long, c_void};
use std::mem::size_of;
use std::time::Duration;

use libc::socklen_t;
use softroce_rsocket::{Family, Options};
use verbs_api::{Error, Result};

use super::{Socket, lookup, os_error};
use crate::entry::{count, number_or_minus_one, place};

/// Level of the options of RDMA, and those (rdma/rsocket.h).
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

impl Socket {
    fn kind(&self) -> c_int {
        match self {
            Socket::Stream(_) => libc::SOCK_STREAM,
            Socket::Datagram(_) => libc::SOCK_DGRAM,
        }
    }
}

/// A value that C gave, of a type whose bits may be anything.
///
/// # Safety
/// `value` is NULL or valid for `length` bytes, and every pattern of bits is a `T`.
unsafe fn value_in<T: Copy>(value: *const c_void, length: socklen_t) -> Result<T> {
    if value.is_null() {
        return Err(os_error(libc::EFAULT, "the value is NULL"));
    }
    if (length as usize) < size_of::<T>() {
        return Err(Error::invalid(format!("a value of {length} bytes is too short")));
    }
    // SAFETY: as long as that.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

fn unknown(level: c_int, option: c_int) -> Error {
    os_error(
        libc::ENOPROTOOPT,
        format!("rsockets have no option {option} at level {level}"),
    )
}

/// # Safety
/// `value` is NULL or valid for `length` bytes.
pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    number_or_minus_one("rsetsockopt", || {
        let socket = lookup(socket)?;
        if (level, option) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            // SAFETY: the caller's promise.
            let linger: libc::linger = unsafe { value_in(value, length) }?;
            let time = Duration::from_secs(linger.l_linger.max(0) as u64);
            let time = (linger.l_onoff != 0).then_some(time);
            socket.settings().set_options(|options| options.linger = time);
            return Ok(());
        }
        if (level, option) == (SOL_RDMA, RDMA_ROUTE) {
            // The way to a peer is found by its address.
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let number: c_int = unsafe { value_in(value, length) }?;
        set_number(&socket, (level, option), number)
    })
}

fn set_number(socket: &Socket, option: (c_int, c_int), number: c_int) -> Result<()> {
    let (long, switch) = (i64::from(number), number != 0);
    let change: Box<dyn FnOnce(&mut Options)> = match option {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => Box::new(move |options| options.reuse_address = switch),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
            Box::new(move |options| options.receive_bytes = Options::ring_bytes(long))
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
            Box::new(move |options| options.send_bytes = Options::ring_bytes(long))
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => Box::new(move |options| options.keep_alive = switch),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => Box::new(move |options| options.urgent_inline = switch),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Box::new(move |options| options.no_delay = switch),
        // Sizes of segments are the card's affair, and a peer is looked at more often than anybody asks for.
        (
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG | libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT,
        ) => return Ok(()),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if socket.settings().family() == Family::V6 => {
            Box::new(move |options| options.only_own_family = switch)
        }
        (SOL_RDMA, RDMA_SQSIZE) => Box::new(move |options| options.send_queue = Options::queue(long)),
        (SOL_RDMA, RDMA_RQSIZE) => Box::new(move |options| options.receive_queue = Options::queue(long)),
        (SOL_RDMA, RDMA_INLINE) => Box::new(move |options| options.inline_bytes = Options::inline(long)),
        (SOL_RDMA, RDMA_IOMAPSIZE) => {
            let mappings = Options::mappings(long)?;
            Box::new(move |options| options.mappings = mappings)
        }
        (level, option) => return Err(unknown(level, option)),
    };
    socket.settings().set_options(change);
    Ok(())
}

/// # Safety
/// `length` is NULL or valid, and `value` is NULL or valid for as many bytes as it says.
pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    number_or_minus_one("rgetsockopt", || {
        let socket = lookup(socket)?;
        // SAFETY: the caller's promise.
        let length = unsafe { place(length, "the length") }?;
        if (level, option) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            let time = socket.settings().options().linger;
            let linger = libc::linger {
                l_onoff: time.is_some().into(),
                l_linger: time.map_or(0, |time| time.as_secs() as c_int),
            };
            // SAFETY: the caller's promise.
            return unsafe { value_out(value, length, linger) };
        }
        let number = number_of(&socket, (level, option))?;
        // SAFETY: the caller's promise.
        unsafe { value_out(value, length, number) }
    })
}

fn number_of(socket: &Socket, option: (c_int, c_int)) -> Result<c_int> {
    let options = socket.settings().options();
    Ok(match option {
        (libc::SOL_SOCKET, libc::SO_ERROR) => socket.take_error().unwrap_or(0),
        (libc::SOL_SOCKET, libc::SO_TYPE) => socket.kind(),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => match socket.settings().family() {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        },
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => options.reuse_address.into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => options.receive_bytes as c_int,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => options.send_bytes as c_int,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keep_alive.into(),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.urgent_inline.into(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
        // What one message may carry.
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 1 << 16,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if socket.settings().family() == Family::V6 => {
            options.only_own_family.into()
        }
        (SOL_RDMA, RDMA_SQSIZE) => options.send_queue.into(),
        (SOL_RDMA, RDMA_RQSIZE) => options.receive_queue.into(),
        (SOL_RDMA, RDMA_INLINE) => options.inline_bytes as c_int,
        (SOL_RDMA, RDMA_IOMAPSIZE) => options.mappings.into(),
        (level, option) => return Err(unknown(level, option)),
    })
}

/// # Safety
/// `value` is NULL or valid for `length` bytes.
unsafe fn value_out<T>(value: *mut c_void, length: &mut socklen_t, result: T) -> Result<()> {
    if value.is_null() {
        return Err(os_error(libc::EFAULT, "there is no place for the value"));
    }
    let bytes = size_of::<T>().min(*length as usize);
    // SAFETY: no more bytes than both have.
    unsafe { std::ptr::copy_nonoverlapping((&raw const result).cast::<u8>(), value.cast::<u8>(), bytes) };
    *length = bytes as socklen_t;
    Ok(())
}

/// In C its last argument is variable. On the machines that we run on, an integer is passed alike in both ways.
pub(crate) extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_long) -> c_int {
    count("rfcntl", || {
        let known = lookup(socket)?;
        match command {
            libc::F_GETFL => Ok(match known.settings().is_nonblocking() {
                true => libc::O_RDWR | libc::O_NONBLOCK,
                false => libc::O_RDWR,
            }),
            libc::F_SETFL => {
                known
                    .settings()
                    .set_nonblocking(argument & c_long::from(libc::O_NONBLOCK) != 0);
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => {
                // SAFETY: commands about the descriptor alone.
                match unsafe { libc::fcntl(socket, command, argument) } {
                    -1 => Err(Error::system("rfcntl", std::io::Error::last_os_error())),
                    flags => Ok(flags),
                }
            }
            other => Err(Error::invalid(format!("{other} is no command for rsockets"))),
        }
    })
}
