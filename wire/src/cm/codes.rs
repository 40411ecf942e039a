//! Numbers of the messages that have names.

use std::fmt;

use crate::fields::Field;

/// Which message; the numbers are the attribute IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "see `Message`")]
pub enum MessageKind {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1a,
}

impl MessageKind {
    /// All of them.
    pub const ALL: [MessageKind; 11] = [
        Self::Req,
        Self::Mra,
        Self::Rej,
        Self::Rep,
        Self::Rtu,
        Self::Dreq,
        Self::Drep,
        Self::SidrReq,
        Self::SidrRep,
        Self::Lap,
        Self::Apr,
    ];

    /// Its attribute ID.
    pub const fn attribute(self) -> u16 {
        self as u16
    }

    /// The message of an attribute ID.
    pub fn from_attribute(attribute: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.attribute() == attribute)
    }
}

/// Declares numbers of which some have names; others are kept as they are.
macro_rules! named {
    ($(
        $(#[$doc:meta])*
        $name:ident($type:ty) { $($(#[$value_doc:meta])* $constant:ident = $value:literal $text:literal,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $type);

        impl $name {
            $($(#[$value_doc])* pub const $constant: Self = Self($value);)*
        }

        impl Field for $name {
            fn from_bits(bits: u64) -> Self {
                Self(bits as $type)
            }
            fn to_bits(self) -> u64 {
                self.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str($text),)*
                    other => write!(f, "{other}"),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}: {})"), self.0, self)
            }
        }
    )*};
}

named! {
    /// Why a message is rejected (IBA table 108).
    RejectReason(u16) {
        /// No queue pair is to be had.
        NO_QP = 1 "no queue pair",
        /// Something else is used up.
        NO_RESOURCES = 3 "no resources",
        /// The sender of the rejection waits no longer.
        TIMEOUT = 4 "timeout",
        /// What was asked for is not supported.
        UNSUPPORTED = 5 "unsupported request",
        /// The communication ID means nothing here.
        INVALID_COMM_ID = 6 "invalid communication ID",
        /// The communication ID belongs to others.
        INVALID_COMM_INSTANCE = 7 "invalid communication instance",
        /// Nobody listens.
        INVALID_SERVICE_ID = 8 "invalid service ID",
        /// The service is of another transport.
        INVALID_TRANSPORT = 9 "invalid transport service type",
        /// The requester's queue pair is connected already, as far as is known here.
        STALE_CONNECTION = 10 "stale connection",
        /// The GID is none of ours.
        INVALID_GID = 12 "invalid GID",
        /// The path MTU is too large here.
        INVALID_MTU = 26 "invalid path MTU",
        /// More READs and atomics than can be served.
        INSUFFICIENT_RESPONDER_RESOURCES = 27 "insufficient responder resources",
        /// The program says no.
        CONSUMER = 28 "consumer",
        /// The communication ID of the requester is in use by it already.
        DUPLICATE_COMM_ID = 30 "duplicate local communication ID",
        /// The class's version.
        INVALID_CLASS_VERSION = 31 "invalid class version",
        /// The vendor options are not to the program's liking.
        VENDOR_OPTION = 35 "vendor option",
    }
    /// Which message a rejection is of.
    RejectedMessage(u8) {
        /// A request.
        REQ = 0 "REQ",
        /// A reply.
        REP = 1 "REP",
        /// None; the sender gives up.
        NONE = 2 "no message",
    }
    /// The answer to a service ID resolution (IBA table 119).
    SidrStatus(u8) {
        /// Here is the queue pair.
        VALID = 0 "valid",
        /// Nobody listens.
        UNSUPPORTED = 1 "unsupported service ID",
        /// The program says no.
        REJECTED = 2 "rejected",
        /// There is no queue pair.
        NO_QP = 3 "no queue pair",
        /// Ask elsewhere.
        REDIRECT = 4 "redirect",
        /// The class's version.
        UNSUPPORTED_VERSION = 5 "unsupported version",
    }
    /// The answer to an alternate path (IBA table 116).
    AprStatus(u8) {
        /// It is loaded.
        LOADED = 0 "loaded",
        /// The communication ID means nothing here.
        INVALID_COMM_ID = 1 "invalid communication ID",
        /// There are no alternate paths here.
        UNSUPPORTED = 2 "alternate paths are not supported",
        /// It is refused.
        REJECTED = 3 "rejected",
    }
    /// The service of the queue pairs to be connected.
    TransportService(u8) {
        /// Reliable connection.
        RC = 0 "RC",
        /// Unreliable connection.
        UC = 1 "UC",
        /// Reliable datagram.
        RD = 2 "RD",
        /// What the extended transport type says: XRC.
        EXTENDED = 3 "extended",
    }
}

/// A service: what listeners listen on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// All services of RDMA's IP CM begin so (IBA annex A11).
    const IP_PREFIX: u64 = 0x01;

    /// The service of a port. `protocol` is that of the IP header: 6 (TCP), 17 (UDP), or another number of RDMA CM.
    pub const fn of_port(protocol: u8, port: u16) -> Self {
        Self(Self::IP_PREFIX << 24 | (protocol as u64) << 16 | port as u64)
    }

    /// Protocol and port, if it is the service of one.
    pub const fn port(self) -> Option<(u8, u16)> {
        if self.0 >> 24 == Self::IP_PREFIX {
            Some(((self.0 >> 16) as u8, self.0 as u16))
        } else {
            None
        }
    }
}

impl Field for ServiceId {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn to_bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((6, port)) => write!(f, "TCP port {port}"),
            Some((17, port)) => write!(f, "UDP port {port}"),
            Some((protocol, port)) => write!(f, "port {port} of protocol {protocol}"),
            None => write!(f, "service {:#018x}", self.0),
        }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({:#018x})", self.0)
    }
}
