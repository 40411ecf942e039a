//! rsockets: the calls of rsocket(7) over `softroce-rsocket`.
//!
//! A socket is known by the number of a descriptor of its own, so that it differs from all other descriptors of the
//! process. The table of sockets is this process's; a forked child finds its parent's sockets in it, which are dead there:
//! their calls fail.
//!
//! Buffers that C gives are trusted to be what their length says, as everywhere; NULL is refused.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use softroce::Cm;
use softroce_rsocket::{
    DatagramSocket, Family, OpenChannel, Patience, Ready, Settings, Shutdown, StreamSocket, Watch,
};
use verbs_api::{Error, ErrorKind, Result};

use crate::device::Registry;
use crate::entry::{count, number_or_minus_one};
use address::{AddressOut, address_in, is_unspecified};

mod address;
mod data;
mod direct;
mod message;
mod options;
mod poll;

pub(crate) use address::{rgetpeername, rgetsockname};
pub(crate) use data::{rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rsend, rsendmsg, rsendto, rwrite, rwritev};
pub(crate) use direct::{riomap, riounmap, riowrite};
pub(crate) use options::{rfcntl, rgetsockopt, rsetsockopt};
pub(crate) use poll::{rpoll, rselect};

/// What a number of the table stands for.
pub(crate) enum Socket {
    Stream(StreamSocket<Cm>),
    Datagram(DatagramSocket<Cm>),
}

type Table = HashMap<c_int, Arc<Socket>>;

static SOCKETS: RwLock<Option<Table>> = RwLock::new(None);

fn sockets() -> RwLockReadGuard<'static, Option<Table>> {
    SOCKETS.read().unwrap_or_else(PoisonError::into_inner)
}

fn sockets_to_change() -> RwLockWriteGuard<'static, Option<Table>> {
    SOCKETS.write().unwrap_or_else(PoisonError::into_inner)
}

/// The socket of this number, if it is one.
fn find(socket: c_int) -> Option<Arc<Socket>> {
    sockets().as_ref()?.get(&socket).cloned()
}

/// EBADF: the number is not a socket's.
fn lookup(socket: c_int) -> Result<Arc<Socket>> {
    find(socket).ok_or_else(|| os_error(libc::EBADF, format!("{socket} is not an rsocket")))
}

fn os_error(errno: c_int, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::from_errno(errno), message)
}

/// Give a new socket its number.
fn enter(socket: Socket) -> c_int {
    let number = socket.number();
    sockets_to_change()
        .get_or_insert_with(HashMap::new)
        .insert(number, Arc::new(socket));
    number
}

/// Close sockets when the program ends. Called only once a device is open: handlers run in reverse order, and ours must come
/// before that of the devices, which cuts connections off.
fn watch_for_exit() {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function is of the expected type and stays: this object is never unloaded.
        unsafe { libc::atexit(close_all) };
    });
}

/// The program ends: what it has sent still arrives, as the kernel does it for its sockets.
extern "C" fn close_all() {
    /// For each; a peer whose card does not answer must not keep a program from ending.
    const LINGER: Duration = Duration::from_secs(2);
    let Ok(mut table) = SOCKETS.try_write() else {
        return;
    };
    for socket in table.take().into_iter().flat_map(Table::into_values) {
        socket.close_within(LINGER);
    }
}

/// What both kinds have under the same name.
macro_rules! either {
    ($self:expr, $socket:ident => $call:expr) => {
        match $self {
            Socket::Stream($socket) => $call,
            Socket::Datagram($socket) => $call,
        }
    };
}

impl Socket {
    fn number(&self) -> c_int {
        either!(self, socket => socket.number())
    }

    fn settings(&self) -> &Settings {
        either!(self, socket => socket.settings())
    }

    fn take_error(&self) -> Option<c_int> {
        either!(self, socket => socket.take_error())
    }

    fn local_addr(&self) -> SocketAddr {
        either!(self, socket => socket.local_addr())
    }

    fn peer_addr(&self) -> Result<SocketAddr> {
        either!(self, socket => socket.peer_addr())
    }

    fn bind(&self, local: SocketAddr) -> Result<()> {
        either!(self, socket => socket.bind(local))
    }

    fn ready(&self) -> Result<Ready> {
        either!(self, socket => socket.ready())
    }

