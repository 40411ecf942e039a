//! Errors as sockets have them.

use std::borrow::Cow;

pub(crate) use nix::errno::Errno;
use verbs_api::{Error, ErrorKind};

/// An error of this number, with its sentence.
pub(crate) fn error(errno: Errno, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::from_errno(errno as i32), message)
}

/// EAGAIN.
pub(crate) fn would_block() -> Error {
    Error::new(ErrorKind::Again, "nothing can be done without waiting")
}

/// ENOTCONN.
pub(crate) fn not_connected() -> Error {
    error(Errno::ENOTCONN, "the socket is not connected")
}
