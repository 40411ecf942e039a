//! The packets of a case on the page: drawn, and to download.

use std::fmt::Write as _;
use std::fs;

use roce_analyze::ladder::{Builder, Ladders, escaped};
use roce_analyze::{Ending, Options, Survey};
use roce_wire::pcap::{Reader, Record};

use crate::run::Row;

/// The longest capture that goes into the page, in bytes.
const CAPTURE_BYTES_MAX: u64 = 2 << 20;
/// Packets that are drawn of one case.
const PACKETS_MAX: u64 = 200;

/// What the page has room for yet: it must stay one that a browser opens at once.
pub(super) struct Room {
    packets: usize,
    bytes: u64,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            packets: 20_000,
            bytes: 24 << 20,
        }
    }
}

// Writing to a string does not fail, here and below.

/// The ladder and the link of a row, or why there is none.
pub(super) fn write(row: &Row, room: &mut Room, out: &mut String) {
    let Some(path) = &row.capture else {
        out.push_str("<p class=\"faint\">This bed has no packets to show.</p>\n");
        return;
    };
    let shown = escaped(&path.display().to_string());
    let size = fs::metadata(path).map_or(0, |meta| meta.len());
    if size == 0 || size > CAPTURE_BYTES_MAX {
        let _ = writeln!(out, "<p class=\"faint\">Packets: {shown} ({size} bytes)</p>");
        return;
    }
    let Ok(bytes) = fs::read(path) else {
        let _ = writeln!(
            out,
            "<p class=\"faint\">Packets were in {shown}, which cannot be read.</p>"
        );
        return;
    };
    let (ladders, frames) = draw(&bytes);
    let drawn: usize = ladders.ladders.iter().map(|ladder| ladder.rungs.len()).sum();
    if drawn <= room.packets {
        room.packets -= drawn;
        for ladder in &ladders.ladders {
            let _ = writeln!(out, "<div class=\"scroll\">{}</div>", ladder.svg());
        }
        if frames > PACKETS_MAX {
            let _ = writeln!(
                out,
                "<p class=\"faint\">The first {PACKETS_MAX} of {frames} packets are drawn.</p>"
            );
        }
    } else {
        out.push_str(
            "<p class=\"faint\">Not drawn: the page has enough packets. softroce ladder draws them.</p>\n",
        );
    }
    if size <= room.bytes {
        room.bytes -= size;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let _ = writeln!(
            out,
            "<p><a download=\"{}\" href=\"data:application/x-pcapng;base64,{}\">Download the packets</a> <span \
             class=\"faint\">({size} bytes, pcapng; {shown})</span></p>",
            escaped(&name),
            base64(&bytes)
        );
    } else {
        let _ = writeln!(out, "<p class=\"faint\">Packets: {shown}</p>");
    }
}

fn each(capture: &[u8], take: &mut dyn FnMut(&Record<'_>)) -> u64 {
    let mut count = 0;
    let Ok(mut reader) = Reader::new(capture) else {
        return 0;
    };
    // A capture may end early where a case was killed.
    while let Ok(Some(record)) = reader.next_record() {
        count += 1;
        take(&record);
    }
    count
}

/// The first packets as ladders, with marks on what the analysis finds; and how many packets there are.
fn draw(capture: &[u8]) -> (Ladders, u64) {
    let mut survey = Survey::new(Options::default());
    let frames = each(capture, &mut |record| survey.record(record));
    let mut analysis = survey.analysis();
    each(capture, &mut |record| analysis.record(record));
    let report = analysis.finish(Ending::default());
    let mut builder = Builder::new(Options::default(), 1..=PACKETS_MAX).marking(&report);
    each(capture, &mut |record| builder.record(record));
    (builder.finish(), frames)
}

/// The capture of a case, as a data URI takes it (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = word >> (18 - 6 * digit) & 0x3f;
            out.push(if digit <= chunk.len() {
                DIGITS[value as usize] as char
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_are_written_as_other_programs_read_them() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
