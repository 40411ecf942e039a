//! Packets that one member received for another.

use std::net::SocketAddr;

use softroce_engine::RxMeta;

use super::super::super::FabricCounters;
use super::super::super::control::Adopted;
use super::super::super::slice::{Destination, Slice, destination};
use super::super::super::sys::Datagram;
use super::Sink;

/// The `length` bytes of packets from byte `at` on, for another member.
pub(super) fn adopted<'a>(datagram: &Datagram<'a>, at: usize, length: usize) -> Adopted<'a> {
    Adopted {
        src: datagram.from.ip(),
        source_port: datagram.from.port(),
        traffic_class: datagram.traffic_class,
        hop_limit: datagram.hop_limit,
        segment_bytes: datagram.segment_bytes.min(length) as u16,
        first_segment: (at / datagram.segment_bytes) as u16,
        bytes: &datagram.bytes[at..at + length],
    }
}

/// Packets that another member received for us.
pub(super) struct Adoption {
    pub(super) own: SocketAddr,
    pub(super) slice: Slice,
}

impl Adoption {
    pub(super) fn deliver(
        &self,
        adopted: &Adopted<'_>,
        counters: &mut FabricCounters,
        sink: Sink<'_>,
    ) -> usize {
        let mut delivered = 0;
        for (step, packet) in (0u16..).zip(adopted.bytes.chunks(adopted.segment_bytes.into())) {
            // Passing on what is not ours either could go in circles.
            let is_ours = match destination(packet) {
                Destination::QueuePair(slice) => slice == self.slice,
                Destination::Service(_) => true,
                Destination::Reserved | Destination::Nowhere => false,
            };
            if !is_ours {
                counters.malformed += 1;
                continue;
            }
            let meta = RxMeta {
                src: adopted.src,
                dst: self.own.ip(),
                source_port: adopted.source_port,
                segment: adopted.first_segment.wrapping_add(step),
                traffic_class: adopted.traffic_class,
                hop_limit: adopted.hop_limit,
            };
            sink(&meta, packet);
            counters.adopted += 1;
            counters.received_datagrams += 1;
            counters.received_bytes += packet.len() as u64;
            delivered += 1;
        }
        delivered
    }
}
