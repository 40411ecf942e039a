//! Addresses and ports.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::sockaddr_storage;

/// For C.
pub fn sockaddr_to_c(address: &SocketAddr) -> sockaddr_storage {
    let mut storage = sockaddr_storage::default();
    let mut put = |at: usize, bytes: &[u8]| storage.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    match address {
        SocketAddr::V4(v4) => {
            put(0, &(libc::AF_INET as u16).to_ne_bytes());
            put(2, &v4.port().to_be_bytes());
            put(4, &v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            put(0, &(libc::AF_INET6 as u16).to_ne_bytes());
            put(2, &v6.port().to_be_bytes());
            put(4, &v6.flowinfo().to_ne_bytes());
            put(8, &v6.ip().octets());
            put(24, &v6.scope_id().to_ne_bytes());
        }
    }
    storage
}

/// From C; `None` when it is of another family than those of IP.
pub fn sockaddr_from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(u16::from_ne_bytes(take(storage, 0))) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(take::<4>(storage, 4));
            Some(SocketAddrV4::new(ip, u16::from_be_bytes(take(storage, 2))).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(take::<16>(storage, 8));
            let (flow, scope) = (take(storage, 4), take(storage, 24));
            let port = u16::from_be_bytes(take(storage, 2));
            Some(SocketAddrV6::new(ip, port, u32::from_ne_bytes(flow), u32::from_ne_bytes(scope)).into())
        }
        _ => None,
    }
}

fn take<const N: usize>(storage: &sockaddr_storage, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&storage.bytes[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_to_c_and_back() {
        let scoped: SocketAddr = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 2, 3).into();
        let others = ["192.0.2.7:7471", "[2001:db8::7]:7471", "0.0.0.0:0"].map(|text| text.parse().unwrap());
        for address in others.into_iter().chain([scoped]) {
            assert_eq!(sockaddr_from_c(&sockaddr_to_c(&address)), Some(address));
        }
    }

    #[test]
    fn the_bytes_are_those_of_c() {
        let storage = sockaddr_to_c(&"192.0.2.7:7471".parse().unwrap());
        assert_eq!(storage.bytes[..8], [2, 0, 0x1d, 0x2f, 192, 0, 2, 7]);
        assert_eq!(storage.bytes[8..], [0; 120]);
    }

    #[test]
    fn other_families_are_no_addresses_of_ip() {
        for family in [0, libc::AF_UNIX as u8, 27, 0xff] {
            let mut storage = sockaddr_storage::default();
            storage.bytes[0] = family;
            assert_eq!(sockaddr_from_c(&storage), None);
        }
    }
}
