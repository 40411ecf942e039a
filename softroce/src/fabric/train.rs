//! Which packets of a batch leave together.
//!
//! The kernel sends a run of packets in one go when all but the last have one size, go one way and carry the same IP
//! fields. A train goes to one socket at the other end, so it must also not mix destination slices.

use softroce_engine::{Path, TxBatch, TxPacket};

use super::slice;

/// UDP payload of the largest train: what one IP packet holds, less the largest headers.
const TRAIN_BYTES_MAX: u32 = 65_493;

/// A run of consecutive packets of a batch that leave together; a single packet is a run of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Number of its first packet in the batch.
    pub(super) first: usize,
    /// How many packets.
    pub(super) count: usize,
}

/// The run that begins with packet `first`, of at most `segments_max` packets.
pub(super) fn run_from(batch: &TxBatch, first: usize, segments_max: usize) -> Run {
    let packets = &batch.packets()[first..];
    let lead = &packets[0];
    let mut count = 1;
    let mut bytes = lead.len;
    for packet in packets.iter().take(segments_max).skip(1) {
        bytes += packet.len;
        if bytes > TRAIN_BYTES_MAX || !may_follow(batch, lead, packet) {
            break;
        }
        count += 1;
        if packet.len < lead.len {
            break;
        }
    }
    Run { first, count }
}

fn may_follow(batch: &TxBatch, lead: &TxPacket, packet: &TxPacket) -> bool {
    packet.len <= lead.len
        && is_one_way(&packet.path, &lead.path)
        && slice::destination(batch.bytes(packet)) == slice::destination(batch.bytes(lead))
}

/// Whether packets on these paths leave with the same addresses and IP fields. The source port that the engine suggests
/// is not looked at: it differs from queue pair to queue pair, and all packets leave from the one socket.
fn is_one_way(a: &Path, b: &Path) -> bool {
    let fields = |path: &Path| (path.dst, path.src, path.traffic_class, path.hop_limit);
    fields(a) == fields(b)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn path(last: u8) -> Path {
        let ip = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        Path {
            src: ip(1),
            dst: ip(last),
            source_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
        }
    }

    /// A batch of packets given as (length, slice, last octet of the destination).
    fn batch(packets: &[(usize, u8, u8)]) -> TxBatch {
        let mut batch = TxBatch::new(1 << 20, 1000);
        for (len, slice, to) in packets {
            let bytes = batch.push(path(*to), *len).unwrap();
            bytes.fill(0);
            bytes[5] = *slice;
            bytes[7] = 1;
        }
        batch
    }

    fn counts(batch: &TxBatch, segments_max: usize) -> Vec<usize> {
        let mut counts = Vec::new();
        let mut first = 0;
        while first < batch.packets().len() {
            let run = run_from(batch, first, segments_max);
            counts.push(run.count);
            first += run.count;
        }
        counts
    }

    #[test]
    fn equal_packets_leave_together_and_a_shorter_one_ends_the_train() {
        assert_eq!(
            counts(&batch(&[(100, 1, 1), (100, 1, 1), (60, 1, 1), (60, 1, 1)]), 64),
            [3, 1]
        );
        assert_eq!(
            counts(&batch(&[(60, 1, 1), (100, 1, 1), (100, 1, 1)]), 64),
            [1, 2]
        );
    }

    #[test]
    fn a_train_has_one_destination_address_and_one_slice() {
        assert_eq!(counts(&batch(&[(40, 1, 1), (40, 1, 2), (40, 1, 2)]), 64), [1, 2]);
        assert_eq!(counts(&batch(&[(40, 1, 1), (40, 2, 1), (40, 2, 1)]), 64), [1, 2]);
    }

    #[test]
    fn queue_pairs_to_one_process_share_a_train() {
        let mut batch = TxBatch::new(1 << 16, 10);
        for source_port in [0xc001, 0xc002, 0xc003] {
            let path = Path {
                source_port,
                ..path(1)
            };
            batch.push(path, 40).unwrap().fill(1);
        }
        assert_eq!(counts(&batch, 64), [3]);
    }

    #[test]
    fn other_ip_fields_begin_a_new_train() {
        let mut batch = TxBatch::new(1 << 16, 10);
        for (class, limit) in [(0, 64), (0, 64), (8, 64), (8, 63)] {
            let path = Path {
                traffic_class: class,
                hop_limit: limit,
                ..path(1)
            };
            batch.push(path, 40).unwrap().fill(1);
        }
        assert_eq!(counts(&batch, 64), [2, 1, 1]);
    }

    #[test]
    fn trains_end_at_the_limits_of_segments_and_of_bytes() {
        assert_eq!(counts(&batch(&[(28, 1, 1); 130]), 64), [64, 64, 2]);
        assert_eq!(counts(&batch(&[(4116, 1, 1); 16]), 64), [15, 1]);
        assert_eq!(counts(&batch(&[(28, 1, 1); 3]), 1), [1, 1, 1]);
    }
}
