//! Everything that `softroce analyze` and `softroce ladder` do with a file. The first byte says how the rest is meant: as
//! a file as it is, or as packets, each behind a length, so that the fuzzer need not learn the format of captures first.

use roce_analyze::ladder::{Builder, page};
use roce_analyze::{Ending, Options, Survey};
use roce_wire::pcap::{Direction, LinkType, NgWriter, Reader, Record};

/// Frames drawn at most: what is looked for shows in the first ones, and pages grow.
const DRAWN: u64 = 200;

/// Check and draw.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 3 {
        0 => read(rest),
        1 => read(&packed(rest, LinkType::RawIp)),
        _ => read(&packed(rest, LinkType::Ethernet)),
    }
}

/// A capture of packets: of each a byte of time and direction, two of length, and so many bytes.
fn packed(mut bytes: &[u8], link_type: LinkType) -> Vec<u8> {
    let mut file = Vec::new();
    let Ok(mut writer) = NgWriter::new(&mut file, link_type) else {
        return file;
    };
    let mut time_ns = 0;
    while let [flags, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (packet, behind) = rest.split_at(length);
        time_ns += u64::from(flags >> 2) * 10_000;
        let direction = [None, Some(Direction::Inbound), Some(Direction::Outbound)]
            .get(usize::from(flags & 3))
            .copied()
            .flatten();
        if writer.write_directed(time_ns, packet, direction, None).is_err() {
            break;
        }
        bytes = behind;
    }
    file
}

/// Hands out every record that can be read.
fn each(file: &[u8], take: &mut dyn FnMut(&Record<'_>)) -> Ending {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(_) => return Ending::default(),
    };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => take(&record),
            Ok(None) => {
                return Ending {
                    dropped: reader.dropped(),
                    damage: None,
                };
            }
            Err(error) => {
                return Ending {
                    dropped: reader.dropped(),
                    damage: Some(error.to_string()),
                };
            }
        }
    }
}

fn read(file: &[u8]) {
    let mut survey = Survey::new(Options::default());
    each(file, &mut |record| survey.record(record));
    let mut analysis = survey.analysis();
    let ending = each(file, &mut |record| analysis.record(record));
    let report = analysis.finish(ending);
    let mut builder = Builder::new(Options::default(), 1..=DRAWN).marking(&report);
    each(file, &mut |record| builder.record(record));
    let ladders = builder.finish();
    let shown = format!("{report}{ladders}{}", page("x", &ladders));
    assert!(!shown.is_empty());
}
