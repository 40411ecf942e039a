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

/// Some of the slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SliceSet {
    bits: [u64; SLICE_COUNT / 64],
}

/// Bytes of a set that travels.
pub(super) const SLICE_SET_BYTES: usize = SLICE_COUNT / 8;

impl SliceSet {
    pub(super) const EMPTY: SliceSet = SliceSet {
        bits: [0; SLICE_COUNT / 64],
    };

    pub(super) fn contains(&self, slice: Slice) -> bool {
        self.bits[slice.index() / 64] >> (slice.index() % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, slice: Slice) {
        self.bits[slice.index() / 64] |= 1 << (slice.index() % 64);
    }

    pub(super) fn remove(&mut self, slice: Slice) {
        self.bits[slice.index() / 64] &= !(1 << (slice.index() % 64));
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == SliceSet::EMPTY
    }

    pub(super) fn count(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn to_bytes(self) -> [u8; SLICE_SET_BYTES] {
        let mut bytes = [0; SLICE_SET_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.bits) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; SLICE_SET_BYTES]) -> Self {
        let mut set = SliceSet::EMPTY;
        for (word, place) in set.bits.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*place);
        }
        // Number 0 is nobody's.
        set.bits[0] &= !1;
        set
    }
}

impl FromIterator<Slice> for SliceSet {
    fn from_iter<I: IntoIterator<Item = Slice>>(slices: I) -> Self {
        let mut set = SliceSet::EMPTY;
        slices.into_iter().for_each(|slice| set.insert(slice));
        set
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
    fn a_set_of_slices_comes_back_as_it_was_and_never_holds_number_0() {
        let set: SliceSet = [1, 63, 64, 255].map(Slice).into_iter().collect();
        assert_eq!(SliceSet::from_bytes(&set.to_bytes()), set);
        assert_eq!(
            (set.count(), set.contains(Slice(64)), set.contains(Slice(65))),
            (4, true, false)
        );
        let all = SliceSet::from_bytes(&[0xff; SLICE_SET_BYTES]);
        assert_eq!(all, Slice::all_from(0).collect());
        let mut none = all;
        Slice::all_from(0).for_each(|slice| none.remove(slice));
        assert!(none.is_empty());
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
