//! The syndrome of an AETH, with the tables of its parameters (IBA volume 1, 9.7.5.1 and 9.7.7.2).

use std::fmt;

/// What an AETH says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Positive acknowledgement, with the responder's credits.
    Ack(CreditCode),
    /// Receiver not ready: try again after the timer.
    RnrNak(RnrTimer),
    /// Negative acknowledgement.
    Nak(NakCode),
    /// Bits that the specification reserves, whole. A requester ignores the packet.
    Reserved(u8),
}

impl Syndrome {
    /// An ACK without end-to-end flow control.
    pub const ACK: Self = Self::Ack(CreditCode::UNLIMITED);

    /// From the byte on the wire: bit 7 is reserved, bits 6 and 5 the kind, the low five its parameter.
    pub const fn new(value: u8) -> Self {
        let parameter = value & 0x1f;
        match value >> 5 {
            0 => Self::Ack(CreditCode(parameter)),
            1 => Self::RnrNak(RnrTimer(parameter)),
            3 => Self::Nak(NakCode::new(parameter)),
            _ => Self::Reserved(value),
        }
    }

    /// The byte on the wire.
    pub const fn value(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::RnrNak(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code.value(),
            Self::Reserved(value) => value,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(credits) => match credits.credits() {
                Some(count) => write!(f, "ack credits {count}"),
                None => f.write_str("ack"),
            },
            Self::RnrNak(timer) => {
                let micros = timer.nanos() / 1000;
                write!(f, "rnr-nak {}.{:02} ms", micros / 1000, micros % 1000 / 10)
            }
            Self::Nak(code) => write!(f, "nak {code}"),
            Self::Reserved(value) => write!(f, "reserved syndrome {value:#04x}"),
        }
    }
}

/// Why a responder refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A request is missing before this one.
    PsnSequence,
    /// The request is not one the responder can carry out.
    InvalidRequest,
    /// Key, access rights or bounds.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
    /// Reliable datagrams only.
    InvalidRd,
    /// Codes 5 to 31, without meaning.
    Reserved(u8),
}

impl NakCode {
    /// From the syndrome's low five bits.
    pub const fn new(value: u8) -> Self {
        match value & 0x1f {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRd,
            reserved => Self::Reserved(reserved),
        }
    }

    /// The syndrome's low five bits.
    pub const fn value(self) -> u8 {
        match self {
            Self::PsnSequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRd => 4,
            Self::Reserved(value) => value & 0x1f,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PsnSequence => f.write_str("psn-sequence"),
            Self::InvalidRequest => f.write_str("invalid-request"),
            Self::RemoteAccess => f.write_str("remote-access"),
            Self::RemoteOperational => f.write_str("remote-operational"),
            Self::InvalidRd => f.write_str("invalid-rd"),
            Self::Reserved(value) => write!(f, "reserved {value:#04x}"),
        }
    }
}

/// How long a requester waits at least after an RNR NAK: one of 32 codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// The wait of each code, in units of 10 µs.
const RNR_TENS_OF_MICROS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// `None` when `code` is above 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code <= 0x1f { Some(Self(code)) } else { None }
    }

    /// 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The wait in nanoseconds, 10 µs to 655.36 ms.
    pub const fn nanos(self) -> u64 {
        RNR_TENS_OF_MICROS[self.0 as usize] as u64 * 10_000
    }
}

impl fmt::Debug for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RnrTimer({:#04x})", self.0)
    }
}

/// How many receive work requests the responder has left, in one of 32 codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CreditCode(u8);

/// The credits of each code but the last, ascending.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl CreditCode {
    /// No end-to-end flow control; the only legal code for a queue pair with a shared receive queue.
    pub const UNLIMITED: Self = Self(0x1f);

    /// `None` when `code` is above 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code <= 0x1f { Some(Self(code)) } else { None }
    }

    /// 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The credits; `None` for [`CreditCode::UNLIMITED`].
    pub const fn credits(self) -> Option<u32> {
        if self.0 == Self::UNLIMITED.0 {
            None
        } else {
            Some(CREDITS[self.0 as usize])
        }
    }

    /// The largest code that promises no more than `count`.
    pub fn from_count(count: u32) -> Self {
        let promised = CREDITS.partition_point(|credits| *credits <= count);
        Self(promised as u8 - 1)
    }
}

impl fmt::Debug for CreditCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CreditCode({:#04x})", self.0)
    }
}

#[cfg(test)]
mod tests;
