//! The analysis of captures says nothing against softroce: the packets of every case are analysed.

use std::fs::File;
use std::io::BufReader;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use conformance::Mode;
use conformance::beds::{BedKind, BedOptions, entries, run_entry};
use roce_analyze::{Ending, Options, Report, Survey};
use roce_wire::pcap::{Reader, Record};

fn each(path: &Path, take: &mut dyn FnMut(&Record<'_>)) {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        take(&record);
    }
}

fn analyze(path: &Path) -> Report {
    let mut survey = Survey::new(Options::default());
    each(path, &mut |record| survey.record(record));
    let mut analysis = survey.analysis();
    each(path, &mut |record| analysis.record(record));
    analysis.finish(Ending::default())
}

/// A new queue pair after another under the number of one peer, with the same PSNs, or several at once: a capture cannot
/// tell them apart.
const ONE_NUMBER_FOR_SEVERAL: [&str; 6] = ["F3", "E42", "E44", "E44-TIMED", "E44-SLEEP", "E45"];

/// A device notifies of congestion for its own socket, which no mark on the wire shows.
const NOTIFICATIONS: &str = "ECN-1";

/// A request that came too early is asked for after the one before it came: to a capture it has arrived.
const CAME_TOO_EARLY: &str = "F7-TOGETHER";

/// Packets with the ICRC of an IPv4 identification that captures of the simulator do not show.
const UNSEEN_IDENTIFICATION: &str = "A4-";

#[test]
fn what_is_found_in_the_packets_of_the_cases_was_done_by_the_forger_and_not_by_softroce() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("analysis");
    std::fs::create_dir_all(&folder).unwrap();
    let (mut captures, mut forgeries) = (0, 0);
    for entry in entries(BedKind::Sim, &BedOptions::default()).unwrap() {
        let path = folder.join(format!("{}.pcapng", entry.id));
        let options = BedOptions {
            seed: 1,
            capture: Some(path.clone()),
            ..BedOptions::default()
        };
        let outcome = run_entry(&entry, &options, None);
        assert_eq!(outcome.verdict, conformance::Verdict::Pass, "{}", entry.id);
        let is_telling = !ONE_NUMBER_FOR_SEVERAL.contains(&entry.id)
            && entry.id != CAME_TOO_EARLY
            && !entry.id.starts_with(UNSEEN_IDENTIFICATION);
        if !path.exists() || !is_telling {
            continue;
        }
        captures += 1;
        let report = analyze(&path);
        std::fs::remove_file(path).unwrap();
        for finding in report.findings() {
            if finding.requirement == NOTIFICATIONS {
                continue;
            }
            // Where an end is played, it is the right one.
            let is_forger = entry.mode == Mode::RawPeer && finding.by.address == IpAddr::from([10, 0, 0, 2]);
            assert!(is_forger, "{} {}: {finding:#?}\n{report}", entry.id, entry.title);
            forgeries += 1;
        }
    }
    assert!(
        captures > 200 && forgeries > 20,
        "{captures} captures with {forgeries} findings"
    );
}
