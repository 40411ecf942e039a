//! Slices of the queue pair number space: how processes that share an address divide it.
//!
//! The upper 8 of the 24 bits name the slice, so a packet says in one byte of its BTH whose it is. Slice 0 is nobody's
//! (QPN 0 and 1 have meanings of their own), and of each slice the first number is kept for control packets.

use std::ops::Range;

use roce_wire::cm::{self, Recipient, ServiceId};
use roce_wire::{ICRC_LEN, Opcode};

/// Slices, including number 0 which nobody owns.
pub(super) const SLICE_COUNT: usize = 256;
/// Queue pair numbers of a slice.
const SLICE_QPNS: u32 = 1 << 16;
/// The destination of what is sent to a group; no queue pair has it.
const MULTICAST_QPN: u32 = 0xff_ffff;
/// The number of queue pair 1 within slice 0.
const GSI: (u8, u8) = (0, 1);
/// Where a management datagram begins, behind BTH and DETH.
pub(super) const MAD_AT: usize = 20;
/// Where the destination QPN of a packet begins (within the BTH).
const DEST_QPN_AT: usize = 5;

/// A slice that somebody can own: 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice(u8);

impl Slice {
    /// `None` for slice 0.
    pub(super) fn new(number: u8) -> Option<Self> {
        (number != 0).then_some(Slice(number))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    /// All of them, beginning with one chosen by `seed`.
    pub(super) fn all_from(seed: u64) -> impl Iterator<Item = Slice> {
        let owned = SLICE_COUNT as u64 - 1;
        (0..owned).map(move |step| Slice(((seed % owned + step) % owned + 1) as u8))
    }

    /// The numbers that queue pairs of this slice may have. The last of all stands for groups.
    pub(super) fn qpns(self) -> Range<u32> {
        let start = u32::from(self.0) * SLICE_QPNS;
        start + 1..(start + SLICE_QPNS).min(MULTICAST_QPN)
    }
}

/// Where a packet wants to go, as far as the steering is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To a queue pair in this slice.
    QueuePair(Slice),
    /// To who listens on this service of RDMA CM.
    Service(ServiceId),
    /// To a number that no queue pair has: control packets, QPN 0 and 1, noise.
    Reserved,
    /// The bytes are too few for a destination.
    Nowhere,
}

/// The destination of a packet, by its BTH.
pub(super) fn destination(packet: &[u8]) -> Destination {
    let Some(&[slice, high, low]) = packet.get(DEST_QPN_AT..DEST_QPN_AT + 3) else {
        return Destination::Nowhere;
    };
    match Slice::new(slice) {
        Some(slice) if (high, low) != (0, 0) => Destination::QueuePair(slice),
        None if (high, low) == GSI && packet[0] == Opcode::UD_SEND_ONLY.value() => management(packet),
        Some(_) | None => Destination::Reserved,
    }
}

/// The destination of a datagram to queue pair 1: messages about a connection name the slice of its owner in the number
/// that the owner has given to it.
fn management(packet: &[u8]) -> Destination {
    let mad = packet
        .get(MAD_AT..)
        .and_then(|rest| rest.split_last_chunk::<ICRC_LEN>())
        .and_then(|(mad, _)| cm::recipient(mad));
    match mad {
        Some(Recipient::Service(service)) => Destination::Service(service),
        Some(Recipient::Connection(id)) => {
            Slice::new((id >> 24) as u8).map_or(Destination::Reserved, Destination::QueuePair)
        }
        None => Destination::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_divide_the_numbers_without_overlap_and_leave_the_special_ones_out() {
        let mut last = 0;
        for number in 1..=255 {
            let qpns = Slice::new(number).unwrap().qpns();
            assert!(qpns.start > last && qpns.start > 1);
            last = qpns.end - 1;
        }
        assert_eq!(last, 0xff_fffe);
        assert!(Slice::new(0).is_none());
    }

    #[test]
    fn every_slice_is_tried_once_from_any_start() {
        for seed in [0, 7, 254, 255, u64::MAX] {
            let mut seen = [false; SLICE_COUNT];
            for slice in Slice::all_from(seed) {
                assert!(!std::mem::replace(&mut seen[slice.index()], true));
            }
            assert_eq!(seen.iter().filter(|s| **s).count(), 255);
        }
    }

    #[test]
    fn the_destination_of_a_packet_is_read_from_its_bth() {
        let mut packet = [0u8; 16];
        assert_eq!(destination(&packet), Destination::Reserved);
        packet[5..8].copy_from_slice(&[9, 0, 0]);
        assert_eq!(destination(&packet), Destination::Reserved);
        packet[7] = 1;
        assert_eq!(destination(&packet), Destination::QueuePair(Slice(9)));
        assert_eq!(destination(&packet[..7]), Destination::Nowhere);
    }
}
