//! Sending and receiving.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use softroce_rsocket::{Amount, Patience};
use verbs_api::{Error, Result};

use super::address::{AddressOut, address_in};
use super::message::{bytes_in, bytes_out, vectors, vectors_of};
use super::{Socket, lookup, os_error, patience};
use crate::entry::{place, size, value};

/// What is read into several buffers in one piece is at most so much: more than a datagram has, and enough to peek at.
const AT_ONCE_BYTES_MAX: usize = 1 << 20;

fn refuse_urgent(flags: c_int) -> Result<()> {
    match flags & libc::MSG_OOB {
        0 => Ok(()),
        _ => Err(os_error(libc::EOPNOTSUPP, "rsockets have no urgent data")),
    }
}

fn amount(flags: c_int) -> Amount {
    match (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0) {
        (true, _) => Amount::Peek,
        (false, true) => Amount::All,
        (false, false) => Amount::Some,
    }
}

impl Socket {
    fn receive(&self, out: &mut [u8], flags: c_int, from: AddressOut) -> Result<usize> {
        refuse_urgent(flags)?;
        match self {
            // A stream does not say where from.
            Socket::Stream(socket) => socket.receive(out, amount(flags), patience(flags)),
            Socket::Datagram(socket) => {
                let is_peek = amount(flags) == Amount::Peek;
                let (count, sender) = socket.receive(out, is_peek, patience(flags))?;
                from.write(sender);
                Ok(count)
            }
        }
    }

    /// Through a buffer of our own.
    ///
    /// # Safety
    /// The buffers are valid for writes.
    unsafe fn receive_at_once(&self, list: &[iovec], flags: c_int, from: AddressOut) -> Result<usize> {
        let total = list.iter().map(|vector| vector.iov_len).sum::<usize>();
        let mut bytes = vec![0; total.min(AT_ONCE_BYTES_MAX)];
        let count = self.receive(&mut bytes, flags, from)?;
        // SAFETY: the caller's promise.
        unsafe { scatter(&bytes[..count], list) }.map(|()| count)
    }

    /// Into several buffers: the first may wait, and the rest takes what is there.
    ///
    /// # Safety
    /// The buffers are valid for writes.
    unsafe fn receive_into(&self, list: &[iovec], flags: c_int, from: AddressOut) -> Result<usize> {
        refuse_urgent(flags)?;
        let socket = match self {
            Socket::Stream(socket) if amount(flags) != Amount::Peek => socket,
            // SAFETY: the caller's promise.
            _ => return unsafe { self.receive_at_once(list, flags, from) },
        };
        let mut done = 0;
        for vector in list.iter().filter(|vector| vector.iov_len > 0) {
            // SAFETY: the caller's promise.
            let out = unsafe { bytes_out(vector.iov_base.cast(), vector.iov_len) }?;
            let patience = match (done, amount(flags)) {
                (0, _) | (_, Amount::All) => patience(flags),
                _ => Patience::None,
            };
            match socket.receive(out, amount(flags), patience) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if done < out.len() {
                break;
            }
        }
        Ok(done)
    }

    fn send(&self, bytes: &[u8], flags: c_int, to: Option<SocketAddr>) -> Result<usize> {
        refuse_urgent(flags)?;
        match self {
            Socket::Stream(socket) => {
                if to.is_some() && socket.peer_addr().is_ok() {
                    return Err(os_error(
                        libc::EISCONN,
                        "a stream has its peer; it takes no address",
                    ));
                }
                socket.send(bytes, patience(flags))
            }
            Socket::Datagram(socket) => socket.send(to, bytes, patience(flags)),
        }
    }

    /// Out of several buffers.
    ///
    /// # Safety
    /// The buffers are valid for reads.
    unsafe fn send_from(&self, list: &[iovec], flags: c_int, to: Option<SocketAddr>) -> Result<usize> {
        if let Socket::Datagram(_) = self {
            // SAFETY: the caller's promise.
            return self.send(&unsafe { gather(list) }?, flags, to);
        }
        let mut done = 0;
        for vector in list.iter().filter(|vector| vector.iov_len > 0) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { bytes_in(vector.iov_base.cast(), vector.iov_len) }?;
            match self.send(bytes, flags, to) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if done < bytes.len() {
                break;
            }
        }
        Ok(done)
    }
}

/// All bytes of the buffers, as far as a datagram could have them.
///
/// # Safety
/// The buffers are valid for reads.
unsafe fn gather(list: &[iovec]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for vector in list {
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes_in(vector.iov_base.cast(), vector.iov_len) }?;
        if all.len() + bytes.len() > AT_ONCE_BYTES_MAX {
            return Err(os_error(libc::EMSGSIZE, "no datagram has so many bytes"));
        }
        all.extend_from_slice(bytes);
    }
    Ok(all)
}

