//! Sequenced-packet Unix sockets with abstract names: claims that die with their process, and message channels
//! whose other end's death is seen at once.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};

use super::{check, current_uid, read_option, set_int_option};
use crate::os::PrivateFd;

/// Connections that may wait to be accepted (the kernel caps it at `net.core.somaxconn`).
const BACKLOG: libc::c_int = 512;
/// Send buffer that we ask for: several whole trains (the kernel caps it at `net.core.wmem_max`).
const SEND_BUFFER_BYTES: libc::c_int = 1 << 20;

/// A name that is ours, and the connections of those who look for it.
#[derive(Debug)]
pub(in crate::fabric) struct Listener {
    fd: PrivateFd,
}

impl Listener {
    /// Take `name` in the abstract namespace (of this network namespace) and listen on it. `EADDRINUSE` when
    /// anybody has it already; the kernel gives it back when the last descriptor closes, at the latest at death.
    pub(in crate::fabric) fn claim(name: &[u8]) -> io::Result<Self> {
        let fd = new_socket()?;
        let (address, length) = abstract_address(name)?;
        // SAFETY: `address` lives across the call and is at least `length` bytes long.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
        // SAFETY: no pointers are passed.
        check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
        Ok(Listener { fd })
    }

    /// The next waiting connection whose other end runs as our user; strangers are hung up on.
    /// `None` when nobody waits.
    pub(in crate::fabric) fn accept(&self) -> Option<Connection> {
        const STRANGERS_A_CALL_MAX: usize = 16;
        for _ in 0..STRANGERS_A_CALL_MAX {
            // SAFETY: the peer's address is not asked for, so both pointers may be null.
            let fd = check(unsafe {
                libc::accept4(
                    self.fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                )
            })
            .ok()?;
            // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
            let fd = unsafe { PrivateFd::from_raw_fd(fd) };
            let connection = Connection { fd };
            if connection.is_of_our_user() {
                connection.widen();
                return Some(connection);
            }
        }
        None
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Two processes of one user, joined. Messages keep their boundaries and order.
#[derive(Debug)]
pub(in crate::fabric) struct Connection {
    fd: PrivateFd,
}

impl Connection {
    /// Connect to whoever has claimed `name`. Works without the other's help (also when it is stopped).
    /// `Ok(None)` when nobody has, or somebody of another user.
    pub(in crate::fabric) fn to(name: &[u8]) -> io::Result<Option<Self>> {
        let fd = new_socket()?;
        let (address, length) = abstract_address(name)?;
        // SAFETY: `address` lives across the call and is at least `length` bytes long.
        match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) }) {
            Ok(_) => {
                let connection = Connection { fd };
                if !connection.is_of_our_user() {
                    return Ok(None);
                }
                connection.widen();
                Ok(Some(connection))
            }
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Send one message made of two parts, or fail at once (`WouldBlock` when the other does not read).
    pub(in crate::fabric) fn send(&self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let parts = [
            libc::iovec {
                iov_base: head.as_ptr().cast_mut().cast(),
                iov_len: head.len(),
            },
            libc::iovec {
                iov_base: body.as_ptr().cast_mut().cast(),
                iov_len: body.len(),
            },
        ];
        // SAFETY: an all-zero msghdr is a valid empty one.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_ptr().cast_mut();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the two parts live across the call, which only reads them.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Receive one message into `buffer`. `Ok(0)`: the other end has gone. `WouldBlock`: nothing there now.
    pub(in crate::fabric) fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: pointer and length describe `buffer`.
        let got = unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if got < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(got as usize)
        }
    }

    fn is_of_our_user(&self) -> bool {
        let mut peer = libc::ucred {
            pid: 0,
            uid: libc::uid_t::MAX,
            gid: libc::gid_t::MAX,
        };
        read_option(
            self.fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            &mut peer,
        )
        .is_ok()
            && peer.uid == current_uid()
    }

    fn widen(&self) {
        // A smaller buffer only means that a stopped owner's packets are dropped earlier.
        let _ = set_int_option(
            self.fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            SEND_BUFFER_BYTES,
        );
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn new_socket() -> io::Result<PrivateFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe {
        libc::socket(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    })?;
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
    Ok(unsafe { PrivateFd::from_raw_fd(fd) })
}

fn abstract_address(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: an all-zero sockaddr_un is valid; its family is set next.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if name.len() + 1 > address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    // The first byte stays zero: that makes the name abstract.
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, length as libc::socklen_t))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique_name(what: &str) -> Vec<u8> {
        format!("softroce-test/{what}/{:x}", crate::fabric::sys::random_u64()).into_bytes()
    }

    #[test]
    fn a_name_has_one_owner_until_it_closes() {
        let name = unique_name("owner");
        let first = Listener::claim(&name).unwrap();
        assert_eq!(
            Listener::claim(&name).unwrap_err().raw_os_error(),
            Some(libc::EADDRINUSE)
        );
        drop(first);
        Listener::claim(&name).unwrap();
    }

    #[test]
    fn messages_arrive_whole_and_a_close_is_seen() {
        let name = unique_name("messages");
        let listener = Listener::claim(&name).unwrap();
        let left = Connection::to(&name).unwrap().unwrap();
        left.send(b"head", b"body").unwrap();
        left.send(b"x", b"").unwrap();
        let right = listener.accept().unwrap();
        let mut buffer = [0; 64];
        assert_eq!(right.recv(&mut buffer).unwrap(), 8);
        assert_eq!(&buffer[..8], b"headbody");
        assert_eq!(right.recv(&mut buffer).unwrap(), 1);
        assert_eq!(
            right.recv(&mut buffer).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(left);
        assert_eq!(right.recv(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn a_name_that_nobody_has_is_no_connection() {
        assert!(Connection::to(&unique_name("nobody")).unwrap().is_none());
    }

    #[test]
    fn a_peer_that_does_not_read_makes_sends_fail_and_never_block() {
        let name = unique_name("full");
        let _listener = Listener::claim(&name).unwrap();
        let left = Connection::to(&name).unwrap().unwrap();
        let mut sent = 0;
        let refused = loop {
            match left.send(b"0123", &[0; 4096]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 100_000);
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 10);
    }
}
