//! What Wireshark's dissector makes of a capture.

use std::path::Path;
use std::time::Duration;

use crate::case::Stop;
use crate::process::Program;
use crate::scratch::Scratch;

const LIMIT: Duration = Duration::from_secs(120);

/// The fields of one RoCEv2 packet that both dissectors must agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// The opcode byte of the base transport header.
    pub opcode: u64,
    /// The packet sequence number.
    pub psn: u64,
    /// The destination queue pair.
    pub dest_qp: u64,
    /// The UDP length in bytes, header included.
    pub length: u64,
}

/// The RoCEv2 packets of `capture` in order.
pub fn roce_packets(scratch: &Scratch, capture: &Path) -> Result<Vec<Fields>, Stop> {
    let arguments = [
        "-Y",
        "infiniband.bth",
        "-T",
        "fields",
        "-E",
        "separator=,",
        "-e",
        "infiniband.bth.opcode",
    ];
    let fields = [
        "-e",
        "infiniband.bth.psn",
        "-e",
        "infiniband.bth.destqp",
        "-e",
        "udp.length",
    ];
    let output = tshark(scratch, capture, arguments.iter().chain(&fields))?;
    output.lines().map(parse_line).collect()
}

/// One line for each packet that tshark calls malformed.
pub fn malformed(scratch: &Scratch, capture: &Path) -> Result<Vec<String>, Stop> {
    let output = tshark(scratch, capture, ["-Y", "_ws.malformed"].iter())?;
    Ok(output.lines().map(str::to_owned).collect())
}

fn tshark<'a>(
    scratch: &Scratch,
    capture: &Path,
    arguments: impl Iterator<Item = &'a &'a str>,
) -> Result<String, Stop> {
    // Two heuristic dissectors take payload bytes for their protocols and call them malformed.
    let quiet = [
        "--disable-protocol",
        "rpcordma",
        "--disable-protocol",
        "infiniband.eoib",
    ];
    let finished = Program::new(scratch, ["tshark", "-n", "-r"])
        .args([capture])
        .args(quiet)
        .args(arguments)
        .finish(LIMIT)?;
    finished.succeeded()?;
    Ok(finished.stdout)
}

fn parse_line(line: &str) -> Result<Fields, Stop> {
    let unusual = || Stop::Fail(format!("tshark printed `{line}`, four numbers were expected"));
    let numbers = line
        .split(',')
        .map(parse_number)
        .collect::<Option<Vec<u64>>>()
        .ok_or_else(unusual)?;
    let [opcode, psn, dest_qp, length] = numbers[..] else {
        return Err(unusual());
    };
    Ok(Fields {
        opcode,
        psn,
        dest_qp,
        length,
    })
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, parse_line};

    #[test]
    fn a_line_of_tshark_has_decimal_and_hexadecimal_numbers() {
        let fields = parse_line("17,16777214,0x000019,28").expect("a good line");
        assert_eq!(
            fields,
            Fields {
                opcode: 17,
                psn: 16_777_214,
                dest_qp: 0x19,
                length: 28
            }
        );
        assert!(parse_line("17,,0x19,28").is_err());
        assert!(parse_line("17,1,0x19").is_err());
    }
}