/// Spread bytes over buffers.
///
/// # Safety
/// The buffers are valid for writes.
unsafe fn scatter(mut bytes: &[u8], list: &[iovec]) -> Result<()> {
    for vector in list {
        // SAFETY: the caller's promise.
        let out = unsafe { bytes_out(vector.iov_base.cast(), vector.iov_len) }?;
        let count = out.len().min(bytes.len());
        out[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
    }
    Ok(())
}

/// # Safety
/// `buffer` is NULL or valid for `length` bytes.
pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    size("rrecv", || {
        // SAFETY: the caller's promise.
        let (out, from) = unsafe { (bytes_out(buffer.cast(), length)?, nowhere()) };
        lookup(socket)?.receive(out, flags, from)
    })
}

/// # Safety
/// As [`rrecv`]; `address` is NULL or valid for as many bytes as `address_length` says.
pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    size("rrecvfrom", || {
        // SAFETY: the caller's promise.
        let (out, from) = unsafe {
            (
                bytes_out(buffer.cast(), length)?,
                AddressOut::new(address, address_length),
            )
        };
        lookup(socket)?.receive(out, flags, from)
    })
}

/// # Safety
/// `message` is NULL or valid, with all that it names.
pub(crate) unsafe extern "C" fn rrecvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    size("rrecvmsg", || {
        // SAFETY: the caller's promise.
        let message = unsafe { place(message, "the message") }?;
        // SAFETY: the caller's promise.
        let list = unsafe { vectors_of(message) }?;
        // SAFETY: the caller's promise.
        let from = unsafe { AddressOut::new(message.msg_name.cast(), &raw mut message.msg_namelen) };
        // SAFETY: the caller's promise.
        let count = unsafe { lookup(socket)?.receive_into(list, flags, from) }?;
        message.msg_controllen = 0;
        message.msg_flags = 0;
        Ok(count)
    })
}

/// # Safety
/// As [`rrecv`].
pub(crate) unsafe extern "C" fn rread(socket: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { rrecv(socket, buffer, length, 0) }
}

/// # Safety
/// `list` is NULL or valid for `count` entries, with all that they name.
pub(crate) unsafe extern "C" fn rreadv(socket: c_int, list: *const iovec, count: c_int) -> ssize_t {
    size("rreadv", || {
        // SAFETY: the caller's promise.
        unsafe { lookup(socket)?.receive_into(vectors(list, count)?, 0, nowhere()) }
    })
}

/// # Safety
/// `buffer` is NULL or valid for `length` bytes.
pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    size("rsend", || {
        // SAFETY: the caller's promise.
        lookup(socket)?.send(unsafe { bytes_in(buffer.cast(), length) }?, flags, None)
    })
}

/// # Safety
/// As [`rsend`]; `address` is NULL or valid for `address_length` bytes.
pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    size("rsendto", || {
        // SAFETY: the caller's promise.
        let (bytes, to) = unsafe { (bytes_in(buffer.cast(), length)?, target(address, address_length)?) };
        lookup(socket)?.send(bytes, flags, to)
    })
}

/// Where to send to, if C says so.
///
/// # Safety
/// `address` is NULL or valid for `length` bytes.
unsafe fn target(address: *const sockaddr, length: socklen_t) -> Result<Option<SocketAddr>> {
    match address.is_null() || length == 0 {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => unsafe { address_in(address, length) }.map(Some),
    }
}

/// # Safety
/// `message` is NULL or valid, with all that it names.
pub(crate) unsafe extern "C" fn rsendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    size("rsendmsg", || {
        // SAFETY: the caller's promise.
        let message = unsafe { value(message, "the message") }?;
        if message.msg_controllen > 0 {
            return Err(Error::unsupported("control data of messages"));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let to = target(message.msg_name.cast(), message.msg_namelen)?;
            lookup(socket)?.send_from(vectors_of(message)?, flags, to)
        }
    })
}

/// # Safety
/// As [`rsend`].
pub(crate) unsafe extern "C" fn rwrite(socket: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { rsend(socket, buffer, length, 0) }
}

/// # Safety
/// `list` is NULL or valid for `count` entries, with all that they name.
pub(crate) unsafe extern "C" fn rwritev(socket: c_int, list: *const iovec, count: c_int) -> ssize_t {
    size("rwritev", || {
        // SAFETY: the caller's promise.
        unsafe { lookup(socket)?.send_from(vectors(list, count)?, 0, None) }
    })
}

/// The caller does not want to know.
fn nowhere() -> AddressOut {
    // SAFETY: NULL is allowed.
    unsafe { AddressOut::new(std::ptr::null_mut(), std::ptr::null_mut()) }
}
