//! GIDs: the 16-byte addresses of verbs. A RoCEv2 GID is an IPv6 address, or an IPv4 one in IPv6-mapped form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The GID of an address: IPv4 as `::ffff:a.b.c.d`.
pub const fn from_ip(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address of a GID; a mapped one is IPv4.
pub const fn to_ip(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from_octets(gid).to_canonical()
}

/// The default GID of an interface: `fe80::/64` and the EUI-64 made of its MAC.
pub const fn link_local(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The Ethernet destination of a multicast GID; `None` when it is not a multicast address.
pub const fn multicast_mac(gid: [u8; 16]) -> Option<[u8; 6]> {
    match to_ip(gid) {
        IpAddr::V4(v4) if is_multicast_v4(v4) => Some([0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]]),
        IpAddr::V6(v6) if v6.is_multicast() => Some([0x33, 0x33, gid[12], gid[13], gid[14], gid[15]]),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

const fn is_multicast_v4(address: Ipv4Addr) -> bool {
    address.octets()[0] >> 4 == 0xe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_a_mapped_gid_and_back() {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        let gid = from_ip(address);
        assert_eq!(gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);
        assert_eq!(to_ip(gid), address);
    }

    #[test]
    fn an_ipv6_address_is_its_own_gid() {
        let address: IpAddr = "2001:db8::17".parse().unwrap();
        assert_eq!(to_ip(from_ip(address)), address);
    }

    #[test]
    fn the_default_gid_is_made_of_the_mac() {
        let gid = link_local([0x02, 0x00, 0x5e, 0x00, 0x53, 0x01]);
        assert_eq!(to_ip(gid), "fe80::5eff:fe00:5301".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_multicast_gid_gives_the_ethernet_group() {
        let v4 = from_ip("239.129.2.3".parse().unwrap());
        assert_eq!(multicast_mac(v4), Some([0x01, 0x00, 0x5e, 0x01, 2, 3]));
        let v6 = from_ip("ff0e::1:2".parse().unwrap());
        assert_eq!(multicast_mac(v6), Some([0x33, 0x33, 0, 1, 0, 2]));
        assert_eq!(multicast_mac(from_ip("192.0.2.1".parse().unwrap())), None);
    }
}
