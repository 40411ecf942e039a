//! Socket addresses that C points at. How their bytes mean an address is in `verbs-sys`.

use std::ffi::c_int;
use std::mem::size_of;
use std::net::SocketAddr;

use libc::{sa_family_t, sockaddr_in, sockaddr_in6};
use verbs_sys::convert::{sockaddr_from_c, sockaddr_to_c};
use verbs_sys::sockaddr_storage;

/// The family of the address at this place.
///
/// # Safety
/// `address` is valid for the bytes of a family.
pub(crate) unsafe fn family_of<T>(address: *const T) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { address.cast::<sa_family_t>().read_unaligned() }.into()
}

/// The bytes that addresses of a family have; `None` for families other than those of IP.
pub(crate) fn length_of(family: c_int) -> Option<usize> {
    match family {
        libc::AF_INET => Some(size_of::<sockaddr_in>()),
        libc::AF_INET6 => Some(size_of::<sockaddr_in6>()),
        _ => None,
    }
}

/// The address at this place; `None` when it is of another family than those of IP.
///
/// # Safety
/// `address` is valid for the bytes of a family, and for as many as addresses of that family have.
pub(crate) unsafe fn read<T>(address: *const T) -> Option<SocketAddr> {
    // SAFETY: the caller's promise.
    let length = length_of(unsafe { family_of(address) })?;
    let mut storage = sockaddr_storage::default();
    // SAFETY: the caller's promise, and there is room for any address.
    unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), storage.bytes.as_mut_ptr(), length) };
    sockaddr_from_c(&storage)
}

/// The bytes that C has for an address, at the front of room for any, and how many they are.
pub(crate) fn to_c(address: &SocketAddr) -> (sockaddr_storage, usize) {
    let length = match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    };
    (sockaddr_to_c(address), length)
}
