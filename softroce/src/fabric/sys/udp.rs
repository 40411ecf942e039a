//! A UDP socket that sends and receives trains (`UDP_SEGMENT`, `UDP_GRO`) with the IP fields of each packet.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};

use super::{check, read_option, set_int_option};
use crate::os::PrivateFd;

mod group;
mod receive;
mod send;

pub(in crate::fabric) use receive::{Datagram, ReceiveArena};
pub(in crate::fabric) use send::{Message, SendArena};

/// `UDP_NO_CHECK6_RX`, `UDP_SEGMENT` and `UDP_GRO` of `linux/udp.h`.
const UDP_NO_CHECK6_RX: libc::c_int = 102;
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;
/// `SO_ATTACH_REUSEPORT_CBPF` and `SO_MEMINFO` of `asm-generic/socket.h` (all architectures that we build for).
const SO_ATTACH_REUSEPORT_CBPF: libc::c_int = 51;
const SO_MEMINFO: libc::c_int = 55;
/// `SO_BINDTOIFINDEX` of the same (since Linux 5.1, for everybody since 5.7).
const SO_BINDTOIFINDEX: libc::c_int = 62;
/// An interface that no machine has.
const NO_INTERFACE: libc::c_int = libc::c_int::MAX;

/// Large enough for the control messages of both directions, with room.
const CONTROL_BYTES: usize = 128;

/// Room for control messages, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// How to set up a [`UdpSocket`].
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric) struct SocketOptions {
    /// Receive buffer to ask for, bytes as the kernel counts them; `None` leaves the system's default.
    pub(in crate::fabric) receive_buffer_bytes: Option<u32>,
    /// Whether to receive trains whole.
    pub(in crate::fabric) receive_trains: bool,
    pub(in crate::fabric) header_fields: HeaderFields,
    pub(in crate::fabric) sharing: Sharing,
}

/// Who else may have a socket on the same address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) enum Sharing {
    /// Sockets of the same user; each datagram reaches one of them.
    SameUser,
    /// Sockets of everybody; each datagram, to a group, reaches all of them.
    Everybody,
}

/// Whether the traffic class and the hop limit of packets that arrive are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderFields {
    /// They read as 0. Telling them costs about 0.2 µs a packet, and nothing of reliable connections needs them.
    #[default]
    Ignored,
    /// As they arrived.
    Reported,
}

/// A bound, unconnected, non-blocking UDP socket that shares its port with others.
///
/// It asks never to be fragmented, which also makes the kernel write the IPv4 identification 0 that the ICRC
/// is sealed with.
#[derive(Debug)]
pub(in crate::fabric) struct UdpSocket {
    fd: PrivateFd,
}

