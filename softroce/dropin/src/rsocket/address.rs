//! Socket addresses between C and Rust.

use std::ffi::c_int;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use verbs_api::{Error, Result};

use super::{lookup, os_error};
use crate::entry::{null, number_or_minus_one};

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
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: as long as that.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Ok((ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as long as that.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            Ok(SocketAddrV6::new(
                Ipv6Addr::from(address.sin6_addr.s6_addr),
                u16::from_be(address.sin6_port),
                address.sin6_flowinfo,
                address.sin6_scope_id,
            )
            .into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(short()),
        other => Err(os_error(
            libc::EAFNOSUPPORT,
            format!("addresses of family {other} are not offered"),
        )),
    }
}

/// Whether an address is of no family: `connect` undoes what it did before.
///
/// # Safety
/// As [`address_in`].
pub(super) unsafe fn is_unspecified(address: *const sockaddr, length: socklen_t) -> bool {
    let has_family = !address.is_null() && length as usize >= size_of::<libc::sa_family_t>();
    // SAFETY: the family is within the length.
    has_family
        && c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }) == libc::AF_UNSPEC
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
        match address.ip() {
            IpAddr::V4(ip) => self.write_value(sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(ip).to_be(),
                },
                sin_zero: [0; 8],
            }),
            IpAddr::V6(ip) => self.write_value(sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: match address {
                    SocketAddr::V6(address) => address.scope_id(),
                    SocketAddr::V4(_) => 0,
                },
            }),
        }
    }

    fn write_value<T>(self, value: T) {
        // SAFETY: promised at `new`.
        let room = unsafe { self.length.read_unaligned() } as usize;
        let bytes = size_of::<T>().min(room);
        // SAFETY: no more bytes than both have.
        unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), self.place, bytes) };
        // SAFETY: promised at `new`.
        unsafe { self.length.write_unaligned(size_of::<T>() as socklen_t) };
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
