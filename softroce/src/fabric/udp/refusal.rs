//! Why an address cannot be had, in words that help.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce_wire::ROCE_V2_PORT;
use verbs_api::{Error, ErrorKind, Result};

/// Addresses that nobody can sit on.
pub(super) fn check_address(address: IpAddr) -> Result<()> {
    if address.is_unspecified() {
        return Err(Error::invalid(format!(
            "the address {address} stands for all addresses, but a device sits on one; name it"
        )));
    }
    if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(Error::invalid(format!(
            "{address} is a group address; a device needs one of its own"
        )));
    }
    Ok(())
}

pub(super) fn not_here(address: IpAddr) -> Error {
    // A fresh network namespace has a loopback interface that is down.
    let hint = match address.is_loopback() {
        true => "is the loopback interface down? `ip link set lo up`",
        false => "see `ip address`",
    };
    Error::system(
        format!("{address} is not an address of this machine ({hint})"),
        io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
    )
}

pub(super) fn no_interface(name: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no network interface {name:?} (see `ip link`)"),
    )
}

pub(super) fn no_address(name: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("the network interface {name:?} has no address yet (see `ip address`)"),
    )
}

/// An error for a bind that failed.
pub(super) fn explain(address: IpAddr, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            let holder = holders(address).into_iter().next().map_or_else(
                || "another user or program holds it".to_owned(),
                |holder| holder.describe(),
            );
            Error::new(
                ErrorKind::AddressInUse,
                format!(
                    "UDP port {ROCE_V2_PORT} on {address} is taken: {holder}. {}",
                    way_out(address)
                ),
            )
        }
        Some(libc::EADDRNOTAVAIL) => not_here(address),
        _ => Error::system(format!("cannot open UDP port {ROCE_V2_PORT} on {address}"), error),
    }
}

fn way_out(address: IpAddr) -> String {
    // Likely free, and the same each time for one user, so that both ends of a test can be told.
    let uid = super::super::sys::current_uid();
    let [_, _, high, low] = uid.to_be_bytes();
    let other = Ipv4Addr::new(127, 42, high, low.max(1));
    let other = if IpAddr::V4(other) == address {
        Ipv4Addr::new(127, 43, high, low.max(1))
    } else {
        other
    };
    if address.is_loopback() {
        format!(
            "Processes of one user can share an address; use another one, such as {other} (every 127.x.y.z is free to use)"
        )
    } else {
        format!("Stop that program, or use another address of this machine, such as {other} for peers on it")
    }
}

/// Who has a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The kernel itself: its RoCE driver.
    Kernel,
    /// A process of this user.
    User(u32),
}

impl Holder {
    fn describe(self) -> String {
        match self {
            Holder::Kernel => {
                "the kernel's own RoCE driver (rdma_rxe) holds it; `rdma link` lists its devices, \
                               `rdma link delete NAME` removes one"
                    .to_owned()
            }
            Holder::User(uid) if uid == super::super::sys::current_uid() => {
                "another program of this user holds it and does not share (see `ss -ulnp`)".to_owned()
            }
            Holder::User(uid) => {
                format!("user number {uid} holds it, and users cannot share (see `ss -ulnp`)")
            }
        }
    }
}

/// Who holds RoCE's port on an address or on all addresses, by the kernel's tables of UDP sockets.
fn holders(address: IpAddr) -> Vec<Holder> {
    ["/proc/net/udp", "/proc/net/udp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| {
            table
                .lines()
                .filter_map(|line| parse_holder(line, address))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// One line of such a table: `sl local_address remote st queues tr:when retrnsmt uid timeout inode ...`.
fn parse_holder(line: &str, address: IpAddr) -> Option<Holder> {
    let mut fields = line.split_ascii_whitespace();
    let (ip, port) = fields.nth(1)?.split_once(':')?;
    if u16::from_str_radix(port, 16).ok()? != ROCE_V2_PORT {
        return None;
    }
    let bound = parse_kernel_address(ip)?;
    if !bound.is_unspecified() && bound.to_canonical() != address {
        return None;
    }
    let uid = fields.nth(5)?.parse().ok()?;
    let inode = fields.nth(1)?;
    Some(if inode == "0" {
        Holder::Kernel
    } else {
        Holder::User(uid)
    })
}

/// Addresses stand there as words in the machine's byte order, in hexadecimal.
fn parse_kernel_address(text: &str) -> Option<IpAddr> {
    let mut bytes = [0u8; 16];
    let words = text.len() / 8;
    for (word, place) in (0..words).zip(bytes.chunks_exact_mut(4)) {
        let number = u32::from_str_radix(text.get(word * 8..word * 8 + 8)?, 16).ok()?;
        place.copy_from_slice(&number.to_ne_bytes());
    }
    match words {
        1 => Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))),
        4 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(address: &str, uid: u32, inode: u32) -> String {
        format!(
            "  12: {address}:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 2 0 0"
        )
    }

    /// The kernel's form of an address, whatever the byte order of this machine.
    fn kernel_form(address: &str) -> String {
        let octets: Vec<u8> = match address.parse().unwrap() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        octets
            .chunks(4)
            .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap())))
            .collect()
    }

    #[test]
    fn the_holder_of_a_port_is_found_in_the_kernels_table() {
        let address = "127.1.2.3".parse().unwrap();
        assert_eq!(
            parse_holder(&line(&kernel_form("127.1.2.3"), 1000, 77), address),
            Some(Holder::User(1000))
        );
        assert_eq!(
            parse_holder(&line(&kernel_form("0.0.0.0"), 0, 0), address),
            Some(Holder::Kernel)
        );
        assert_eq!(
            parse_holder(&line(&kernel_form("::"), 0, 0), address),
            Some(Holder::Kernel)
        );
        assert_eq!(
            parse_holder(&line(&kernel_form("127.1.2.4"), 1000, 77), address),
            None
        );
        for noise in [
            "",
            "sl local_address",
            "1: zz:12B7 x",
            "1: 0100007F:12B7",
            "1: é1234567:12B7 0 0 0 0 0 1 0 2",
        ] {
            assert_eq!(parse_holder(noise, address), None);
        }
    }

    #[test]
    fn the_error_names_the_cause_and_a_way_out() {
        let error = explain(
            "127.9.9.9".parse().unwrap(),
            io::Error::from_raw_os_error(libc::EADDRINUSE),
        );
        assert_eq!(error.kind(), ErrorKind::AddressInUse);
        assert!(
            error.to_string().contains("4791 on 127.9.9.9 is taken"),
            "{error}"
        );
        assert!(error.to_string().contains("such as 127."), "{error}");
    }

    #[test]
    fn group_and_wildcard_addresses_are_refused() {
        for address in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
            assert_eq!(
                check_address(address.parse().unwrap()).unwrap_err().kind(),
                ErrorKind::Invalid
            );
        }
        check_address("127.0.0.1".parse().unwrap()).unwrap();
    }
}
