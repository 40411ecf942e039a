//! The network interfaces behind devices: their addresses, MTU and state, and when these change.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use softroce_engine::PortConfig;
use verbs_api::{Gid, GidEntry, GidType, Mtu, PortState};

use crate::os::PrivateFd;

/// Room for the headers of the largest packet (IPv6 40, UDP 8, BTH 12, extension headers 28, ICRC 4, and 4 of pad
/// and spare): what is left of an interface's MTU carries the payload.
const HEADER_ROOM_BYTES: u32 = 96;

/// A network interface as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Bytes of the largest IP packet.
    pub mtu_bytes: u32,
    /// Administratively up, and with a carrier.
    pub is_up: bool,
    /// The loopback interface, to which all of 127.0.0.0/8 belongs.
    pub is_loopback: bool,
    /// Its addresses with the length of their network prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Interface {
    /// All interfaces of this network namespace.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn all() -> io::Result<Vec<Interface>> {
        let mut interfaces: Vec<Interface> = Vec::new();
        for entry in &AddressList::new()? {
            let interface = match interfaces.iter_mut().find(|known| known.name == entry.name) {
                Some(known) => known,
                None => {
                    interfaces.push(Interface::without_addresses(entry.name, entry.flags)?);
                    interfaces.last_mut().expect("one was pushed just now")
                }
            };
            interface.addresses.extend(entry.address);
        }
        Ok(interfaces)
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// As [`all`](Interface::all).
    pub fn by_name(name: &str) -> io::Result<Option<Interface>> {
        Ok(Interface::all()?
            .into_iter()
            .find(|interface| interface.name == name))
    }

    /// The interface that has this address.
    ///
    /// # Errors
    /// As [`all`](Interface::all).
    pub fn by_address(address: IpAddr) -> io::Result<Option<Interface>> {
        let mut all = Interface::all()?;
        let exact = all
            .iter()
            .position(|interface| interface.addresses.iter().any(|(known, _)| *known == address));
        let found = exact.or_else(|| all.iter().position(|interface| interface.has(address)));
        Ok(found.map(|at| all.swap_remove(at)))
    }

    /// The address for a device on this interface: IPv4 before IPv6, link-local last.
    pub fn first_address(&self) -> Option<IpAddr> {
        self.addresses
            .iter()
            .map(|(address, _)| *address)
            .min_by_key(|address| match address {
                IpAddr::V4(_) => 0,
                IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
                IpAddr::V6(_) => 2,
            })
    }

    /// The port of a device that sits on `address` of this interface; without a GID when the interface has lost it.
    pub fn port(&self, address: IpAddr) -> PortConfig {
        PortConfig {
            state: if self.is_up {
                PortState::Active
            } else {
                PortState::Down
            },
            active_mtu: path_mtu(self.mtu_bytes),
            gids: match self.has(address) {
                true => vec![GidEntry {
                    gid: Gid::from(address),
                    index: 0,
                    port: 1,
                    gid_type: GidType::RoceV2,
                    interface_index: self.index,
                }],
                false => Vec::new(),
            },
        }
    }

    /// Whether this address can be used on it.
    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(known, prefix)| {
            // Every address of a loopback network can be used, though only one is listed.
            *known == address || self.is_loopback && covers(*known, *prefix, address)
        })
    }

    fn without_addresses(name: &str, flags: u32) -> io::Result<Interface> {
        let c_name = CString::new(name)?;
        // SAFETY: `c_name` is a valid C string; the call only reads it.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        let running = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        Ok(Interface {
            name: name.to_owned(),
            index,
            mtu_bytes: mtu_of(&c_name)?,
            is_up: flags & running == running,
            is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
            addresses: Vec::new(),
        })
    }
}

/// The largest path MTU that an interface carries; the smallest that there is where it carries none.
pub fn path_mtu(interface_mtu_bytes: u32) -> Mtu {
    let payload = interface_mtu_bytes.saturating_sub(HEADER_ROOM_BYTES) as usize;
    Mtu::ALL
        .into_iter()
        .rev()
        .find(|mtu| mtu.bytes() <= payload)
        .unwrap_or(Mtu::Mtu256)
}

/// Whether `address` lies in the network of `known`.
fn covers(known: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let upper_bits =
        |bits: u128, width: u32| bits.checked_shr(width.saturating_sub(prefix.into())).unwrap_or(0);
    match (known, address) {
        (IpAddr::V4(known), IpAddr::V4(address)) => {
            upper_bits(known.to_bits().into(), 32) == upper_bits(address.to_bits().into(), 32)
        }
        // Of IPv6 loopback networks only the listed address itself works.
        (IpAddr::V4(_) | IpAddr::V6(_), _) => false,
    }
}

fn mtu_of(name: &CStr) -> io::Result<u32> {
    // Without IPv4 any other socket serves as well.
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX];
    let open = |family| {
        // SAFETY: no pointers are passed.
        unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }
    };
    let fd = families.into_iter().map(open).find(|fd| *fd >= 0).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: `request` lives across the call, which reads the name and writes the MTU into it.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
}

/// The list that `getifaddrs` gives.
struct AddressList {
    head: *mut libc::ifaddrs,
}

/// One line of it.
struct AddressEntry<'a> {
    name: &'a str,
    flags: u32,
    address: Option<(IpAddr, u8)>,
}

