use proptest::prelude::*;

use super::*;

/// A record with its parts owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    link_type: LinkType,
    timestamp_ns: Option<u64>,
    original_len: u32,
    data: Vec<u8>,
    comment: Option<String>,
}

/// All records, and how many blocks were skipped.
fn read(file: &[u8]) -> Result<(Vec<Kept>, u64), ReadError> {
    let mut reader = Reader::new(file)?;
    let mut kept = Vec::new();
    while let Some(record) = reader.next_record()? {
        kept.push(Kept {
            link_type: record.link_type,
            timestamp_ns: record.timestamp_ns,
            original_len: record.original_len,
            data: record.data.to_vec(),
            comment: record.comment.map(str::to_owned),
        });
    }
    Ok((kept, reader.skipped_blocks()))
}

fn error(file: &[u8]) -> String {
    read(file).unwrap_err().to_string()
}

#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }

    /// A classic pcap with one packet of three bytes, at 5 s and 7 units.
    fn classic(self, magic: u32) -> Vec<u8> {
        let mut file = self.u32(magic).to_vec();
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        file.extend(self.words(&[0, 0, 65535, 101, 5, 7, 3, 60]));
        file.extend(b"abc");
        file
    }

    fn block(self, block_type: u32, body: &[u8]) -> Vec<u8> {
        let len = self.u32(body.len() as u32 + 12);
        [&self.u32(block_type)[..], &len, body, &len].concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link_type: u16, snap_len: u32, options: &[u8]) -> Vec<u8> {
        self.block(
            1,
            &[&self.u16(link_type)[..], &[0; 2], &self.u32(snap_len), options].concat(),
        )
    }

    fn packet(self, interface: u32, ticks: u64, data: &[u8], options: &[u8]) -> Vec<u8> {
        let len = data.len() as u32;
        let mut body = self.words(&[interface, (ticks >> 32) as u32, ticks as u32, len, len + 10]);
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(options);
        self.block(6, &body)
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.u16(code), self.u16(value.len() as u16)].concat();
        option.extend(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }
}

#[test]
fn classic_files_of_both_orders_and_resolutions_are_read() {
    for order in [Order::Little, Order::Big] {
        for (magic, timestamp_ns) in [(0xa1b2_c3d4, 5_000_007_000), (0xa1b2_3c4d, 5_000_000_007)] {
            let expected = Kept {
                link_type: LinkType::RawIp,
                timestamp_ns: Some(timestamp_ns),
                original_len: 60,
                data: b"abc".to_vec(),
                comment: None,
            };
            assert_eq!(read(&order.classic(magic)).unwrap(), (vec![expected], 0));
        }
    }
}

#[test]
fn pcapng_of_both_orders_is_read() {
    for order in [Order::Little, Order::Big] {
        let offset_s = match order {
            Order::Little => 100_i64.to_le_bytes(),
            Order::Big => 100_i64.to_be_bytes(),
        };
        let binary_ms = [
            order.option(9, &[0x80 | 10]),
            order.option(14, &offset_s),
            order.option(0, &[]),
        ]
        .concat();
        let comment = [
            order.option(7, b"x"),
            order.option(1, b"why"),
            order.option(0, &[]),
        ]
        .concat();
        let file = [
            order.section(),
            order.interface(1, 0, &[]),
            order.interface(101, 4, &binary_ms),
            order.block(0x0bad, &[0; 8]),
            order.packet(0, 0x1_0000_0002, b"12345", &[]),
            order.packet(1, 1536, b"abcd", &comment),
            order.section(),
            order.interface(101, 4, &[]),
            order.block(3, &[&order.u32(9)[..], b"efgh"].concat()),
        ]
        .concat();
        let (records, skipped) = read(&file).unwrap();
        let kept = |link_type, timestamp_ns, original_len, data: &[u8], comment: Option<&str>| Kept {
            link_type,
            timestamp_ns,
            original_len,
            data: data.to_vec(),
            comment: comment.map(str::to_owned),
        };
        assert_eq!(
            records,
            [
                kept(LinkType::Ethernet, Some(0x1_0000_0002 * 1000), 15, b"12345", None),
                kept(LinkType::RawIp, Some(101_500_000_000), 14, b"abcd", Some("why")),
                kept(LinkType::RawIp, None, 9, b"efgh", None),
            ]
        );
        assert_eq!(skipped, 1);
    }
}

