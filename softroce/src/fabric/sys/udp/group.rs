//! Multicast: on which interface groups are reached, and whose packets a socket receives.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use super::super::{set_int_option, set_struct_option};
use super::UdpSocket;

/// `IPV6_MULTICAST_ALL` of `linux/in6.h` (since Linux 4.20).
const IPV6_MULTICAST_ALL: libc::c_int = 29;

impl UdpSocket {
    /// Send what goes to groups out of this interface, whatever the routes say.
    pub(in crate::fabric) fn send_groups_on(&self, own: IpAddr, interface_index: u32) -> io::Result<()> {
        let fd = self.as_raw_fd();
        match own {
            IpAddr::V4(own) => {
                let interface = libc::ip_mreqn {
                    imr_multiaddr: libc::in_addr { s_addr: 0 },
                    imr_address: in_addr(own),
                    imr_ifindex: interface_index as libc::c_int,
                };
                set_struct_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &interface)
            }
            IpAddr::V6(_) => {
                let index = interface_index as libc::c_int;
                set_int_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, index)
            }
        }
    }

    /// Become a member of a group on an interface, and receive nothing of the memberships of others.
    pub(in crate::fabric) fn join_group(&self, group: IpAddr, interface_index: u32) -> io::Result<()> {
        let fd = self.as_raw_fd();
        match group {
            IpAddr::V4(group) => {
                set_int_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
                let membership = libc::ip_mreqn {
                    imr_multiaddr: in_addr(group),
                    imr_address: libc::in_addr { s_addr: 0 },
                    imr_ifindex: interface_index as libc::c_int,
                };
                set_struct_option(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &membership)
            }
            IpAddr::V6(group) => {
                // Where it is missing, packets of other interfaces come as well; their senders are seldom known.
                let _ = set_int_option(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
                let membership = libc::ipv6_mreq {
                    ipv6mr_multiaddr: libc::in6_addr {
                        s6_addr: group.octets(),
                    },
                    ipv6mr_interface: interface_index,
                };
                set_struct_option(fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &membership)
            }
        }
    }
}

fn in_addr(address: std::net::Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(address.octets()),
    }
}
