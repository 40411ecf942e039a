//! The base transport header as a value.

use crate::{EmitError, Layer, Opcode, PKey, ParseError, Psn, Qpn, raw};

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const VERSION_MASK: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

/// Base transport header: the first twelve bytes of every packet.
///
/// The transport version is 0 and reserved bits are sent as 0; received ones are ignored (IBA 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// Solicited event: the receive completion of this message wakes a channel armed for solicited ones.
    pub solicited: bool,
    /// Migration state: set while path migration is not armed, hence always by us.
    pub migrated: bool,
    /// Bytes added after the payload to make it a multiple of four, 0 to 3.
    pub pad: u8,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// The responder must acknowledge this packet at once.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header in the default partition, migrated, with all else off.
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }

    /// From a view that begins at byte `offset` of the caller's bytes.
    ///
    /// # Errors
    /// A transport version other than 0 (a receiver drops such packets silently).
    pub fn from_view(view: &raw::Bth, offset: usize) -> Result<Self, ParseError> {
        let version = view.flags & VERSION_MASK;
        if version != 0 {
            return Err(ParseError::Invalid {
                layer: Layer::Bth,
                offset,
                field: "transport version",
                value: version.into(),
                expected: "0",
            });
        }
        Ok(Self {
            opcode: Opcode::new(view.opcode),
            solicited: view.flags & SOLICITED != 0,
            migrated: view.flags & MIGRATED != 0,
            pad: (view.flags >> 4) & 3,
            pkey: PKey(view.pkey.get()),
            fecn: view.congestion & FECN != 0,
            becn: view.congestion & BECN != 0,
            dest_qp: Qpn::from_field(view.dest_qp.get()),
            ack_request: view.ack & ACK_REQUEST != 0,
            psn: Psn::new(view.psn.get()),
        })
    }

    /// The header's bytes, as a view.
    ///
    /// # Errors
    /// A pad count above 3.
    pub fn to_view(&self) -> Result<raw::Bth, EmitError> {
        if self.pad > 3 {
            return Err(EmitError::Pad(self.pad));
        }
        let bit = |is_set: bool, mask: u8| if is_set { mask } else { 0 };
        Ok(raw::Bth {
            opcode: self.opcode.value(),
            flags: bit(self.solicited, SOLICITED) | bit(self.migrated, MIGRATED) | (self.pad << 4),
            pkey: self.pkey.0.into(),
            congestion: bit(self.fecn, FECN) | bit(self.becn, BECN),
            dest_qp: raw::U24::new(self.dest_qp.value()),
            ack: bit(self.ack_request, ACK_REQUEST),
            psn: raw::U24::new(self.psn.value()),
        })
    }
}