#[test]
fn what_is_written_is_read_again() {
    let packets: [(u64, &[u8], Option<&str>); 4] = [
        (1_700_000_000_123_456_789, b"first", Some("retransmitted")),
        (1_700_000_000_123_456_790, b"", None),
        (u64::from(u32::MAX) * 1_000_000_000, &[7; 9000], Some("")),
        (0, b"abcd", Some("Überholt")),
    ];
    let mut writer = NgWriter::new(Vec::new(), LinkType::RawIp).unwrap();
    let mut classic = ClassicWriter::new(Vec::new(), LinkType::Ethernet, Resolution::Nanos).unwrap();
    let mut micros = ClassicWriter::new(Vec::new(), LinkType::Ethernet, Resolution::Micros).unwrap();
    for (timestamp_ns, data, comment) in packets {
        writer.write(timestamp_ns, data, comment).unwrap();
        classic.write(timestamp_ns, data).unwrap();
        micros.write(timestamp_ns, data).unwrap();
    }
    let expected = |link_type, resolution_ns: u64, has_comments: bool| {
        let kept = packets.map(|(timestamp_ns, data, comment)| Kept {
            link_type,
            timestamp_ns: Some(timestamp_ns / resolution_ns * resolution_ns),
            original_len: data.len() as u32,
            data: data.to_vec(),
            comment: comment.filter(|_| has_comments).map(str::to_owned),
        });
        (kept.to_vec(), 0)
    };
    assert_eq!(
        read(&writer.into_inner()).unwrap(),
        expected(LinkType::RawIp, 1, true)
    );
    assert_eq!(
        read(&classic.into_inner()).unwrap(),
        expected(LinkType::Ethernet, 1, false)
    );
    assert_eq!(
        read(&micros.into_inner()).unwrap(),
        expected(LinkType::Ethernet, 1000, false)
    );
}

#[test]
fn the_direction_of_a_packet_is_written_and_read_again() {
    let directions = [Some(Direction::Inbound), None, Some(Direction::Outbound)];
    let mut writer = NgWriter::new(Vec::new(), LinkType::RawIp).unwrap();
    for direction in directions {
        writer.write_directed(1, b"abc", direction, Some("way")).unwrap();
        writer.write_directed(2, b"abcd", direction, None).unwrap();
    }
    let file = writer.into_inner();
    let mut reader = Reader::new(&file[..]).unwrap();
    for direction in directions {
        for comment in [Some("way"), None] {
            let record = reader.next_record().unwrap().expect("six packets");
            assert_eq!((record.direction, record.comment), (direction, comment));
        }
    }
    assert!(reader.next_record().unwrap().is_none());
    assert_eq!(reader.dropped(), 0);
}

#[test]
fn drops_of_statistics_and_packets_are_added_up_over_interfaces_and_sections() {
    for order in [Order::Little, Order::Big] {
        let number = |value: u64| match order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        };
        let statistics = |interface: u32, dropped: u64, by_system: u64| {
            let mut body = order.words(&[interface, 0, 0]);
            body.extend(order.option(5, &number(dropped)));
            body.extend(order.option(7, &number(by_system)));
            order.block(5, &body)
        };
        let file = [
            order.section(),
            order.interface(1, 0, &[]),
            order.interface(1, 0, &[]),
            statistics(0, 1, 2),
            // The counts are totals: the last one holds.
            statistics(0, 4, 2),
            statistics(1, 10, 0),
            // Of no interface, and too short.
            statistics(7, 1000, 0),
            order.block(5, &[0; 8]),
            order.packet(0, 1, b"x", &order.option(4, &number(100))),
            order.section(),
            order.interface(1, 0, &[]),
            statistics(0, 0, 1000),
        ]
        .concat();
        let mut reader = Reader::new(&file[..]).unwrap();
        assert!(reader.next_record().unwrap().is_some());
        assert_eq!(reader.dropped(), 116);
        assert!(reader.next_record().unwrap().is_none());
        assert_eq!(reader.dropped(), 1116);
    }
}

