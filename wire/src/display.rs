//! Packets and frames as one line each, in the manner of tcpdump.

use std::fmt;
use std::net::SocketAddr;

use crate::frame::{self, Frame};
use crate::icrc::Verdict;
use crate::pcap::LinkType;
use crate::{Bth, Headers, PKey, Packet, ParseError};

impl fmt::Display for Bth {
    /// Opcode, destination, PSN, and every flag that is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} qp {} psn {}", self.opcode, self.dest_qp, self.psn)?;
        for (is_set, name) in [
            (self.ack_request, "ack-req"),
            (self.solicited, "solicited"),
            (self.migrated, "migrated"),
            (self.fecn, "fecn"),
            (self.becn, "becn"),
        ] {
            if is_set {
                write!(f, " {name}")?;
            }
        }
        if self.pkey != PKey::DEFAULT {
            write!(f, " pkey {}", self.pkey)?;
        }
        Ok(())
    }
}

impl fmt::Display for Headers {
    /// The BTH, then every extension header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bth)?;
        if let Some(xrceth) = &self.xrceth {
            write!(f, " srq {}", xrceth.srq)?;
        }
        if let Some(deth) = &self.deth {
            write!(f, " qkey {} from qp {}", deth.qkey, deth.source_qp)?;
        }
        if let Some(feth) = &self.feth {
            write!(f, " flush {} {}", feth.placement, feth.selectivity)?;
        }
        if let Some(reth) = &self.reth {
            write!(
                f,
                " va {:#x} rkey {} dma-length {}",
                reth.va, reth.rkey, reth.dma_length
            )?;
        }
        if let Some(atomic) = &self.atomic_eth {
            write!(f, " va {:#x} rkey {} ", atomic.va, atomic.rkey)?;
            write!(
                f,
                "swap-or-add {:#x} compare {:#x}",
                atomic.swap_or_add, atomic.compare
            )?;
        }
        if let Some(aeth) = &self.aeth {
            write!(f, " {} msn {}", aeth.syndrome, aeth.msn.value())?;
        }
        if let Some(atomic) = &self.atomic_ack {
            write!(f, " original {:#x}", atomic.original)?;
        }
        if let Some(immediate) = &self.immediate {
            write!(f, " imm {:#010x}", u32::from_be_bytes(immediate.0))?;
        }
        if let Some(invalidate) = &self.invalidate {
            write!(f, " invalidate {}", invalidate.0)?;
        }
        Ok(())
    }
}

impl fmt::Display for Packet<'_> {
    /// Headers, then payload and padding in bytes, and what the payload is if it is a message of communication management.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, payload {}", self.headers, self.payload.len())?;
        if !self.pad.is_empty() {
            write!(f, " pad {}", self.pad.len())?;
        }
        if let Some(message) = crate::cm::carried(&self.headers, self.payload) {
            write!(f, " ({message})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("icrc valid"),
            Self::ValidWithIpId(ip_id) => write!(f, "icrc valid with ip-id {ip_id:#06x}"),
            Self::Invalid => f.write_str("icrc INVALID"),
        }
    }
}

impl fmt::Display for Frame<'_> {
    /// Addresses, ports and UDP length; of a RoCEv2 packet also its headers and the ICRC's verdict.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = SocketAddr::new(self.ip.src(), self.udp.source_port);
        let dst = SocketAddr::new(self.ip.dst(), self.udp.dest_port);
        write!(
            f,
            "{src} > {dst} udp {}",
            crate::udp::UDP_LEN + self.payload.len()
        )?;
        if self.ip.traffic_class() != 0 {
            write!(f, " tos {:#04x}", self.ip.traffic_class())?;
        }
        if !self.is_roce() {
            return Ok(());
        }
        match self.packet() {
            Ok(packet) => write!(f, ": {packet}, {}", self.verdict()),
            Err(error) => write!(f, ": malformed: {error}"),
        }
    }
}

/// A captured packet on its way to be printed; made by [`describe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description<'a> {
    /// A UDP datagram.
    Frame(Frame<'a>),
    /// Something else, or something broken, and why.
    NotUdp(ParseError),
    /// A kind of link that this crate does not read.
    UnknownLink(LinkType),
}

/// What a captured packet is, in one line.
pub fn describe(link_type: LinkType, data: &[u8]) -> Description<'_> {
    let parsed = match link_type {
        LinkType::Ethernet => frame::parse_ethernet(data),
        LinkType::RawIp => frame::parse_ip(data),
        LinkType::Other(_) => return Description::UnknownLink(link_type),
    };
    match parsed {
        Ok(frame) => Description::Frame(frame),
        Err(error) => Description::NotUdp(error),
    }
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(frame) => frame.fmt(f),
            Self::NotUdp(error) => write!(f, "not RoCEv2: {error}"),
            Self::UnknownLink(link_type) => {
                write!(
                    f,
                    "not RoCEv2: link type {} (read are 1, Ethernet, and 101, raw IP)",
                    link_type.number()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