    fn watch(&self) -> Result<(Ready, Watch<'_, Cm>)> {
        either!(self, socket => socket.watch())
    }

    fn close(&self) {
        either!(self, socket => socket.close());
    }

    /// `exit` may come from a signal handler that has interrupted a call of this socket.
    fn close_within(&self, time: Duration) {
        if !either!(self, socket => socket.is_free()) {
            return;
        }
        self.settings()
            .set_options(|options| options.linger = Some(options.linger.unwrap_or(time).min(time)));
        self.close();
    }

    /// EOPNOTSUPP for datagrams.
    fn stream(&self) -> Result<&StreamSocket<Cm>> {
        match self {
            Socket::Stream(socket) => Ok(socket),
            Socket::Datagram(_) => Err(os_error(
                libc::EOPNOTSUPP,
                "only a stream can do this, and the rsocket is of datagrams",
            )),
        }
    }
}

fn channels() -> OpenChannel<Cm> {
    Arc::new(|| Cm::new(Registry::this()?.provider()))
}

/// Whether a call with these flags may wait.
fn patience(flags: c_int) -> Patience {
    match flags & libc::MSG_DONTWAIT {
        0 => Patience::OfSocket,
        _ => Patience::None,
    }
}

pub(crate) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    count("rsocket", || {
        let family = match domain {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            other => {
                return Err(os_error(
                    libc::EAFNOSUPPORT,
                    format!("rsockets are of AF_INET or AF_INET6, not of address family {other}"),
                ));
            }
        };
        const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let socket = match (kind & !FLAGS, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                Socket::Stream(StreamSocket::new(&channels(), family)?)
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Socket::Datagram(DatagramSocket::new(&channels(), family)?)
            }
            (kind, protocol) => {
                return Err(os_error(
                    libc::EPROTONOSUPPORT,
                    format!("an rsocket of type {kind} and protocol {protocol} is not offered"),
                ));
            }
        };
        socket.settings().set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
        Ok(enter(socket))
    })
}

/// # Safety
/// `address` is NULL or valid for `length` bytes.
pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    number_or_minus_one("rbind", || {
        // SAFETY: the caller's promise.
        let local = unsafe { address_in(address, length) }?;
        lookup(socket)?.bind(local)?;
        watch_for_exit();
        Ok(())
    })
}

pub(crate) extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    number_or_minus_one("rlisten", || {
        lookup(socket)?
            .stream()?
            .listen(u32::try_from(backlog).unwrap_or(0))?;
        watch_for_exit();
        Ok(())
    })
}

/// # Safety
/// `address` is NULL or valid for as many bytes as `length` says, and then `length` is valid.
pub(crate) unsafe extern "C" fn raccept(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    count("raccept", || {
        // SAFETY: the caller's promise.
        let out = unsafe { AddressOut::new(address, length) };
        let (accepted, peer) = lookup(socket)?.stream()?.accept()?;
        out.write(peer);
        Ok(enter(Socket::Stream(accepted)))
    })
}

/// # Safety
/// `address` is NULL or valid for `length` bytes.
pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    number_or_minus_one("rconnect", || {
        // SAFETY: the caller's promise.
        let to = || unsafe { address_in(address, length) };
        match &*lookup(socket)? {
            Socket::Stream(socket) => {
                let connected = socket.connect(to()?);
                watch_for_exit();
                connected
            }
            // SAFETY: the caller's promise.
            Socket::Datagram(socket) if unsafe { is_unspecified(address, length) } => socket.connect(None),
            Socket::Datagram(socket) => socket.connect(Some(to()?)),
        }
    })
}

pub(crate) extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    number_or_minus_one("rshutdown", || {
        let ways = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            other => return Err(Error::invalid(format!("{other} is no way to shut down"))),
        };
        match &*lookup(socket)? {
            Socket::Stream(socket) => socket.shut_down(ways),
            // There is no peer that would have to know; as for UDP, only the question whether there is one matters.
            Socket::Datagram(socket) => socket.peer_addr().map(drop),
        }
    })
}

pub(crate) extern "C" fn rclose(socket: c_int) -> c_int {
    number_or_minus_one("rclose", || {
        let known = lookup(socket)?;
        known.close();
        // Only now may the number be given to another.
        let removed = sockets_to_change()
            .as_mut()
            .and_then(|table| table.remove(&socket));
        drop((known, removed));
        Ok(())
    })
}
