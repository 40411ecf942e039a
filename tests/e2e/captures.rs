//! Captures: tshark finds nothing malformed in ours, and `softroce decode` agrees with tshark on every packet.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::bed::{needs_address, needs_program};
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::tshark::{self, Fields};
use e2e::{Bed, Case, Outcome, Program, Scratch, Stop, compiled, softroce};
use serde_json::Value;

use crate::pingpong::{Talk, Waiting, free_port};

const LIMIT: Duration = Duration::from_secs(60);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let ours = [
        ("IPv4", IpAddr::V4(Ipv4Addr::LOCALHOST), 4097, Waiting::Polling),
        (
            "IPv4 with empty messages",
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            0,
            Waiting::Polling,
        ),
        (
            "IPv4 with events",
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            63,
            Waiting::Events,
        ),
        (
            "IPv4 with long messages",
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            1_048_576,
            Waiting::Polling,
        ),
        ("IPv6", IpAddr::V6(Ipv6Addr::LOCALHOST), 65536, Waiting::Polling),
    ];
    let mut cases: Vec<Case> = ours
        .into_iter()
        .map(|(path, server, size, waiting)| {
            Case::new(
                format!("a captured pingpong over {path} reads the same in tshark and decode"),
                move || {
                    needs_address(server)?;
                    captured_pingpong(&Talk {
                        size,
                        waiting,
                        iterations: 20,
                        ..Talk::with(server)
                    })
                },
            )
        })
        .collect();
    cases.push(Case::new(
        "four foreign programs at once on one address each with a capture read the same in tshark and decode",
        four_programs,
    ));
    cases.push(Case::new(
        "every capture of kernel rxe reads the same in tshark and decode",
        kernel_captures,
    ));
    cases.push(Case::new(
        "decode without json prints one line a packet with its icrc verdict",
        plain_decode,
    ));
    cases
}

/// Runs a conversation with a capture at each end, and compares both.
fn captured_pingpong(talk: &Talk) -> Outcome {
    needs_program("tshark", "tshark")?;
    let bed = Bed::loopback()?;
    let (at_server, at_client) = (
        bed.scratch.file("server.pcapng"),
        bed.scratch.file("client.pcapng"),
    );
    let option = |path: &Path| path.to_string_lossy().into_owned();
    let server = talk.start_server(&bed, &bed.here, &["--capture", &option(&at_server)])?;
    let client = talk.start_client(&bed, &bed.here, &["--capture", &option(&at_client)])?;
    client.wait(LIMIT)?.succeeded()?;
    server.wait(LIMIT)?.succeeded()?;
    for capture in [&at_server, &at_client] {
        let packets = same_in_both(&bed.scratch, capture)?;
        let sends = packets.iter().filter(|packet| packet.opcode < 6).count();
        ensure(sends >= 2 * 20, || {
            format!(
                "{} holds {sends} SEND packets, at least 40 were exchanged",
                capture.display()
            )
        })?;
    }
    Ok(())
}

/// Client and server of three foreign tools, and a program of many processes, all on one address; every run
/// writes a capture, of all its processes.
fn four_programs() -> Outcome {
    needs_program("tshark", "tshark")?;
    needs_program("ib_write_bw", "perftest")?;
    let bed = Bed::loopback()?;
    let forks = compiled::own(&bed.scratch, "forks")?;
    let under_capture = |name: &str| -> Result<Program, Stop> {
        let capture = bed.scratch.file(name).with_extension("pcapng");
        Ok(bed
            .program(&bed.here, [softroce()?])
            .args(["run", "--capture"])
            .args([capture])
            .args(["--"]))
    };
    let tools: [&[&str]; 3] = [
        &["ib_write_bw", "-F", "-x", "0", "-s", "65536", "-n", "100"],
        &["ibv_rc_pingpong", "-g", "0", "-s", "9000", "-n", "300"],
        &["ibv_ud_pingpong", "-g", "0", "-s", "2048", "-n", "300"],
    ];
    let (mut servers, mut running) = (Vec::new(), Vec::new());
    for words in tools {
        needs_program(words[0], "ibverbs-utils")?;
        let port = free_port();
        let port_word = port.to_string();
        let name = |end| format!("{}-{end}", words[0]);
        let server = under_capture(&name("server"))?
            .args(words)
            .args(["-p", &port_word]);
        let client = under_capture(&name("client"))?
            .args(words)
            .args(["-p", &port_word, "127.0.0.1"]);
        servers.push((server.start()?, port, client));
    }
    for (server, port, client) in servers {
        wait_for_listener(&server, port)?;
        running.push(server);
        running.push(client.start()?);
    }
    running.push(
        under_capture("forks")?
            .args([forks])
            .args(["grandchild"])
            .start()?,
    );
    for program in running {
        program.wait(LIMIT)?.succeeded()?;
    }
    let captures = captures_under(bed.scratch.path())?;
    // The last one has a parent, a child and a grandchild, who write into one.
    ensure(captures.len() == 2 * tools.len() + 1, || {
        format!("the captures are {captures:?}")
    })?;
    for capture in captures {
        let packets = same_in_both(&bed.scratch, &capture)?.len();
        ensure(packets >= 100, || {
            format!("{} holds {packets} packets", capture.display())
        })?;
    }
    Ok(())
}

