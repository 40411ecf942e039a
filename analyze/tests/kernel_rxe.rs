//! What the analysis says of captures of the kernel's soft RoCE: its true deviations, and nothing else.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use roce_analyze::{Ending, Options, Report, Survey};
use roce_wire::pcap::{Reader, Record};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/pcaps")
}

fn each(path: &Path, take: &mut dyn FnMut(&Record<'_>)) -> u64 {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        take(&record);
    }
    reader.dropped()
}

fn analyze(path: &Path) -> Report {
    let mut survey = Survey::new(Options::default());
    each(path, &mut |record| survey.record(record));
    let mut analysis = survey.analysis();
    let dropped = each(path, &mut |record| analysis.record(record));
    analysis.finish(Ending {
        dropped,
        damage: None,
    })
}

fn captures(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            captures(&path, out);
        } else if path.extension().is_some_and(|kind| kind == "pcap") {
            out.push(path);
        }
    }
}

/// A line a capture, and a line a finding or reason for having none.
fn summary() -> String {
    let mut paths = Vec::new();
    captures(&data(), &mut paths);
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let report = analyze(&path);
        let name = path.strip_prefix(data()).unwrap().display().to_string();
        writeln!(
            text,
            "{name}: {} packets, {} connections",
            report.roce,
            report.connections.len()
        )
        .unwrap();
        let of_senders = report.senders.iter().flat_map(|sender| &sender.findings);
        for finding in of_senders {
            writeln!(
                text,
                "  {} by {}: {}",
                finding.requirement, finding.by, finding.seen
            )
            .unwrap();
        }
        for connection in &report.connections {
            for reason in &connection.incomplete {
                writeln!(text, "  no verdict on #{}: {reason}", connection.number).unwrap();
            }
            for finding in &connection.findings {
                let frames = &finding.frames;
                writeln!(
                    text,
                    "  {} by {} in {frames:?} ({} times): expected {}, seen {}",
                    finding.requirement, finding.by, finding.count, finding.expected, finding.seen
                )
                .unwrap();
            }
        }
    }
    text
}

#[test]
fn findings_on_the_kernels_driver_are_its_true_deviations() {
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel_rxe.txt");
    let seen = summary();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&snapshot, &seen).unwrap();
    }
    let kept = fs::read_to_string(&snapshot).unwrap_or_default();
    assert!(
        seen == kept,
        "the analysis says otherwise than {} (UPDATE_SNAPSHOTS=1 renews it):\n{seen}",
        snapshot.display()
    );
}
