//! Errors of the caller and of the system. What a *peer* does wrong is never an `Error`: it ends in a
//! [`WcStatus`](crate::WcStatus).

use std::fmt;

/// What kind of error; [`ErrorKind::errno`] gives the number that the man pages name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument or a transition that the rules forbid (EINVAL).
    Invalid,
    /// A queue is full or a device limit is reached (ENOMEM).
    NoMemory,
    /// Still in use by another object (EBUSY).
    Busy,
    /// The provider does not offer this (EOPNOTSUPP).
    Unsupported,
    /// Not allowed to this user (EPERM).
    Permission,
    /// Memory that the process cannot access (EFAULT).
    Fault,
    /// No such device, port or index (ENODEV).
    NotFound,
    /// The address or port is taken (EADDRINUSE).
    AddressInUse,
    /// Nothing there yet; try again (EAGAIN).
    Again,
    /// The system's own error number.
    System(i32),
}

impl ErrorKind {
    /// The kind that a number of C stands for.
    pub const fn from_errno(errno: i32) -> ErrorKind {
        match errno {
            22 => ErrorKind::Invalid,
            12 => ErrorKind::NoMemory,
            16 => ErrorKind::Busy,
            95 => ErrorKind::Unsupported,
            1 => ErrorKind::Permission,
            14 => ErrorKind::Fault,
            19 => ErrorKind::NotFound,
            98 => ErrorKind::AddressInUse,
            11 => ErrorKind::Again,
            errno => ErrorKind::System(errno),
        }
    }

    /// The number for C.
    pub const fn errno(self) -> i32 {
        match self {
            ErrorKind::Invalid => 22,
            ErrorKind::NoMemory => 12,
            ErrorKind::Busy => 16,
            ErrorKind::Unsupported => 95,
            ErrorKind::Permission => 1,
            ErrorKind::Fault => 14,
            ErrorKind::NotFound => 19,
            ErrorKind::AddressInUse => 98,
            ErrorKind::Again => 11,
            ErrorKind::System(errno) => errno,
        }
    }
}

/// An error with its number and a sentence that says what was wrong, with what, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: std::borrow::Cow<'static, str>,
    source: Option<std::io::Error>,
}

impl Error {
    /// An error of `kind` with its sentence. A `&'static str` costs no allocation.
    pub fn new(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Error {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// EINVAL with its sentence.
    pub fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// EOPNOTSUPP: `what` is the name of the operation or feature.
    pub fn unsupported(what: &str) -> Self {
        Error::new(
            ErrorKind::Unsupported,
            format!("{what} is not supported by this provider"),
        )
    }

    /// An error of the system, met while doing `what`.
    pub fn system(what: impl fmt::Display, source: std::io::Error) -> Self {
        let kind = match source.raw_os_error() {
            Some(98) => ErrorKind::AddressInUse,
            Some(errno) => ErrorKind::System(errno),
            None => ErrorKind::System(5),
        };
        Error {
            kind,
            message: format!("{what}: {source}").into(),
            source: Some(source),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The number for C.
    pub fn errno(&self) -> i32 {
        self.kind.errno()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

/// The result of most verbs.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A list of work requests was accepted only in part (`bad_wr` in C).
#[derive(Debug)]
pub struct PostError {
    /// How many requests, from the first, were accepted. The next one is the bad one.
    pub posted: usize,
    /// Why it was refused.
    pub error: Error,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "work request {} of the list was refused: {}",
            self.posted, self.error
        )
    }
}

impl std::error::Error for PostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// An object that could not be destroyed, handed back with the reason.
#[derive(Debug)]
pub struct Refused<T> {
    /// The object, still alive.
    pub object: T,
    /// Why.
    pub error: Error,
}
