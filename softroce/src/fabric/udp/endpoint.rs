//! Where a fabric sits: an address of the machine, and the interface that has it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use roce_wire::ROCE_V2_PORT;
use verbs_api::{Error, Result};

use super::refusal;
use crate::interfaces::Interface;

/// Where a fabric sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// On this address of the machine. Every 127.x.y.z is one.
    Address(IpAddr),
    /// On the first address of this interface, IPv4 before IPv6.
    Interface(String),
}

/// The address of an endpoint and the interface that has it.
pub(super) fn resolve(endpoint: &Endpoint) -> Result<(IpAddr, Interface)> {
    let failed = |error| Error::system("cannot list the network interfaces", error);
    match endpoint {
        Endpoint::Address(address) => {
            refusal::check_address(*address)?;
            let interface = Interface::by_address(*address).map_err(failed)?;
            interface
                .map(|interface| (*address, interface))
                .ok_or_else(|| refusal::not_here(*address))
        }
        Endpoint::Interface(name) => {
            let interface = Interface::by_name(name).map_err(failed)?;
            let interface = interface.ok_or_else(|| refusal::no_interface(name))?;
            let address = interface
                .first_address()
                .ok_or_else(|| refusal::no_address(name))?;
            Ok((address, interface))
        }
    }
}

/// The address with RoCE's port; a link-local one also needs its interface.
pub(super) fn socket_address(address: IpAddr, interface: &Interface) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, ROCE_V2_PORT, 0, interface.index))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => SocketAddr::new(address, ROCE_V2_PORT),
    }
}

pub(super) fn scope_id(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}
