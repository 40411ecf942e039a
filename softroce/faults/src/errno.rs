//! Names of error numbers.

/// Linux's, as far as verbs return them or programs may want to see them. The numbers are those of x86-64 and aarch64.
const NAMES: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOSPC", 28),
    ("ERANGE", 34),
    ("ENOSYS", 38),
    ("ENODATA", 61),
    ("EPROTO", 71),
    ("EOVERFLOW", 75),
    ("EMSGSIZE", 90),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
    ("EADDRINUSE", 98),
    ("EADDRNOTAVAIL", 99),
    ("ENETDOWN", 100),
    ("ENETUNREACH", 101),
    ("ECONNABORTED", 103),
    ("ECONNRESET", 104),
    ("ENOBUFS", 105),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTDOWN", 112),
    ("EHOSTUNREACH", 113),
    ("EREMOTEIO", 121),
    ("ECANCELED", 125),
];

/// The largest error number of Linux.
pub(crate) const ERRNO_MAX: i32 = 4095;

/// The number of a name such as `ENOMEM`.
pub fn errno_named(name: &str) -> Option<i32> {
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, errno)| *errno)
}

/// The name of a number, where it has one here.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(_, number)| *number == errno)
        .map(|(name, _)| *name)
}

/// All names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    NAMES.iter().map(|(name, _)| *name)
}
