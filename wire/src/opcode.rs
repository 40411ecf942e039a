//! Opcodes, and the table that says what each of the 256 means.

use std::fmt;

mod table;

use table::TABLE;

/// The transport service in an opcode's upper three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram; the table has no rows for it.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (RoCEv2 annex).
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Manufacturer-specific opcodes.
    Manufacturer,
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Part of a SEND.
    Send,
    /// Part of an RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// Part of the response to an RDMA READ.
    ReadResponse,
    /// ACK or NAK.
    Acknowledge,
    /// Response to an atomic.
    AtomicAcknowledge,
    /// Compare-and-swap request.
    CompareSwap,
    /// Fetch-and-add request.
    FetchAdd,
    /// ATOMIC WRITE request (annex A19).
    AtomicWrite,
    /// FLUSH request (annex A19).
    Flush,
    /// Congestion notification packet.
    CongestionNotification,
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// First or only.
    pub const fn starts_message(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Last or only.
    pub const fn ends_message(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// How much payload a packet may carry (IBA C9-92).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// None.
    Empty,
    /// Exactly the path MTU: first and middle packets.
    FullMtu,
    /// At least one byte, at most the path MTU: last packets.
    OneToMtu,
    /// Up to the path MTU: only packets.
    UpToMtu,
    /// This many bytes.
    Exactly(usize),
}

impl PayloadRule {
    /// Whether a payload of `len_bytes` obeys the rule under a path MTU of `mtu_bytes`.
    pub const fn allows(self, len_bytes: usize, mtu_bytes: usize) -> bool {
        match self {
            Self::Empty => len_bytes == 0,
            Self::FullMtu => len_bytes == mtu_bytes,
            Self::OneToMtu => 1 <= len_bytes && len_bytes <= mtu_bytes,
            Self::UpToMtu => len_bytes <= mtu_bytes,
            Self::Exactly(bytes) => len_bytes == bytes,
        }
    }
}

/// The extension headers that follow a BTH. Their order on the wire is fixed: XRCETH, DETH, FETH, then RETH,
/// AtomicETH or AETH, then AtomicAckETH, ImmDt or IETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HeaderSet {
    /// XRC extended transport header.
    pub xrceth: bool,
    /// Datagram extended transport header.
    pub deth: bool,
    /// FLUSH extended transport header.
    pub feth: bool,
    /// RDMA extended transport header.
    pub reth: bool,
    /// Atomic extended transport header.
    pub atomic_eth: bool,
    /// ACK extended transport header.
    pub aeth: bool,
    /// Atomic acknowledge extended transport header.
    pub atomic_ack: bool,
    /// Immediate data.
    pub immediate: bool,
    /// Invalidate extended transport header.
    pub invalidate: bool,
}

impl HeaderSet {
    /// No extension header.
    pub const NONE: Self = Self {
        xrceth: false,
        deth: false,
        feth: false,
        reth: false,
        atomic_eth: false,
        aeth: false,
        atomic_ack: false,
        immediate: false,
        invalidate: false,
    };

    /// Bytes of all of them together.
    pub const fn len_bytes(self) -> usize {
        4 * self.xrceth as usize
            + 8 * self.deth as usize
            + 4 * self.feth as usize
            + 16 * self.reth as usize
            + 28 * self.atomic_eth as usize
            + 4 * self.aeth as usize
            + 8 * self.atomic_ack as usize
            + 4 * self.immediate as usize
            + 4 * self.invalidate as usize
    }
}

impl fmt::Debug for HeaderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.xrceth, "XRCETH"),
            (self.deth, "DETH"),
            (self.feth, "FETH"),
            (self.reth, "RETH"),
            (self.atomic_eth, "AtomicETH"),
            (self.aeth, "AETH"),
            (self.atomic_ack, "AtomicAckETH"),
            (self.immediate, "ImmDt"),
            (self.invalidate, "IETH"),
        ];
        f.debug_set()
            .entries(names.iter().filter(|(present, _)| *present).map(|(_, name)| name))
            .finish()
    }
}

/// A row of the opcode table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// Name without the transport's, as in "SEND_FIRST".
    pub name: &'static str,
    /// Transport service.
    pub transport: Transport,
    /// What the packet does.
    pub operation: Operation,
    /// Where it stands in its message.
    pub position: Position,
    /// Headers after the BTH.
    pub headers: HeaderSet,
    /// Bytes of the BTH and those headers.
    pub headers_len: usize,
    /// Payload after the headers.
    pub payload: PayloadRule,
    /// At this packet the responder takes a receive work request: the first or only packet of a SEND, the last
    /// or only one of an RDMA WRITE with immediate.
    pub consumes_receive: bool,
}

impl OpcodeInfo {
    /// Goes from requester to responder.
    pub const fn is_request(&self) -> bool {
        match self.operation {
            Operation::Send
            | Operation::Write
            | Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush => true,
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CongestionNotification => false,
        }
    }

    /// Goes from responder to requester.
    pub const fn is_response(&self) -> bool {
        matches!(
            self.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// After this packet a receive work request is complete: the last or only packet of a SEND or of an RDMA
    /// WRITE with immediate.
    pub const fn completes_receive(&self) -> bool {
        match self.operation {
            Operation::Send => self.position.ends_message(),
            Operation::Write => self.headers.immediate,
            Operation::ReadRequest
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush
            | Operation::CongestionNotification => false,
        }
    }
}

/// The first byte of a BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(u8);

impl Opcode {
    /// Any byte is an opcode; [`Opcode::info`] tells whether it means something.
    pub const fn new(value: u8) -> Self {
        Self(value)
    }

    /// The byte.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// The table's row; `None` for a reserved opcode and for those of services that this crate does not know.
    pub const fn info(self) -> Option<&'static OpcodeInfo> {
        TABLE[self.0 as usize].as_ref()
    }

    /// The same operation of another service. Not every service has it: see [`Opcode::info`].
    #[must_use]
    pub const fn of(self, transport: Transport) -> Self {
        let service = match transport {
            Transport::Rc => 0,
            Transport::Uc => 1,
            Transport::Rd => 2,
            Transport::Ud => 3,
            Transport::Cnp => 4,
            Transport::Xrc => 5,
            Transport::Manufacturer => 6,
        };
        Self(service << 5 | (self.0 & 0x1f))
    }

    /// The service, which reserved opcodes have too.
    pub const fn transport(self) -> Transport {
        match self.0 >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Rd,
            3 => Transport::Ud,
            4 => Transport::Cnp,
            5 => Transport::Xrc,
            _ => Transport::Manufacturer,
        }
    }
}

impl fmt::Display for Opcode {
    /// As in "RC_SEND_FIRST"; "RC_0x15" for a reserved one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = match self.transport() {
            Transport::Rc => "RC_",
            Transport::Uc => "UC_",
            Transport::Rd => "RD_",
            Transport::Ud => "UD_",
            Transport::Xrc => "XRC_",
            Transport::Manufacturer => "MFR_",
            Transport::Cnp => "",
        };
        match self.info() {
            Some(info) => write!(f, "{service}{}", info.name),
            None => write!(f, "{service}{:#04x}", self.0),
        }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({self})")
    }
}

#[cfg(test)]
mod tests;
