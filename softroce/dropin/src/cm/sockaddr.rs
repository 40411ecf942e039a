//! Addresses of C.

use std::ffi::c_void;
use std::net::SocketAddr;

use verbs_api::{Error, ErrorKind, Result};
use verbs_sys::sockaddr_storage;

use crate::entry::null;
use crate::sockaddr;

/// The family of InfiniBand's own addresses.
const AF_IB: i32 = 27;

/// An address that a program points at.
///
/// # Errors
/// EINVAL: NULL, or no address of IPv4 or IPv6. EAFNOSUPPORT: one of InfiniBand's own.
///
/// # Safety
/// `address` is NULL or points at a family and as many bytes as addresses of that family have.
pub(super) unsafe fn read(address: *const c_void, what: &str) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    if let Some(found) = unsafe { sockaddr::read(address) } {
        return Ok(found);
    }
    // SAFETY: as above.
    let family = unsafe { sockaddr::family_of(address) };
    check_family(family, what)?;
    Err(Error::invalid(format!(
        "{what} is of the family {family}; AF_INET ({}) and AF_INET6 ({}) are known",
        libc::AF_INET,
        libc::AF_INET6
    )))
}

/// InfiniBand's own addresses name ports of a subnet, and RoCE has none.
///
/// # Errors
/// EAFNOSUPPORT.
pub(super) fn check_family(family: i32, what: &str) -> Result<()> {
    match family {
        AF_IB => Err(Error::new(
            ErrorKind::System(libc::EAFNOSUPPORT),
            format!("{what} is of InfiniBand's own family (AF_IB); RoCE has addresses of IP"),
        )),
        _ => Ok(()),
    }
}

/// The port in an address of C, big endian; 0 when there is none.
pub(super) fn port(storage: &sockaddr_storage) -> u16 {
    let [low, high, port @ ..] = &storage.bytes;
    match i32::from(u16::from_ne_bytes([*low, *high])) {
        libc::AF_INET | libc::AF_INET6 => u16::from_ne_bytes([port[0], port[1]]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use verbs_sys::convert::sockaddr_to_c;

    use super::*;

    #[test]
    fn an_address_is_read_and_its_port_found() {
        for text in ["192.0.2.7:7471", "[2001:db8::7%3]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = sockaddr_to_c(&address);
            // SAFETY: room for any address.
            let back = unsafe { read((&raw const storage).cast(), "the address") }.unwrap();
            assert_eq!(back, address);
            assert_eq!(port(&storage), address.port().to_be());
        }
    }

    #[test]
    fn other_families_are_refused_by_number() {
        let errno = |family: i32| {
            let mut storage = sockaddr_storage::default();
            storage.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
            // SAFETY: room for any address.
            unsafe { read((&raw const storage).cast(), "the address") }
                .unwrap_err()
                .errno()
        };
        assert_eq!(errno(AF_IB), libc::EAFNOSUPPORT);
        assert_eq!(errno(libc::AF_UNIX), libc::EINVAL);
        // SAFETY: NULL is allowed.
        let nothing = unsafe { read(std::ptr::null(), "the address") };
        assert_eq!(nothing.unwrap_err().to_string(), "the address is NULL");
    }
}