impl AddressList {
    fn new() -> io::Result<Self> {
        let mut head = ptr::null_mut();
        // SAFETY: `head` is a valid place for the pointer; the list is freed on drop.
        if unsafe { libc::getifaddrs(&raw mut head) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(AddressList { head })
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: the list came from `getifaddrs` and is freed once.
        unsafe { libc::freeifaddrs(self.head) };
    }
}

impl<'a> IntoIterator for &'a AddressList {
    type Item = AddressEntry<'a>;
    type IntoIter = AddressEntries<'a>;
    fn into_iter(self) -> AddressEntries<'a> {
        // SAFETY: `head` is null or points to the first entry of a list that lives as long as `self`.
        let next = unsafe { self.head.as_ref() };
        AddressEntries { next }
    }
}

struct AddressEntries<'a> {
    next: Option<&'a libc::ifaddrs>,
}

impl<'a> Iterator for AddressEntries<'a> {
    type Item = AddressEntry<'a>;
    fn next(&mut self) -> Option<AddressEntry<'a>> {
        loop {
            let entry = self.next?;
            // SAFETY: the link is null or points to the next entry of the same list.
            self.next = unsafe { entry.ifa_next.as_ref() };
            // SAFETY: every entry names its interface with a C string of the list.
            let Ok(name) = unsafe { CStr::from_ptr(entry.ifa_name) }.to_str() else {
                continue;
            };
            let address =
                ip_of(entry.ifa_addr).map(|address| (address, ip_of(entry.ifa_netmask).map_or(0, prefix_of)));
            return Some(AddressEntry {
                name,
                flags: entry.ifa_flags,
                address,
            });
        }
    }
}

/// The IP address behind a pointer of the list.
fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: pointers of the list are null or point to an address whose family says how large it is.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family it is a sockaddr_in.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes())))
        }
        libc::AF_INET6 => {
            // SAFETY: of this family it is a sockaddr_in6.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

fn prefix_of(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(v4) => v4.to_bits().leading_ones() as u8,
        IpAddr::V6(v6) => v6.to_bits().leading_ones() as u8,
    }
}

/// Tells when something about the interfaces changes (a netlink socket; every user may have one).
#[derive(Debug)]
pub struct InterfaceMonitor {
    fd: PrivateFd,
}

impl InterfaceMonitor {
    /// Begin to watch.
    ///
    /// # Errors
    /// Netlink is not to be had (in some sandboxes).
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        let fd = unsafe { PrivateFd::from_raw_fd(fd) };
        // SAFETY: an all-zero sockaddr_nl is valid.
        let mut name: libc::sockaddr_nl = unsafe { mem::zeroed() };
        name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        name.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
        let length = mem::size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: pointer and length describe `name`.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(InterfaceMonitor { fd })
    }

    /// Take all news; whether there were any. (What they say is of no matter: the interface is looked at anew.)
    pub fn drain(&self) -> bool {
        const MESSAGES_MAX: usize = 256;
        let mut buffer = [0u8; 256];
        let mut has_news = false;
        for _ in 0..MESSAGES_MAX {
            // SAFETY: pointer and length describe `buffer`; longer messages are cut off.
            let got = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            // An overflow (ENOBUFS) is news as well.
            let is_overflow = got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
            if got < 0 && !is_overflow {
                break;
            }
            has_news = true;
        }
        has_news
    }
}

impl AsRawFd for InterfaceMonitor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_mtu_follows_the_interface() {
        for (interface, payload) in [
            (65_536, 4096),
            (9000, 4096),
            (4200, 4096),
            (4100, 2048),
            (1500, 1024),
            (576, 256),
            (68, 256),
        ] {
            assert_eq!(path_mtu(interface).bytes(), payload, "interface MTU {interface}");
        }
    }

    #[test]
    fn the_loopback_interface_has_all_of_its_network() {
        for address in ["127.0.0.1", "127.200.3.4"] {
            let loopback = Interface::by_address(address.parse().unwrap()).unwrap().unwrap();
            assert!(loopback.is_loopback && loopback.index > 0);
            let port = loopback.port(address.parse().unwrap());
            assert_eq!(port.gids[0].gid.to_string(), format!("::ffff:{address}"));
        }
    }

    #[test]
    fn an_address_of_nobody_has_no_interface() {
        // From the range for documentation.
        assert_eq!(
            Interface::by_address("192.0.2.77".parse().unwrap()).unwrap(),
            None
        );
        assert_eq!(Interface::by_name("no-such-if0").unwrap(), None);
    }

    #[test]
    fn ipv4_comes_before_ipv6_and_link_local_last() {
        let with = |addresses: &[&str]| Interface {
            name: "x".into(),
            index: 1,
            mtu_bytes: 1500,
            is_up: true,
            is_loopback: false,
            addresses: addresses
                .iter()
                .map(|address| (address.parse().unwrap(), 64))
                .collect(),
        };
        let first = |addresses: &[&str]| with(addresses).first_address().map(|address| address.to_string());
        assert_eq!(
            first(&["fe80::1", "2001:db8::1", "10.0.0.1"]).as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(first(&["fe80::1", "2001:db8::1"]).as_deref(), Some("2001:db8::1"));
        assert_eq!(first(&["fe80::1"]).as_deref(), Some("fe80::1"));
        assert_eq!(first(&[]), None);
    }
}
