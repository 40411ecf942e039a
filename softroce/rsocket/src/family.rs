//! Addresses as the program sees them: a socket of IPv6 may speak IPv4, whose addresses it sees mapped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use verbs_api::Result;

use crate::errors::{Errno, error};

/// The family of a socket's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// Any address of the family, port 0.
    pub fn any(self) -> SocketAddr {
        match self {
            Family::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
            Family::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }

    /// What an address of the program's stands for. EAFNOSUPPORT: it is of the other family.
    pub(crate) fn inner(self, address: SocketAddr) -> Result<SocketAddr> {
        match (self, address.ip()) {
            (Family::V4, IpAddr::V4(_)) => Ok(address),
            (Family::V6, IpAddr::V6(ip)) => Ok(match ip.to_ipv4_mapped() {
                Some(ip) => (ip, address.port()).into(),
                None => address,
            }),
            _ => Err(error(
                Errno::EAFNOSUPPORT,
                format!("{address} is not of the socket's family"),
            )),
        }
    }

    /// How the program sees an address.
    pub(crate) fn outer(self, address: SocketAddr) -> SocketAddr {
        match (self, address.ip()) {
            (Family::V6, IpAddr::V4(ip)) => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_ipv6_sees_ipv4_mapped() {
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:5".parse().unwrap();
        let plain: SocketAddr = "127.0.0.1:5".parse().unwrap();
        let six: SocketAddr = "[::1]:5".parse().unwrap();
        assert_eq!(Family::V6.inner(mapped).unwrap(), plain);
        assert_eq!(Family::V6.outer(plain), mapped);
        assert_eq!(Family::V6.inner(six).unwrap(), six);
        assert_eq!(Family::V4.outer(plain), plain);
        assert_eq!(Family::V4.inner(six).unwrap_err().errno(), 97);
        assert_eq!(Family::V6.inner(plain).unwrap_err().errno(), 97);
    }
}
