//! Sealing packets: the ICRC covers the IP header that the packet will carry, so it is computed here.

use std::net::IpAddr;

use roce_wire::icrc::{Flow, FlowCrc};
use roce_wire::{BTH_LEN, ICRC_LEN, ROCE_V2_PORT};

/// Fewer bytes than these are no packet.
pub(super) const PACKET_BYTES_MIN: usize = BTH_LEN + ICRC_LEN;

/// Seals packets from one source address. It remembers the last flow, since packets to one peer come in bursts.
#[derive(Debug)]
pub(super) struct Sealer {
    src: IpAddr,
    dst: IpAddr,
    crc: FlowCrc,
}

impl Sealer {
    pub(super) fn new(src: IpAddr) -> Self {
        Sealer {
            src,
            dst: src,
            crc: flow_crc(src, src),
        }
    }

    /// Seal a run of packets of `segment_bytes` each (the last may be shorter) to `dst`. A packet that leaves alone
    /// carries the IPv4 identification 0, segment *i* of a train *i*.
    pub(super) fn seal_run(&mut self, dst: IpAddr, run: &mut [u8], segment_bytes: usize) {
        if dst != self.dst {
            self.dst = dst;
            self.crc = flow_crc(self.src, dst);
        }
        for (ip_id, packet) in (0..).zip(run.chunks_mut(segment_bytes)) {
            self.crc.seal(ip_id, packet);
        }
    }
}

fn flow_crc(src: IpAddr, dst: IpAddr) -> FlowCrc {
    FlowCrc::new(&Flow {
        src,
        dst,
        source_port: ROCE_V2_PORT,
        dest_port: ROCE_V2_PORT,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use roce_wire::icrc::{Verdict, verify};

    use super::*;

    #[test]
    fn segments_are_sealed_with_their_position_and_peers_may_alternate() {
        let src = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
        let mut sealer = Sealer::new(src);
        for last in [1, 9, 1] {
            let dst = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            let mut run = [7u8; 24 * 3 + 20];
            sealer.seal_run(dst, &mut run, 24);
            let flow = Flow {
                src,
                dst,
                source_port: 4791,
                dest_port: 4791,
            };
            for (ip_id, packet) in (0..).zip(run.chunks(24)) {
                assert_eq!(verify(&flow, &[ip_id], packet), Verdict::Valid);
            }
        }
    }
}
