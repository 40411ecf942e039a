use proptest::prelude::*;

use super::*;

const LONGEST: usize = 28;

#[test]
fn headers_of_counting_bytes_print_as_recorded() {
    let counting: Vec<u8> = (0..LONGEST as u8).collect();
    let printed: Vec<String> = views_of(&counting).into_iter().map(|(text, _)| text).collect();
    let recorded = [
        "Bth { opcode: 0x00, flags: 0x01, pkey: 0x0203, congestion: 0x04, dest_qp: 0x050607, ack: 0x08, psn: 0x090a0b }",
        "Feth { bits: 0x00010203 }",
        "Reth { va: 0x0001020304050607, rkey: 0x08090a0b, dma_length: 0x0c0d0e0f }",
        "Aeth { syndrome: 0x00, msn: 0x010203 }",
        "AtomicEth { va: 0x0001020304050607, rkey: 0x08090a0b, swap_or_add: 0x0c0d0e0f10111213, compare: 0x1415161718191a1b }",
        "AtomicAckEth { original: 0x0001020304050607 }",
        "ImmDt { data: 0x00010203 }",
        "Ieth { rkey: 0x00010203 }",
        "Deth { qkey: 0x00010203, reserved: 0x04, source_qp: 0x050607 }",
        "XrcEth { reserved: 0x00, srq: 0x010203 }",
    ];
    assert_eq!(printed, recorded);
}

#[test]
fn headers_of_all_ones_print_as_recorded() {
    let printed: Vec<String> = views_of(&[0xff; LONGEST])
        .into_iter()
        .map(|(text, _)| text)
        .collect();
    let recorded = [
        "Bth { opcode: 0xff, flags: 0xff, pkey: 0xffff, congestion: 0xff, dest_qp: 0xffffff, ack: 0xff, psn: 0xffffff }",
        "Feth { bits: 0xffffffff }",
        "Reth { va: 0xffffffffffffffff, rkey: 0xffffffff, dma_length: 0xffffffff }",
        "Aeth { syndrome: 0xff, msn: 0xffffff }",
        "AtomicEth { va: 0xffffffffffffffff, rkey: 0xffffffff, swap_or_add: 0xffffffffffffffff, compare: 0xffffffffffffffff }",
        "AtomicAckEth { original: 0xffffffffffffffff }",
        "ImmDt { data: 0xffffffff }",
        "Ieth { rkey: 0xffffffff }",
        "Deth { qkey: 0xffffffff, reserved: 0xff, source_qp: 0xffffff }",
        "XrcEth { reserved: 0xff, srq: 0xffffff }",
    ];
    assert_eq!(printed, recorded);
}

#[test]
fn a_header_does_not_fit_in_one_byte_less_than_its_length() {
    assert!(Bth::split_from(&[0; Bth::LEN - 1]).is_none());
    assert!(AtomicEth::split_from(&[0; AtomicEth::LEN - 1]).is_none());
}

proptest! {
    #[test]
    fn a_view_keeps_every_bit(bytes in proptest::collection::vec(any::<u8>(), LONGEST)) {
        for (_, kept) in views_of(&bytes) {
            prop_assert_eq!(&kept[..], &bytes[..kept.len()]);
        }
    }
}