#[test]
fn what_is_no_capture_is_named_so() {
    assert_eq!(
        error(b"\x7fELF...."),
        "the file begins with [7f, 45, 4c, 46], which is neither pcap nor pcapng"
    );
    assert_eq!(error(b""), "the file is empty, so it is neither pcap nor pcapng");
}

#[test]
fn a_file_that_ends_early_gives_its_whole_packets_and_then_an_error() {
    let file = Order::Little.classic(0xa1b2_c3d4);
    let mut twice = [&file[..], &file[24..]].concat();
    twice.truncate(twice.len() - 1);
    let mut reader = Reader::new(&twice[..]).unwrap();
    assert!(matches!(reader.next_record(), Ok(Some(_))));
    let error = reader.next_record().unwrap_err().to_string();
    assert_eq!(
        error,
        "the capture ends inside the packet at byte 43: it needs 3 bytes, 2 are there"
    );
    assert!(matches!(reader.next_record(), Ok(None)));
}

#[test]
fn an_absurd_length_is_refused_before_memory_is_taken() {
    let mut file = Order::Little.classic(0xa1b2_c3d4);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let expected = "the length of the packet at byte 24 is 4294967295, must be at most 262144 bytes";
    assert_eq!(error(&file), expected);

    let order = Order::Big;
    let mut file = [order.section(), order.block(6, &[0; 20])].concat();
    file[32..36].copy_from_slice(&order.u32(0x7fff_fffc));
    assert_eq!(
        error(&file),
        "the length of the block at byte 28 is 2147483632, must be at most 1048576 bytes"
    );
}

#[test]
fn damaged_blocks_are_refused() {
    let order = Order::Little;
    let packet = order.packet(0, 0, b"abcd", &[]);
    assert_eq!(
        error(&[order.section(), packet.clone()].concat()),
        "the interface of the packet at byte 28 is 0, must be one that the section has described"
    );
    let mut file = [order.section(), order.interface(1, 0, &[]), packet].concat();
    let end = file.len() - 4;
    file[end] ^= 4;
    assert_eq!(
        error(&file),
        "the length after the block at byte 48 is 32, must be the one before it"
    );
    file[52] = 37;
    assert_eq!(
        error(&file),
        "the length of the block at byte 48 is 37, must be a multiple of 4, at least 12"
    );
    let mut second_version = order.section();
    second_version[12] = 2;
    assert_eq!(
        error(&second_version),
        "the major version of pcapng at byte 0 is 2, must be 1"
    );
}

#[test]
fn interfaces_without_end_are_refused() {
    let order = Order::Little;
    let mut file = order.section();
    for _ in 0..=MAX_INTERFACES {
        file.extend(order.interface(1, 0, &[]));
    }
    assert!(error(&file).contains("number of interfaces"));
}

#[test]
fn a_packet_too_long_for_a_capture_is_not_written() {
    let mut writer = NgWriter::new(Vec::new(), LinkType::RawIp).unwrap();
    let error = writer
        .write(0, &vec![0; MAX_PACKET_LEN as usize + 1], None)
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let comment = "x".repeat(65_536);
    assert!(writer.write(0, b"", Some(&comment)).is_err());
}

proptest! {
    #[test]
    fn reading_hostile_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..256), kind in 0..4) {
        let start = match kind {
            0 => Order::Little.section(),
            1 => [Order::Big.section(), Order::Big.interface(1, 0, &[])].concat(),
            2 => Order::Little.classic(0xa1b2_c3d4),
            _ => Vec::new(),
        };
        let _ = read(&[start, bytes].concat());
    }

    #[test]
    fn reading_a_damaged_file_ends(at: proptest::sample::Index, byte: u8, cut: proptest::sample::Index) {
        let order = Order::Little;
        let options = order.option(1, b"comment");
        let mut file =
            [order.section(), order.interface(1, 0, &options), order.packet(0, 9, b"abc", &options)].concat();
        let at = at.index(file.len());
        file[at] = byte;
        let cut = cut.index(file.len());
        let _ = read(&file[..cut]);
        let _ = read(&file);
    }
}
