//! The system calls of real wires.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Packets leave whole, with "don't fragment" and the identification 0 that their ICRC is made for (IPv4 only).
pub(super) fn forbid_fragments(socket: &UdpSocket) -> io::Result<()> {
    set_option(
        socket,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_DO,
    )
}

fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the option's value is an int that outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Every frame that arrives at this network interface, and a way to send frames from it. Reading takes one frame, and
/// does not wait.
pub(super) fn frames_of(interface: &str) -> io::Result<File> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointer; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and nobody else's.
    let socket = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // What is sent from here must not come back as if it had arrived.
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // A burst must not be lost here. Beyond the system's limit for sockets, which takes the right that this one has taken.
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20)?;
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the name ends in a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes is a value of this struct of integers.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    // SAFETY: the address is as long as is said, and outlives the call.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if bound == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Wait until one of them can be read, or the time is over.
pub(super) fn wait(files: [&File; 2], time: Duration) {
    let mut polled = files.map(|file| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: both descriptors are open, and list and time outlive the call. What it answers does not matter: the caller
    // reads without waiting.
    unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const time, std::ptr::null()) };
}