impl UdpSocket {
    pub(in crate::fabric) fn bind(address: &SocketAddr, options: SocketOptions) -> io::Result<Self> {
        let domain = if address.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let socket_type = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(domain, socket_type, 0) })?;
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        let fd = unsafe { PrivateFd::from_raw_fd(fd) };
        let socket = UdpSocket { fd };
        socket.configure(address.is_ipv4(), options)?;
        let (name, length) = to_sockaddr(address);
        // SAFETY: `name` lives across the call and is at least `length` bytes long.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), length) })?;
        Ok(socket)
    }

    fn configure(&self, is_ipv4: bool, options: SocketOptions) -> io::Result<()> {
        let fd = self.as_raw_fd();
        let sharing = match options.sharing {
            Sharing::SameUser => libc::SO_REUSEPORT,
            Sharing::Everybody => libc::SO_REUSEADDR,
        };
        set_int_option(fd, libc::SOL_SOCKET, sharing, 1)?;
        set_int_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        if is_ipv4 {
            set_int_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        } else {
            set_int_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            set_int_option(
                fd,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            )?;
            // The kernel's rxe sends without a UDP checksum, as RoCEv2 permits (the ICRC protects more); the system
            // takes that over IPv6 only where it is told to.
            set_int_option(fd, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
        if options.header_fields == HeaderFields::Reported {
            self.report_header_fields(is_ipv4)?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            // The kernel doubles what it is asked for, and caps it at `net.core.rmem_max`.
            set_int_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, (bytes / 2) as libc::c_int)?;
        }
        if options.receive_trains {
            // Absent before Linux 5.0; then packets come one by one.
            let _ = set_int_option(fd, libc::IPPROTO_UDP, UDP_GRO, 1);
        }
        Ok(())
    }

    /// From now on, tell the traffic class and the hop limit of what arrives.
    pub(in crate::fabric) fn report_header_fields(&self, is_ipv4: bool) -> io::Result<()> {
        let (level, names) = if is_ipv4 {
            (libc::IPPROTO_IP, [libc::IP_RECVTOS, libc::IP_RECVTTL])
        } else {
            (
                libc::IPPROTO_IPV6,
                [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT],
            )
        };
        for name in names {
            set_int_option(self.as_raw_fd(), level, name, 1)?;
        }
        Ok(())
    }

    /// Let `program` (classic BPF, run on the UDP payload) choose the socket among all that share the port.
    pub(in crate::fabric) fn attach_steering(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        type Description = libc::sock_fprog;
        const LEN: usize = mem::offset_of!(Description, len);
        const FILTER: usize = mem::offset_of!(Description, filter);
        // As bytes, with zeroes in the padding: the kernel is handed all of it, and a struct's padding is lost when it
        // is moved.
        let mut described = [0; mem::size_of::<Description>()];
        let length = (program.len() as libc::c_ushort).to_ne_bytes();
        let filter = program.as_ptr().expose_provenance().to_ne_bytes();
        described[LEN..LEN + length.len()].copy_from_slice(&length);
        described[FILTER..FILTER + filter.len()].copy_from_slice(&filter);
        // SAFETY: what is described is a slice that lives across the call; the kernel copies and checks it.
        check(unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_ATTACH_REUSEPORT_CBPF,
                described.as_ptr().cast(),
                described.len() as libc::socklen_t,
            )
        })
        .map(drop)
    }

    /// Receive nothing more, send nothing more, and leave the group of those that share the port, at once: what arrives
    /// from now on goes to the others. What is here already stays to be read. Also where a forked child holds the socket.
    ///
    /// A socket that is bound to an interface takes only what comes through that; and the kernel takes one that is bound
    /// anew out of its group.
    pub(in crate::fabric) fn leave_address(&self) -> io::Result<()> {
        set_int_option(self.as_raw_fd(), libc::SOL_SOCKET, SO_BINDTOIFINDEX, NO_INTERFACE)
    }

    /// Bytes waiting in the receive buffer and its size, as the kernel counts them.
    pub(in crate::fabric) fn receive_memory(&self) -> Option<(u32, u32)> {
        let mut info = [0u32; 9];
        let length = read_option(self.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, &mut info).ok()?;
        // SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_RCVBUF are the first two.
        (length >= 8).then_some((info[0], info[1]))
    }

    /// The address it is bound to.
    pub(in crate::fabric) fn local_address(&self) -> io::Result<SocketAddr> {
        // SAFETY: an all-zero sockaddr_storage is valid.
        let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let mut length = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: pointer and length describe `name`.
        check(unsafe { libc::getsockname(self.as_raw_fd(), (&raw mut name).cast(), &raw mut length) })?;
        from_sockaddr(&name).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// How many segments the kernel takes in one send: 128 since Linux 6.9, 64 before, 1 without `UDP_SEGMENT`.
/// Tried out with an own socket on a port of the kernel's choice, so that nobody else sees it.
pub(in crate::fabric) fn largest_train_segments(address: &SocketAddr) -> usize {
    const KNOWN_LIMITS: [usize; 2] = [128, 64];
    let mut trial = *address;
    trial.set_port(0);
    let options = SocketOptions {
        receive_buffer_bytes: None,
        receive_trains: false,
        header_fields: HeaderFields::Ignored,
        sharing: Sharing::SameUser,
    };
    let Ok(socket) = UdpSocket::bind(&trial, options) else {
        return 1;
    };
    let Ok(own) = socket.local_address() else { return 1 };
    let mut arena = SendArena::new();
    KNOWN_LIMITS
        .into_iter()
        .find(|segments| {
            let train = Message {
                start: 0,
                len: *segments as u32,
                packets: *segments as u32,
                segment_bytes: 1,
                to: own,
                traffic_class: None,
                hop_limit: None,
            };
            socket.send(&mut arena, &[0; KNOWN_LIMITS[0]], &[train]).is_ok()
        })
        .unwrap_or(1)
}

/// The C form of an address and its length.
fn to_sockaddr(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an all-zero sockaddr_storage is valid.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is made to hold, and is aligned for, any other sockaddr.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// The address in a C form that the kernel filled; `None` for another family.
fn from_sockaddr(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in is in here; the storage is large and aligned enough.
            let name = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let name = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(
                ip,
                u16::from_be(name.sin6_port),
                name.sin6_flowinfo,
                name.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// An address that stands for nothing yet.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests;
