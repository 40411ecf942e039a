//! Which packets a rule is about.

use std::net::IpAddr;

use roce_wire::{Headers, Syndrome};

use crate::{Numbers, OpcodeSet, Seen};

/// Which way a packet passes the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// It is sent here.
    #[default]
    Out,
    /// It arrives here.
    In,
}

/// What an acknowledgement must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyndromeKind {
    /// Yes.
    Ack,
    /// Not ready.
    Rnr,
    /// No.
    Nak,
}

/// Which packets match: all conditions must hold. The default is every packet that is sent here.
///
/// Packets are taken where they are sent unless told otherwise: with the same rules at both ends, each is then seen
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// Which way.
    pub direction: Direction,
    /// From or to this address.
    pub peer: Option<IpAddr>,
    /// To these queue pairs (BTH).
    pub qpn: Numbers,
    /// These opcodes.
    pub opcode: OpcodeSet,
    /// With an acknowledgement header that says so.
    pub syndrome: Option<SyndromeKind>,
    /// These PSNs.
    pub psn: Numbers,
    /// So far behind the first PSN that was seen of the flow; see [`Seen`].
    pub psn_from_start: Numbers,
    /// So far behind the first PSN of the message.
    pub psn_in_message: Numbers,
    /// PSNs that are seen so often now: 1 is the first time, 2 the first retransmission.
    pub transmission: Numbers,
    /// Bytes of UDP payload, BTH to ICRC.
    pub size: Numbers,
}

impl Select {
    /// Every packet that passes this way.
    pub fn every(direction: Direction) -> Select {
        Select {
            direction,
            ..Select::default()
        }
    }

    /// Packets of these opcodes that are sent here.
    pub fn opcode(opcode: OpcodeSet) -> Select {
        Select {
            opcode,
            ..Select::default()
        }
    }

    /// Whether it asks for what only the packets before can tell.
    pub(crate) fn asks_for_past(&self) -> bool {
        !(self.psn_from_start.is_any() && self.psn_in_message.is_any() && self.transmission.is_any())
    }

    /// Whether a packet matches. One whose headers cannot be read has only a direction, a peer and a size.
    pub(crate) fn matches(
        &self,
        direction: Direction,
        peer: IpAddr,
        headers: Option<&Headers>,
        seen: &Seen,
        size: usize,
    ) -> bool {
        if self.direction != direction
            || self.peer.is_some_and(|wanted| wanted != peer.to_canonical())
            || !self.size.contains(size as u64)
        {
            return false;
        }
        let Some(headers) = headers else {
            return self.asks_nothing_of_headers();
        };
        let bth = &headers.bth;
        self.qpn.contains(bth.dest_qp.value().into())
            && self.opcode.contains(bth.opcode)
            && self.syndrome.is_none_or(|kind| kind.is_in(headers))
            && self.psn.contains(bth.psn.value().into())
            && self.psn_from_start.contains(seen.from_start.into())
            && self.psn_in_message.contains(seen.in_message.into())
            && self.transmission.contains(seen.transmission.into())
    }

    fn asks_nothing_of_headers(&self) -> bool {
        self.qpn.is_any()
            && self.opcode == OpcodeSet::ANY
            && self.syndrome.is_none()
            && self.psn.is_any()
            && !self.asks_for_past()
    }
}

impl SyndromeKind {
    fn is_in(self, headers: &Headers) -> bool {
        let Some(aeth) = &headers.aeth else { return false };
        match aeth.syndrome {
            Syndrome::Ack(_) => self == SyndromeKind::Ack,
            Syndrome::RnrNak(_) => self == SyndromeKind::Rnr,
            Syndrome::Nak(_) => self == SyndromeKind::Nak,
            Syndrome::Reserved(_) => false,
        }
    }
}
