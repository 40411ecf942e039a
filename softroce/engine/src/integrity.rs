//! Whether a packet is as its sender made it: the ICRC, with the IPv4 identification that no socket shows.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use roce_wire::ROCE_V2_PORT;
use roce_wire::icrc::{Flow, FlowCrc, Verdict};

use crate::RxMeta;
use crate::mutants::{Mutant, is_on};

/// After so many packets with the identification expected, the peer numbers its packets as we do.
const EXPECTED_IDS_ENOUGH: u8 = 16;
/// Packets that a kernel sends as one train at most, and numbers from 0 on.
const TRAIN_PACKETS_MAX: u16 = 128;

/// What was learnt of the packets between two addresses. The addresses are the caller's to keep the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integrity {
    /// The ICRC's state after the headers of the peer's packets, for the source port that it used last.
    crc: Option<(u16, FlowCrc)>,
    /// Packets that had the IPv4 identification expected, up to [`EXPECTED_IDS_ENOUGH`].
    expected_ids: u8,
}

impl Integrity {
    /// Whether the ICRC of a packet is right. The sender's kernel numbers the packets of a train 0, 1, 2, …
    pub(crate) fn holds(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> bool {
        // Over fewer bytes than the sender's it never matches.
        let has_pad = || udp_payload.get(1).is_some_and(|bits| bits >> 4 & 3 != 0);
        if is_on(Mutant::IcrcSkipsPad) && has_pad() {
            return false;
        }
        let crc = match self.crc {
            Some((port, crc)) if port == meta.source_port => crc,
            Some(_) | None => {
                let flow = Flow {
                    src: meta.src,
                    dst: meta.dst,
                    source_port: meta.source_port,
                    dest_port: ROCE_V2_PORT,
                };
                let crc = FlowCrc::new(&flow);
                self.crc = Some((meta.source_port, crc));
                crc
            }
        };
        match crc.verify(&[meta.segment, 0], udp_payload) {
            Verdict::Valid => {
                self.expected_ids = EXPECTED_IDS_ENOUGH.min(self.expected_ids + 1);
                true
            }
            // Where the identification must be guessed, one damaged packet in 2^16 looks whole. A peer that has kept
            // to the expected numbers has its packets guessed only within what a train that came in pieces explains.
            Verdict::ValidWithIpId(id) => self.expected_ids < EXPECTED_IDS_ENOUGH || id < TRAIN_PACKETS_MAX,
            Verdict::Invalid => false,
        }
    }
}

/// Places for senders of datagrams, who have no connection to keep such things at.
const SENDERS: usize = 64;

/// The same for all who send datagrams here, as far as there is room: who comes to a place takes it over.
#[derive(Debug)]
pub(crate) struct Senders {
    places: [Option<(IpAddr, IpAddr, Integrity)>; SENDERS],
}

impl Senders {
    pub(crate) fn new() -> Self {
        Senders {
            places: [None; SENDERS],
        }
    }

    /// As [`Integrity::holds`], for a packet from anywhere.
    pub(crate) fn holds(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> bool {
        let place = &mut self.places[place_of(meta.src)];
        match place {
            Some((src, dst, integrity)) if *src == meta.src && *dst == meta.dst => {
                integrity.holds(meta, udp_payload)
            }
            Some(_) | None => {
                let mut integrity = Integrity::default();
                let holds = integrity.holds(meta, udp_payload);
                if holds {
                    *place = Some((meta.src, meta.dst, integrity));
                }
                holds
            }
        }
    }
}

/// Neighbours differ in their last byte.
fn place_of(address: IpAddr) -> usize {
    let last = match address {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    };
    usize::from(last) % SENDERS
}
