//! Addresses of C.

use std::ffi::c_void;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use verbs_api::{Error, ErrorKind, Result};
use verbs_sys::sockaddr_storage;

use crate::entry::null;

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
    let family = i32::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match family {
        libc::AF_INET => {
            // SAFETY: the caller's promise.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        other => {
            check_family(other, what)?;
            Err(Error::invalid(format!(
                "{what} is of the family {other}; AF_INET ({}) and AF_INET6 ({}) are known",
                libc::AF_INET,
                libc::AF_INET6
            )))
        }
    }
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

/// The bytes that C has for an address, at the front of room for any.
pub(super) fn storage(address: &SocketAddr) -> sockaddr_storage {
    let mut storage = sockaddr_storage::default();
    match address {
        SocketAddr::V4(v4) => {
            put(&mut storage, 0, &(libc::AF_INET as u16).to_ne_bytes());
            put(&mut storage, 2, &v4.port().to_be_bytes());
            put(&mut storage, 4, &v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            put(&mut storage, 0, &(libc::AF_INET6 as u16).to_ne_bytes());
            put(&mut storage, 2, &v6.port().to_be_bytes());
            put(&mut storage, 4, &v6.flowinfo().to_ne_bytes());
            put(&mut storage, 8, &v6.ip().octets());
            put(&mut storage, 24, &v6.scope_id().to_ne_bytes());
        }
    }
    storage
}

fn put(storage: &mut sockaddr_storage, at: usize, bytes: &[u8]) {
    storage.bytes[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The bytes that an address of this family has.
pub(super) fn length(address: &SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
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
    use super::*;

    #[test]
    fn an_address_survives_the_way_to_c_and_back() {
        for text in ["192.0.2.7:7471", "[2001:db8::7]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = storage(&address);
            // SAFETY: room for any address.
            let back = unsafe { read((&raw const storage).cast(), "the address") }.unwrap();
            assert_eq!(back, address);
            assert_eq!(port(&storage), address.port().to_be());
        }
        let scoped: SocketAddr = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 2, 3).into();
        let storage = storage(&scoped);
        // SAFETY: as above.
        assert_eq!(unsafe { read((&raw const storage).cast(), "x") }.unwrap(), scoped);
    }

    #[test]
    fn other_families_are_refused_by_number() {
        let errno = |family: i32| {
            let mut storage = sockaddr_storage::default();
            put(&mut storage, 0, &(family as u16).to_ne_bytes());
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
