//! `softroce analyze` and `softroce ladder`: on captures of ours, fresh and with a loss in them, on the kernel's, and on
//! files that are none.

use std::path::PathBuf;
use std::time::Duration;

use e2e::case::ensure;
use e2e::program::repository;
use e2e::{Bed, Case, Outcome, Stop, softroce};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// The case that loses a packet of a hundred, and asks for it.
const LOSS: &str = "a lost packet is asked for once";

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "analyze finds nothing in a fresh capture of ours with a loss in it",
            || Desk::new()?.fresh_capture("udp"),
        ),
        Case::new(
            "analyze finds nothing in a simulated capture of ours with a loss in it",
            || Desk::new()?.fresh_capture("sim"),
        ),
        Case::new(
            "analyze tells what the kernel's driver does otherwise, and only that",
            kernel,
        ),
        Case::new("ladder draws a capture as text and as a page", drawn),
        Case::new(
            "analyze and ladder refuse what is no capture, and say why",
            no_capture,
        ),
        Case::new("analyze and ladder say where a capture is damaged", damaged),
    ]
}

/// A place for files, and the command.
struct Desk {
    bed: Bed,
}

/// What a command printed, and its status.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn all(&self) -> String {
        format!("status {:?}\n{}{}", self.code, self.out, self.err)
    }
}

impl Desk {
    fn new() -> Result<Desk, Stop> {
        Ok(Desk {
            bed: Bed::loopback()?,
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.bed.scratch.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Result<Said, Stop> {
        let program = self.bed.program(&self.bed.here, [softroce()?.as_os_str()]);
        let finished = program.args(arguments).finish(LIMIT)?;
        Ok(Said {
            code: finished.code(),
            out: finished.stdout,
            err: finished.stderr,
        })
    }

    /// A command on a file of this desk.
    fn on(&self, command: &str, file: &str, more: &[&str]) -> Result<Said, Stop> {
        let path = self.file(file).display().to_string();
        self.run(&[&[command, &path], more].concat())
    }

    /// Record a case of the suite on this bed.
    fn record(&self, bed: &str) -> Outcome {
        let path = self.file("loss.pcapng").display().to_string();
        let said = self.run(&["conformance", "--bed", bed, "--filter", LOSS, "--capture", &path])?;
        ensure(said.code == Some(0), || said.all())
    }

    /// A capture from the repository, where the user that runs the command can read it.
    fn fetch(&self, name: &str) -> Outcome {
        let from = repository().join("tests/data/pcaps").join(name);
        std::fs::copy(&from, self.file(name)).map_err(Stop::fail)?;
        Ok(())
    }

    fn fresh_capture(&self, bed: &str) -> Outcome {
        self.record(bed)?;
        let said = self.on("analyze", "loss.pcapng", &[])?;
        ensure(
            said.code == Some(0)
                && said.out.contains("path MTU 256: no finding")
                && said.out.contains("1 sequence NAKs"),
            || said.all(),
        )?;
        let said = self.on("analyze", "loss.pcapng", &["--json"])?;
        let report: Value = serde_json::from_str(&said.out).map_err(Stop::fail)?;
        let connections = report["connections"].as_array().map_or(0, Vec::len);
        // The case makes five connections, and loses another packet in each.
        ensure(connections == 5, || {
            format!("{connections} connections\n{}", said.all())
        })
    }
}

fn kernel() -> Outcome {
    let desk = Desk::new()?;
    desk.fetch("interop-host-guest.pcap")?;
    let said = desk.on("analyze", "interop-host-guest.pcap", &[])?;
    let found: Vec<&str> = said
        .out
        .lines()
        .filter(|line| line.starts_with("  ") && line.contains(" by "))
        .collect();
    ensure(
        said.code == Some(1) && !found.is_empty() && found.iter().all(|line| line.contains("WIRE-5")),
        || said.all(),
    )?;
    ensure(
        said.out.starts_with("20 frames: 5 RoCEv2, 15 of other protocols"),
        || said.all(),
    )
}

fn drawn() -> Outcome {
    let desk = Desk::new()?;
    desk.record("sim")?;
    let said = desk.on("ladder", "loss.pcapng", &["--from", "2", "--to", "4"])?;
    let rungs = said
        .out
        .lines()
        .filter(|line| line.contains("RC_WRITE_MIDDLE"))
        .count();
    ensure(said.code == Some(0) && rungs == 3, || said.all())?;
    let page = desk.file("page.html");
    let said = desk.on("ladder", "loss.pcapng", &["-o", &page.display().to_string()])?;
    let html = std::fs::read_to_string(&page).unwrap_or_default();
    let is_whole = html.contains("<svg") && html.trim_end().ends_with("</html>");
    ensure(
        said.code == Some(0) && is_whole && html.contains("nak psn-sequence"),
        || format!("{}\n{} bytes of page", said.all(), html.len()),
    )?;
    // Complete in itself: nothing is fetched, nothing is run.
    ensure(!html.contains("<script") && !html.contains("src=\"http"), || {
        "the page refers to something else".to_owned()
    })
}

fn no_capture() -> Outcome {
    let desk = Desk::new()?;
    std::fs::write(desk.file("text.pcap"), "packets\n").map_err(Stop::fail)?;
    // A pcap header, and no packet.
    let header: [u8; 24] = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];
    std::fs::write(desk.file("empty.pcap"), header).map_err(Stop::fail)?;
    for command in ["analyze", "ladder"] {
        for (file, why) in [
            ("text.pcap", "neither pcap nor pcapng"),
            ("missing.pcap", "No such file"),
            (".", "must be a file"),
        ] {
            let said = desk.on(command, file, &[])?;
            ensure(
                said.code.is_some_and(|code| code != 0) && said.err.contains(why),
                || format!("{command} {file}: {}", said.all()),
            )?;
        }
    }
    let said = desk.on("analyze", "empty.pcap", &[])?;
    ensure(
        said.code == Some(2) && said.err.contains("no RoCEv2 packet"),
        || said.all(),
    )
}

fn damaged() -> Outcome {
    let desk = Desk::new()?;
    desk.record("sim")?;
    let bytes = std::fs::read(desk.file("loss.pcapng")).map_err(Stop::fail)?;
    std::fs::write(desk.file("cut.pcapng"), &bytes[..3001]).map_err(Stop::fail)?;
    let why = "the capture ends inside the enhanced packet";
    let said = desk.on("analyze", "cut.pcapng", &[])?;
    ensure(said.out.contains(why), || said.all())?;
    let said = desk.on("ladder", "cut.pcapng", &[])?;
    ensure(
        said.out.contains("RC_WRITE_FIRST") && said.err.contains(why),
        || said.all(),
    )
}
