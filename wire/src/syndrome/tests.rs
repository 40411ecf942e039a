use super::*;

#[test]
fn every_rnr_timer_code_waits_as_the_specification_says() {
    let micros: Vec<u64> = (0..32)
        .map(|code| RnrTimer::new(code).unwrap().nanos() / 1000)
        .collect();
    let expected = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
        5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760,
        327_680, 491_520,
    ];
    assert_eq!(micros, expected);
    assert_eq!(RnrTimer::new(32), None);
}

#[test]
fn every_credit_code_counts_as_the_specification_says() {
    let credits: Vec<Option<u32>> = (0..32)
        .map(|code| CreditCode::new(code).unwrap().credits())
        .collect();
    let expected = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    assert_eq!(credits[..31], expected.map(Some));
    assert_eq!(credits[31], None);
    assert_eq!(CreditCode::new(32), None);
}

#[test]
fn a_count_is_never_promised_in_excess() {
    for (count, code) in [
        (0, 0),
        (1, 1),
        (5, 4),
        (6, 5),
        (7, 5),
        (32767, 0x1d),
        (32768, 0x1e),
        (u32::MAX, 0x1e),
    ] {
        assert_eq!(CreditCode::from_count(count).code(), code, "{count}");
    }
}

#[test]
fn every_syndrome_byte_survives_the_round_trip() {
    for byte in 0..=255 {
        assert_eq!(Syndrome::new(byte).value(), byte);
    }
}

#[test]
fn syndromes_read_as_the_specification_says() {
    assert_eq!(Syndrome::new(0x1f), Syndrome::ACK);
    assert_eq!(Syndrome::new(0x00), Syndrome::Ack(CreditCode(0)));
    assert_eq!(Syndrome::new(0x2e), Syndrome::RnrNak(RnrTimer(0x0e)));
    assert_eq!(Syndrome::new(0x60), Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(Syndrome::new(0x61), Syndrome::Nak(NakCode::InvalidRequest));
    assert_eq!(Syndrome::new(0x62), Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(Syndrome::new(0x63), Syndrome::Nak(NakCode::RemoteOperational));
    assert_eq!(Syndrome::new(0x64), Syndrome::Nak(NakCode::InvalidRd));
    assert_eq!(Syndrome::new(0x65), Syndrome::Nak(NakCode::Reserved(5)));
    assert_eq!(Syndrome::new(0x40), Syndrome::Reserved(0x40));
    assert_eq!(Syndrome::new(0x80), Syndrome::Reserved(0x80));
}

#[test]
fn syndromes_print_their_meaning() {
    assert_eq!(Syndrome::ACK.to_string(), "ack");
    assert_eq!(Syndrome::new(0x04).to_string(), "ack credits 4");
    assert_eq!(Syndrome::new(0x2e).to_string(), "rnr-nak 1.28 ms");
    assert_eq!(Syndrome::new(0x21).to_string(), "rnr-nak 0.01 ms");
    assert_eq!(Syndrome::new(0x62).to_string(), "nak remote-access");
}
