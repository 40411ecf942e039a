//! Messages of communication management (class 7, version 2): how connections come and go (IBA 12.6).
//!
//! Each is a datagram of 256 bytes on queue pair 1: the common header ([`MadHeader`]) and 232 bytes of its own. What
//! RDMA CM puts in front of a request's private data is in [`ip`].

use crate::mad::{BASE_VERSION, MAD_HEADER_LEN, MAD_LEN, MadHeader, class, method};
use crate::{Layer, ParseError};

pub mod ip;

mod codes;
mod display;
mod message;

pub use codes::{
    AprStatus, MessageKind, RejectReason, RejectedMessage, ServiceId, SidrStatus, TransportService,
};
pub use display::carried;
pub use message::{Apr, Drep, Dreq, Lap, MESSAGE_LEN, Mra, PathInfo, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

/// The class's version.
pub const CLASS_VERSION: u8 = 2;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "all are 232 bytes on the wire")]
pub enum Message {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgement: have patience.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply to a request.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Disconnect request.
    Dreq(Dreq),
    /// Disconnect reply.
    Drep(Drep),
    /// Service ID resolution request.
    SidrReq(SidrReq),
    /// Service ID resolution reply.
    SidrRep(SidrRep),
    /// Load alternate path.
    Lap(Lap),
    /// Alternate path response.
    Apr(Apr),
}

macro_rules! by_kind {
    ($($kind:ident),*) => {
        impl Message {
            /// Which it is.
            pub const fn kind(&self) -> MessageKind {
                match self {
                    $(Self::$kind(_) => MessageKind::$kind),*
                }
            }

            fn read(kind: MessageKind, body: &[u8; MESSAGE_LEN]) -> Self {
                match kind {
                    $(MessageKind::$kind => Self::$kind($kind::read(body))),*
                }
            }

            fn write(&self, body: &mut [u8; MESSAGE_LEN]) {
                match self {
                    $(Self::$kind(message) => message.write(body)),*
                }
            }
        }
    };
}

by_kind!(Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr);

impl Message {
    /// The message in a datagram, and its transaction ID.
    ///
    /// # Errors
    /// No datagram (see [`MadHeader::parse`]); another class, class version or method than those of communication
    /// management; an attribute that is no message.
    pub fn parse(mad: &[u8]) -> Result<(u64, Self), ParseError> {
        let (header, whole) = MadHeader::parse(mad)?;
        let invalid = |field, value: u16, expected| ParseError::Invalid {
            layer: Layer::Mad,
            offset: 0,
            field,
            value: value.into(),
            expected,
        };
        if header.class != class::COMMUNICATION {
            return Err(invalid("management class", header.class.into(), "7"));
        }
        if header.class_version != CLASS_VERSION {
            return Err(invalid("class version", header.class_version.into(), "2"));
        }
        if header.method != method::SEND {
            return Err(invalid("method", header.method.into(), "3 (Send)"));
        }
        let kind = MessageKind::from_attribute(header.attribute_id)
            .ok_or_else(|| invalid("attribute", header.attribute_id, "0x10 to 0x1a"))?;
        let body = whole[MAD_HEADER_LEN..]
            .first_chunk()
            .expect("what follows the header");
        Ok((header.transaction_id, Self::read(kind, body)))
    }

    /// As a datagram.
    pub fn to_mad(&self, transaction_id: u64) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        let header = MadHeader {
            base_version: BASE_VERSION,
            class: class::COMMUNICATION,
            class_version: CLASS_VERSION,
            method: method::SEND,
            transaction_id,
            attribute_id: self.kind().attribute(),
            ..MadHeader::default()
        };
        header.write(mad.first_chunk_mut().expect("a MAD is longer than its header"));
        self.write(
            mad[MAD_HEADER_LEN..]
                .first_chunk_mut()
                .expect("what follows the header"),
        );
        mad
    }

    /// The number by which its receiver knows the connection, if the sender knew it.
    pub const fn receiver_id(&self) -> Option<u32> {
        match self {
            Self::Req(_) | Self::SidrReq(_) => None,
            Self::Mra(message) => Some(message.remote_comm_id),
            Self::Rej(message) => Some(message.remote_comm_id),
            Self::Rep(message) => Some(message.remote_comm_id),
            Self::Rtu(message) => Some(message.remote_comm_id),
            Self::Dreq(message) => Some(message.remote_comm_id),
            Self::Drep(message) => Some(message.remote_comm_id),
            Self::Lap(message) => Some(message.remote_comm_id),
            Self::Apr(message) => Some(message.remote_comm_id),
            Self::SidrRep(message) => Some(message.request_id),
        }
    }
}

/// Where a message wants to go among the processes of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// To who listens on this service.
    Service(ServiceId),
    /// To who has given this number to a connection.
    Connection(u32),
}

/// Whom a datagram to queue pair 1 is for; `None` when it is no message of communication management, or does not say.
/// Looks at no more than it needs.
pub fn recipient(mad: &[u8]) -> Option<Recipient> {
    let whole: &[u8; MAD_LEN] = mad.try_into().ok()?;
    if whole[..4] != [BASE_VERSION, class::COMMUNICATION, CLASS_VERSION, method::SEND] {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes(*whole[at..].first_chunk().expect("well within a datagram"));
    let service = || ServiceId(u64::from(word(SERVICE_ID_AT)) << 32 | u64::from(word(SERVICE_ID_AT + 4)));
    let attribute = u16::from_be_bytes([whole[ATTRIBUTE_AT], whole[ATTRIBUTE_AT + 1]]);
    match MessageKind::from_attribute(attribute)? {
        MessageKind::Req | MessageKind::SidrReq => Some(Recipient::Service(service())),
        MessageKind::SidrRep => Some(Recipient::Connection(word(FIRST_ID_AT))),
        MessageKind::Mra
        | MessageKind::Rej
        | MessageKind::Rep
        | MessageKind::Rtu
        | MessageKind::Dreq
        | MessageKind::Drep
        | MessageKind::Lap
        | MessageKind::Apr => Some(Recipient::Connection(word(SECOND_ID_AT))),
    }
}

/// Where in a datagram the attribute ID stands.
pub const ATTRIBUTE_AT: usize = 16;
/// Where the first number of a message stands: the sender's, in a SIDR_REP the receiver's.
pub const FIRST_ID_AT: usize = MAD_HEADER_LEN;
/// Where the second number stands: the receiver's.
pub const SECOND_ID_AT: usize = MAD_HEADER_LEN + 4;
/// Where requests name the service.
const SERVICE_ID_AT: usize = MAD_HEADER_LEN + 8;

#[cfg(test)]
mod tests;
