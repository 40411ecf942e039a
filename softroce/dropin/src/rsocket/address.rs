//! Socket addresses between C and Rust.

use std::ffi::c_int;
use std::mem::size_of;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use verbs_api::{Error, Result};

use super::{lookup, os_error};
use crate::entry::{null, number_or_minus_one};
use crate::sockaddr::{family_of, length_of, read, to_c};

/// An address that C gave. EAFNOSUPPORT; EINVAL: too short.
///
/// # Safety
/// `address` is NULL or valid for `length` bytes.
pub(super) unsafe fn address_in(address: *const sockaddr, length: socklen_t) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(null("the address"));
    }
    let length = length as usize;
    let short = || Error::invalid(format!("an address of {length} bytes is too short"));
    if length < size_of::<libc::sa_family_t>() {
        return Err(short());
    }
    // SAFETY: the family is within the length.
    let family = unsafe { family_of(address) };
    match length_of(family) {
        Some(bytes) if length < bytes => Err(short()),
        // SAFETY: as long as that.
        Some(_) => unsafe { read(address) }.ok_or_else(|| unknown(family)),
        None => Err(unknown(family)),
    }
}

fn unknown(family: c_int) -> Error {
    os_error(
        libc::EAFNOSUPPORT,
        format!("addresses of family {family} are not offered"),
    )
}

/// Whether an address is of no family: `connect` undoes what it did before.
///
/// # Safety
/// As [`address_in`].
pub(super) unsafe fn is_unspecified(address: *const sockaddr, length: socklen_t) -> bool {
    let has_family = !address.is_null() && length as usize >= size_of::<libc::sa_family_t>();
    // SAFETY: the family is within the length.
    has_family && unsafe { family_of(address) } == libc::AF_UNSPEC
}

/// Where C wants an address, if it does.
#[derive(Clone, Copy)]
pub(super) struct AddressOut {
    place: *mut u8,
    length: *mut socklen_t,
}

impl AddressOut {
    /// # Safety
    /// `place` is NULL or valid for as many bytes as `length` says, and then `length` is valid, as long as this is used.
    pub(super) unsafe fn new(place: *mut sockaddr, length: *mut socklen_t) -> Self {
        let place = if length.is_null() {
            std::ptr::null_mut()
        } else {
            place
        };
        AddressOut {
            place: place.cast(),
            length,
        }
    }

    /// As much of it as fits; the length says how long it is.
    pub(super) fn write(self, address: SocketAddr) {
        if self.place.is_null() {
            return;
        }
        let (storage, length) = to_c(&address);
        // SAFETY: promised at `new`.
        let room = unsafe { self.length.read_unaligned() } as usize;
        // SAFETY: no more bytes than both have.
        unsafe { std::ptr::copy_nonoverlapping(storage.bytes.as_ptr(), self.place, length.min(room)) };
        // SAFETY: promised at `new`.
        unsafe { self.length.write_unaligned(length as socklen_t) };
    }
}

/// # Safety
/// `address` is NULL or valid for as many bytes as `length` says.
pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    number_or_minus_one("rgetsockname", || {
        let local = lookup(socket)?.local_addr();
        // SAFETY: the caller's promise.
        unsafe { answer(address, length, local) }
    })
}

/// # Safety
/// As [`rgetsockname`].
pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    number_or_minus_one("rgetpeername", || {
        let peer = lookup(socket)?.peer_addr()?;
        // SAFETY: the caller's promise.
        unsafe { answer(address, length, peer) }
    })
}

/// # Safety
/// As [`rgetsockname`].
unsafe fn answer(address: *mut sockaddr, length: *mut socklen_t, value: SocketAddr) -> Result<()> {
    if address.is_null() || length.is_null() {
        return Err(os_error(libc::EFAULT, "there is no place for the address"));
    }
    // SAFETY: the caller's promise.
    unsafe { AddressOut::new(address, length) }.write(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(address: &str, room: usize) -> (Result<SocketAddr>, socklen_t) {
        let mut bytes = [0_u8; 64];
        let mut length = room as socklen_t;
        // SAFETY: the array is longer than the room.
        unsafe {
            AddressOut::new(bytes.as_mut_ptr().cast(), &raw mut length).write(address.parse().unwrap());
            (
                address_in(bytes.as_ptr().cast(), (room as socklen_t).min(length)),
                length,
            )
        }
    }

    #[test]
    fn addresses_come_back_as_they_went() {
        for address in ["127.0.0.2:7471", "[fe80::1%3]:9", "[::1]:65535"] {
            let (back, length) = round_trip(address, 64);
            assert_eq!(back.unwrap(), address.parse().unwrap());
            assert_eq!(length, if address.starts_with('[') { 28 } else { 16 });
        }
    }

    #[test]
    fn a_short_place_gets_a_part_and_the_whole_length() {
        let (back, length) = round_trip("127.0.0.1:1", 8);
        assert_eq!((back.unwrap_err().errno(), length), (libc::EINVAL, 16));
        let (back, length) = round_trip("[::1]:1", 0);
        assert_eq!((back.unwrap_err().errno(), length), (libc::EINVAL, 28));
        let unix = [1_u8, 0, b'/', 0];
        // SAFETY: four bytes; and NULL.
        unsafe {
            assert_eq!(
                address_in(unix.as_ptr().cast(), 4).unwrap_err().errno(),
                libc::EAFNOSUPPORT
            );
            assert_eq!(
                address_in(std::ptr::null(), 16).unwrap_err().errno(),
                libc::EINVAL
            );
        }
    }
}
