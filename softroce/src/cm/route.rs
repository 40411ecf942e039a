//! Which device reaches an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use verbs_api::{Error, ErrorKind, Result};

use crate::interfaces::Interface;

/// EHOSTUNREACH.
const UNREACHABLE: ErrorKind = ErrorKind::System(113);

/// How to get devices elsewhere.
pub(super) const HOW_TO_NAME: &str =
    "others come by `softroce run --device-address ADDRESS`, or SOFTROCE_ADDRESS";

/// Of devices on `own` addresses the position of the one that reaches `remote`: the one on the address that the system's
/// routes say, one on that address itself, or one on the same interface.
///
/// # Errors
/// EHOSTUNREACH: the system has no route, or none of the devices is on it.
pub(super) fn device_for(own: &[IpAddr], remote: &SocketAddr) -> Result<usize> {
    let same_family = |address: &IpAddr| address.is_ipv4() == remote.is_ipv4();
    let position = |wanted: IpAddr| own.iter().position(|address| *address == wanted);
    if let Some(found) = position(remote.ip()) {
        return Ok(found);
    }
    let routed = source_for(remote).map_err(|error| {
        Error::new(
            UNREACHABLE,
            format!(
                "the system has no route to {}: {error}; the devices are on {own:?}, {HOW_TO_NAME}",
                remote.ip()
            ),
        )
    })?;
    if let Some(found) = position(routed) {
        return Ok(found);
    }
    let interfaces = Interface::all().unwrap_or_default();
    let interface_of = |address: IpAddr| {
        let is_loopback = address.is_loopback();
        interfaces
            .iter()
            .find(|interface| interface.addresses.iter().any(|(known, _)| *known == address))
            .or_else(|| {
                interfaces
                    .iter()
                    .find(|interface| is_loopback && interface.is_loopback)
            })
            .map(|interface| interface.index)
    };
    let wanted = interface_of(routed);
    own.iter()
        .position(|address| same_family(address) && wanted.is_some() && interface_of(*address) == wanted)
        .ok_or_else(|| {
            Error::new(
                UNREACHABLE,
                format!(
                    "no device reaches {}: the way there begins at {routed}, and the devices are on {own:?}; {HOW_TO_NAME}",
                    remote.ip()
                ),
            )
        })
}

/// The address from which the system would send.
fn source_for(remote: &SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A UDP socket that is connected sends nothing.
    let socket = UdpSocket::bind((any, 0))?;
    let mut to = *remote;
    if to.port() == 0 {
        to.set_port(1);
    }
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_on_the_way_is_found_and_any_loopback_device_reaches_all_of_loopback() {
        let own = ["127.0.0.7".parse().unwrap(), "::1".parse().unwrap()];
        let to = |text: &str| device_for(&own, &text.parse().unwrap());
        assert_eq!(to("127.0.0.7:1").unwrap(), 0);
        assert_eq!(to("127.0.0.9:1").unwrap(), 0);
        assert_eq!(to("[::1]:1").unwrap(), 1);
        let none = device_for(&["192.0.2.7".parse().unwrap()], &"127.0.0.9:1".parse().unwrap());
        assert_eq!(none.unwrap_err().errno(), 113);
    }
}