/// The captures in the repository that the kernel's driver made.
fn kernel_captures() -> Outcome {
    needs_program("tshark", "tshark")?;
    let (scratch, mut total) = (Scratch::new()?, 0);
    for capture in captures_under(&e2e::program::repository().join("tests/data/pcaps"))? {
        total += same_in_both(&scratch, &capture)?.len();
    }
    ensure(total > 1_000, || format!("only {total} packets were compared"))
}

/// Nothing malformed, the same fields from both dissectors, every ICRC valid; returns the packets.
fn same_in_both(scratch: &Scratch, capture: &Path) -> Result<Vec<Fields>, Stop> {
    let malformed = tshark::malformed(scratch, capture)?;
    let shown = capture.display();
    ensure(malformed.is_empty(), || {
        format!(
            "tshark calls packets of {shown} malformed:\n{}",
            malformed.join("\n")
        )
    })?;
    let theirs = tshark::roce_packets(scratch, capture)?;
    let ours = decode(scratch, capture)?;
    ensure(ours.len() == theirs.len(), || {
        format!(
            "{shown}: decode finds {} RoCEv2 packets, tshark {}",
            ours.len(),
            theirs.len()
        )
    })?;
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        ensure(ours == theirs, || {
            format!("{shown}, RoCEv2 packet {number}: decode {ours:?}, tshark {theirs:?}")
        })?;
    }
    Ok(theirs)
}

/// The RoCEv2 packets of `softroce decode --json`, each with a valid ICRC.
fn decode(scratch: &Scratch, capture: &Path) -> Result<Vec<Fields>, Stop> {
    let finished = Program::new(scratch, [softroce()?.as_os_str()])
        .args(["decode", "--json"])
        .args([capture])
        .finish(LIMIT)?;
    finished.succeeded()?;
    let mut packets = Vec::new();
    for value in serde_json::Deserializer::from_str(&finished.stdout).into_iter::<Value>() {
        let value =
            value.map_err(|error| Stop::Fail(format!("decode --json is no JSON: {error}\n{finished}")))?;
        let objects = match value {
            Value::Array(objects) => objects,
            object => vec![object],
        };
        for object in objects.into_iter().filter(|object| !object["opcode"].is_null()) {
            packets.push(fields_of(&object)?);
        }
    }
    Ok(packets)
}

fn fields_of(object: &Value) -> Result<Fields, Stop> {
    let number = |name: &str| {
        object[name]
            .as_u64()
            .ok_or_else(|| Stop::Fail(format!("decode prints no number `{name}` in {object}")))
    };
    let verdict = object["icrc"].as_str().unwrap_or("missing");
    ensure(matches!(verdict, "valid" | "valid-ip-id"), || {
        format!("the ICRC verdict is {verdict} in {object}")
    })?;
    Ok(Fields {
        opcode: number("opcode")?,
        psn: number("psn")?,
        dest_qp: number("dest_qp")?,
        length: number("length")?,
    })
}

/// Every capture below `directory`, in a stable order.
fn captures_under(directory: &Path) -> Result<Vec<PathBuf>, Stop> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().contains(".pcap") {
                found.insert(path);
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Four data packets and their acknowledgement, as a person reads them.
fn plain_decode() -> Outcome {
    let scratch = Scratch::new()?;
    let capture = e2e::program::repository().join("tests/data/pcaps/golden-1024/rc_send_3072.pcap");
    let finished = Program::new(&scratch, [softroce()?.as_os_str()])
        .args(["decode".as_ref(), capture.as_os_str()])
        .finish(LIMIT)?;
    finished.succeeded()?;
    let packets: Vec<&str> = finished
        .stdout
        .lines()
        .filter(|line| line.contains("203.0.113.1"))
        .collect();
    ensure(packets.len() == 4, || {
        format!("four packets, one line each, were expected: {finished}")
    })?;
    let valid = packets
        .iter()
        .all(|line| line.to_lowercase().contains("valid") && !line.contains("nvalid"));
    ensure(valid, || {
        format!("each line should tell that the ICRC is valid: {finished}")
    })
}
