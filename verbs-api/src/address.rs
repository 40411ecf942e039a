//! Addresses: GIDs and the address vector of a queue pair or address handle.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::codes::codes;

/// A global identifier. On RoCEv2 it is an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that this GID stands for on RoCEv2.
    pub fn ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(v6),
        }
    }

    /// Whether this is the all-zero GID, which names nothing.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        IpAddr::V4(ip).into()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// The kind of a GID table entry; the numbers are those of `ibv_gid_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    Ib = 0,
    /// RoCE version 1 (Ethernet type 0x8915).
    RoceV1 = 1,
    /// RoCE version 2 (UDP).
    RoceV2 = 2,
}

codes!(GidType: Ib, RoceV1, RoceV2);

/// One entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The identifier.
    pub gid: Gid,
    /// Index in the port's table.
    pub index: u32,
    /// Port number, from 1.
    pub port: u8,
    /// Its kind.
    pub gid_type: GidType,
    /// Index of the network interface behind it; 0 where there is none.
    pub interface_index: u32,
}

/// Where a queue pair or an address handle sends to (`ibv_ah_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// The peer's GID. `None` addresses by LID alone, which Ethernet link layers refuse.
    pub dgid: Option<Gid>,
    /// Index of the own GID in the port's table.
    pub sgid_index: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// TTL or hop limit; 0 lets the provider choose.
    pub hop_limit: u8,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// Destination LID; unused on Ethernet.
    pub dlid: u16,
    /// Service level.
    pub service_level: u8,
    /// Source path bits; unused on Ethernet.
    pub src_path_bits: u8,
    /// Static rate limit as `ibv_rate`; 0 is the port's own.
    pub static_rate: u8,
    /// Port number, from 1.
    pub port: u8,
}
