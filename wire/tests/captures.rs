//! Every frame of the captures of the kernel's rxe: RoCEv2 is read, written again byte for byte and has a valid
//! ICRC; everything else is counted and kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use roce_wire::frame::Frame;
use roce_wire::icrc::{self, Verdict};
use roce_wire::ip::Ip;
use roce_wire::pcap::{ClassicWriter, LinkType, Reader, Resolution};
use roce_wire::{Description, describe, udp};

/// Folder or file under `tests/data/pcaps`, and its RoCEv2 frames.
const ROCE_FRAMES: [(&str, usize); 5] = [
    ("golden-1024", 150),
    ("golden-4096", 148),
    ("interop-host-guest.pcap", 5),
    ("tools", 179),
    ("two-guests.pcap", 1030),
];
const FILE_HEADER_LEN: usize = 24;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    files: usize,
    roce: usize,
    other: usize,
    recovered_ids: usize,
    udp_checksums: usize,
}

fn captures_below(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    found.sort();
    found
}

/// Checks a RoCEv2 frame and returns it, written again; counts an IPv4 identification that had to be recovered.
fn check_roce(frame: &Frame<'_>, data: &[u8], counts: &mut Counts) -> Vec<u8> {
    let packet = frame.packet().expect("a well-formed packet");
    let mut payload = vec![0; packet.wire_len()];
    assert_eq!(packet.emit(&mut payload), Ok(frame.payload.len()));
    assert_eq!(payload, frame.payload, "{packet}");

    let mut emitted = vec![0; data.len()];
    assert_eq!(
        Frame {
            payload: &payload,
            ..*frame
        }
        .emit(&mut emitted),
        Ok(data.len())
    );
    assert_eq!(emitted, data, "{frame}");

    assert_eq!(frame.verdict(), Verdict::Valid, "{frame}");
    if frame.udp.checksum != 0 {
        let (src, dst) = (frame.ip.src(), frame.ip.dst());
        let checksum = udp::datagram_checksum(
            src,
            dst,
            frame.udp.source_port,
            frame.udp.dest_port,
            frame.payload,
        );
        assert_eq!(checksum, frame.udp.checksum, "{frame}");
        counts.udp_checksums += 1;
    }
    check_as_socket(frame, &payload, counts);
    emitted
}

/// What a UDP socket can tell of the ICRC, without the IP header.
fn check_as_socket(frame: &Frame<'_>, payload: &[u8], counts: &mut Counts) {
    let flow = frame.flow();
    let ip_id = match frame.ip {
        Ip::V4(header) => header.identification,
        Ip::V6(_) => 0,
    };
    assert_eq!(icrc::verify(&flow, &[ip_id], payload), Verdict::Valid);
    let blind = icrc::verify(&flow, &[0], payload);
    if ip_id == 0 {
        assert_eq!(blind, Verdict::Valid);
    } else {
        assert_eq!(blind, Verdict::ValidWithIpId(ip_id));
        counts.recovered_ids += 1;
    }
    let mut sealed = payload.to_vec();
    let icrc_at = sealed.len() - roce_wire::ICRC_LEN;
    sealed[icrc_at..].fill(0);
    icrc::seal(&flow, ip_id, &mut sealed);
    assert_eq!(sealed, payload);
}

fn check_capture(path: &Path, counts: &mut Counts) {
    let file = fs::read(path).expect("a readable capture");
    let mut reader = Reader::new(&file[..]).expect("a capture");
    let mut copy = ClassicWriter::new(Vec::new(), LinkType::Ethernet, Resolution::Micros).expect("memory");
    while let Some(record) = reader.next_record().expect("a sound capture") {
        assert_eq!(record.original_len as usize, record.data.len());
        let timestamp_ns = record.timestamp_ns.expect("classic pcap has times");
        let data = match describe(record.link_type, record.data) {
            Description::Frame(frame) if frame.is_roce() => {
                counts.roce += 1;
                check_roce(&frame, record.data, counts)
            }
            Description::Frame(_) | Description::NotUdp(_) => {
                counts.other += 1;
                record.data.to_vec()
            }
            Description::UnknownLink(link_type) => panic!("{}: {link_type:?}", path.display()),
        };
        copy.write(timestamp_ns, &data).expect("memory");
    }
    let copy = copy.into_inner();
    // The file's own header differs in the snap length.
    assert!(
        copy[FILE_HEADER_LEN..] == file[FILE_HEADER_LEN..],
        "{} differs when copied",
        path.display()
    );
    counts.files += 1;
}

#[test]
fn every_captured_frame_is_read_and_written_again_byte_for_byte() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/pcaps");
    let mut found = BTreeMap::new();
    for (name, _) in ROCE_FRAMES {
        let mut counts = Counts::default();
        for path in captures_below(&root.join(name)) {
            check_capture(&path, &mut counts);
        }
        println!(
            "{name}: {} captures, {} RoCEv2 frames ({} with an IP identification to recover, {} with a UDP checksum), {} other frames",
            counts.files, counts.roce, counts.recovered_ids, counts.udp_checksums, counts.other
        );
        found.insert(name, counts.roce);
    }
    assert_eq!(found, BTreeMap::from(ROCE_FRAMES));
}
