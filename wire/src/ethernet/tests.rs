use super::*;

const DST: [u8; 6] = [1, 2, 3, 4, 5, 6];
const SRC: [u8; 6] = [7, 8, 9, 10, 11, 12];

#[test]
fn a_header_is_read_with_and_without_a_vlan_tag() {
    let plain = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x00, 0xaa];
    assert_eq!(
        Ethernet::parse(&plain),
        Ok((
            Ethernet {
                dst: DST,
                src: SRC,
                vlan: None
            },
            0x0800,
            &[0xaa][..]
        ))
    );
    let tagged = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0x00, 0x60, 0x07, 0x86, 0xdd, 0xaa,
    ];
    let header = Ethernet {
        dst: DST,
        src: SRC,
        vlan: Some(0x6007),
    };
    assert_eq!(Ethernet::parse(&tagged), Ok((header, 0x86dd, &[0xaa][..])));
    let mut out = [0; 18];
    header.write(0x86dd, &mut out);
    assert_eq!(out, tagged[..18]);
}

#[test]
fn a_header_cut_short_is_refused() {
    let tagged = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0x00, 0x60, 0x07, 0x86,
    ];
    let message = |bytes: &[u8]| Ethernet::parse(bytes).unwrap_err().to_string();
    assert_eq!(
        message(&tagged[..13]),
        "Ethernet at byte 0 needs 14 bytes, 13 are there"
    );
    assert_eq!(
        message(&tagged),
        "Ethernet at byte 0 needs 18 bytes, 17 are there"
    );
}
