//! What stands in front of a datagram.
//!
//! | in front of the program's bytes | |
//! |---|---|
//! | 0–39 | the GRH area, from the receiver's card |
//! | 40–43 | `SD`, version 1, zero |
//! | 44–45 | the sender's port, big endian |
//! | 46–47 | zero |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::part;

/// What the card puts in front of a received datagram.
pub const GRH_BYTES: usize = 40;
/// Our own header.
pub const HEADER_BYTES: usize = 8;
const MAGIC: [u8; 4] = [b'S', b'D', 1, 0];

/// The header of what is sent from this port.
pub fn header(port: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&port.to_be_bytes());
    header
}

/// Who sent a datagram that begins with this GRH area and header. The address is the one that the card saw; the port is
/// what the sender says.
pub fn sender(head: &[u8; GRH_BYTES + HEADER_BYTES]) -> Option<SocketAddr> {
    if head[GRH_BYTES..GRH_BYTES + 4] != MAGIC {
        return None;
    }
    // The first four bits tell the version where it is IPv6; an IPv4 header stands in the last 20 bytes (RoCEv2 annex).
    let ip = match head[0] >> 4 {
        6 => match Ipv6Addr::from(part::<16>(head, 8)) {
            ip if ip.to_ipv4_mapped().is_some() => IpAddr::V4(ip.to_ipv4_mapped()?),
            ip => IpAddr::V6(ip),
        },
        _ if head[20] >> 4 == 4 => IpAddr::V4(Ipv4Addr::from(part::<4>(head, 32))),
        _ => return None,
    };
    let port = u16::from_be_bytes(part(head, GRH_BYTES + 4));
    (port != 0).then_some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> [u8; 48] {
        let mut head = [0; 48];
        head[40..].copy_from_slice(&header(7471));
        assert_eq!(head[40..], [b'S', b'D', 1, 0, 0x1d, 0x2f, 0, 0]);
        head
    }

    #[test]
    fn the_sender_is_the_address_of_the_packet_and_the_port_of_the_header() {
        let mut four = head();
        four[20] = 0x45;
        four[32..36].copy_from_slice(&[10, 1, 2, 3]);
        assert_eq!(sender(&four), Some("10.1.2.3:7471".parse().unwrap()));
        let mut six = head();
        six[0] = 0x60;
        six[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        assert_eq!(sender(&six), Some("[::1]:7471".parse().unwrap()));
    }

    #[test]
    fn what_is_not_ours_has_no_sender() {
        let mut head = head();
        assert_eq!(sender(&head), None);
        head[20] = 0x45;
        head[44..46].copy_from_slice(&[0, 0]);
        assert_eq!(sender(&head), None);
        head[44] = 1;
        assert!(sender(&head).is_some());
        head[42] = 2;
        assert_eq!(sender(&head), None);
    }
}
