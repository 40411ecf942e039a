//! What an analysis has found.

use std::fmt;
use std::net::IpAddr;

use roce_wire::Qpn;
use serde::Serialize;

use crate::connection::Counts;
use crate::finding::Finding;
use crate::reading::Service;

mod text;

/// How the reading of a capture ended.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Packets that the capture itself says it has lost ([`roce_wire::pcap::Reader::dropped`]).
    pub dropped: u64,
    /// Why it could not be read to its end.
    pub damage: Option<String>,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
}

impl End {
    pub(crate) fn of(address: IpAddr, qpn: Option<Qpn>) -> Self {
        End {
            address,
            qpn: qpn.map(Qpn::value),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.qpn {
            Some(qpn) => write!(f, "{} qp {qpn:#x}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// The verdict on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing was found.
    Conforms,
    /// Something was.
    Deviates,
    /// The capture lacks packets of it.
    None,
}

/// What was seen of a capture.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Frames in it.
    pub frames: u64,
    /// RoCEv2 packets.
    pub roce: u64,
    /// Those of them that are the second copy of one, as received.
    pub copies: u64,
    /// Packets with a wrong ICRC.
    pub wrong_icrc: u64,
    /// Datagrams to the port of RoCEv2 that are no packet.
    pub malformed: u64,
    /// Packets that are cut within their headers.
    pub cut_headers: u64,
    /// Datagrams that hold several packets.
    pub joined: u64,
    /// Congestion notifications.
    pub notifications: u64,
    /// Everything else.
    pub other: u64,
    /// Packets of connections beyond those that are judged.
    pub not_judged: u64,
    /// Packets that the capture says it has lost.
    pub dropped: u64,
    /// Why it could not be read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// The first packet's time, nanoseconds since 1970.
    pub first_ns: Option<u64>,
    /// The last packet's.
    pub last_ns: Option<u64>,
    /// What holds for all packets of an address.
    pub senders: Vec<SenderReport>,
    /// The connections, in the order of their first packets.
    pub connections: Vec<ConnectionReport>,
}

/// What was seen of an address.
#[derive(Clone, Debug, Serialize)]
pub struct SenderReport {
    /// Which.
    pub address: IpAddr,
    /// Packets from it.
    pub packets: u64,
    /// What holds for all of them.
    pub findings: Vec<Finding>,
}

/// A message of communication management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CmMessage {
    /// The frame that carries it.
    pub frame: u64,
    /// What it is.
    pub message: String,
}

/// What was seen of a connection, or of the datagrams to one queue pair.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// From 1.
    pub number: usize,
    /// Its transport service.
    pub service: Service,
    /// Messages of communication management, the first ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<CmMessage>,
    /// Its path MTU, where a First or Middle packet shows it.
    pub path_mtu: Option<usize>,
    /// The first packet's time, nanoseconds since 1970.
    pub first_ns: Option<u64>,
    /// The last packet's.
    pub last_ns: Option<u64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why the capture is incomplete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Kinds of findings that may come from what is missing, and are not told for that.
    pub withheld: usize,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Packets whose ICRC cannot be checked, since the capture has cut them.
    pub icrc_unknown: u64,
    /// Requests one way and their answers, and the other way round.
    pub directions: [DirectionReport; 2],
}

/// The requests of one end and the answers to them.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// The requester.
    pub from: End,
    /// The responder.
    pub to: End,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Report {
    /// All findings.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let of_senders = self.senders.iter().flat_map(|sender| &sender.findings);
        let of_connections = self
            .connections
            .iter()
            .flat_map(|connection| &connection.findings);
        of_senders.chain(of_connections)
    }

    /// How many connections have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let connections = self.connections.iter();
        connections
            .filter(|connection| connection.verdict == verdict)
            .count()
    }
}
