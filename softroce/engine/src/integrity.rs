//! Whether a packet is as its sender made it: the ICRC, with the IPv4 identification that no socket shows.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use roce_wire::ROCE_V2_PORT;
use roce_wire::icrc::{Flow, FlowCrc, Verdict};

use crate::RxMeta;
use crate::mutants::{Mutant, is_on, wrong};

/// After so many packets with the identification expected, and no other between them, the peer numbers its packets as
/// we do. One that counts on from packet to packet meets an expected number once in 65,536.
const EXPECTED_IDS_ENOUGH: u8 = 4;
/// Packets that a kernel sends as one train at most, and numbers from 0 on.
const TRAIN_PACKETS_MAX: u16 = 128;

/// What was learnt of the packets between two addresses. The addresses are the caller's to keep the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integrity {
    /// The ICRC's state after the headers of the peer's packets, for the source port that it used last.
    crc: Option<(u16, FlowCrc)>,
    /// Packets in a row that had the IPv4 identification expected, up to [`EXPECTED_IDS_ENOUGH`], where it stays.
    expected_ids: u8,
}

impl Integrity {
    /// Whether the ICRC of a packet is right. The sender's kernel numbers the packets of a train 0, 1, 2, …
    pub(crate) fn holds(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> bool {
        // Over fewer bytes than the sender's it never matches.
        if is_on(Mutant::IcrcSkipsPad) && wrong::has_pad(udp_payload) {
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
            Verdict::ValidWithIpId(id) if id < TRAIN_PACKETS_MAX => true,
            Verdict::ValidWithIpId(_) if self.expected_ids < EXPECTED_IDS_ENOUGH => {
                self.expected_ids = 0;
                true
            }
            Verdict::ValidWithIpId(_) => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flow: &Flow, id: u16) -> [u8; 16] {
        let mut packet = [0; 16];
        packet[0] = 4;
        roce_wire::icrc::seal(flow, id, &mut packet);
        packet
    }

    fn meta() -> (RxMeta, Flow) {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let meta = RxMeta {
            src,
            dst,
            source_port: 49152,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        let flow = Flow {
            src,
            dst,
            source_port: 49152,
            dest_port: ROCE_V2_PORT,
        };
        (meta, flow)
    }

    #[test]
    fn a_peer_that_counts_its_packets_is_heard_however_often_the_count_begins_anew() {
        let (meta, flow) = meta();
        let packets: Vec<_> = (0..=u16::MAX).map(|id| packet(&flow, id)).collect();
        let mut integrity = Integrity::default();
        for round in 0..20 {
            for (id, packet) in packets.iter().enumerate() {
                assert!(
                    integrity.holds(&meta, packet),
                    "round {round}, identification {id}"
                );
            }
        }
    }

    #[test]
    fn a_peer_that_numbers_as_we_do_is_soon_held_to_it() {
        let (meta, flow) = meta();
        let mut integrity = Integrity::default();
        for _ in 0..EXPECTED_IDS_ENOUGH {
            assert!(integrity.holds(&meta, &packet(&flow, 0)));
        }
        assert!(!integrity.holds(&meta, &packet(&flow, TRAIN_PACKETS_MAX)));
        assert!(integrity.holds(&meta, &packet(&flow, TRAIN_PACKETS_MAX - 1)));
        assert!(!integrity.holds(&meta, &packet(&flow, u16::MAX)));
    }
}
