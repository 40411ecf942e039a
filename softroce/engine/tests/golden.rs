//! The engine beside the kernel's soft RoCE: the captures in `tests/data/pcaps/golden-*`, replayed.
//!
//! Each capture is one conversation of two kernel devices, made by `tests/rxe-vm/golden.py`; `golden.json` holds its
//! parameters and completions. Here an engine takes the place of one of the two, with the same addresses, queue pair
//! numbers, memory addresses and packet numbers. The other one is the capture, in its own time:
//!
//! - As *requester* the engine gets the server's packets as they were captured, not a bit changed. Everything that it
//!   sends is compared with what the kernel's client sent.
//! - As *responder* it gets the client's packets; only the remote key is replaced, since the engine draws its own. What
//!   it answers is compared with what the kernel's server answered.
//!
//! Whole IP packets are compared, byte for byte, and so are completions and memory. What may differ stands in
//! [`compare`] (fields of packets) and in [`deviation`] (where the kernel departs from the specification). Everything
//! else is a failure. `cargo test -p softroce-engine --test engine golden -- --nocapture` prints the counts.

mod capture;
mod compare;
mod deviation;
mod end;
mod replay;
mod script;

use capture::Case;
use replay::Tally;

/// The folders of captures, by path MTU.
const MTUS: [usize; 2] = [1024, 4096];

/// Packets in all captures.
const PACKETS: usize = 298;

/// Replay all cases in one role, print what was compared, and return the sum.
fn replay_all(role: &str, replay: impl Fn(&Case) -> Result<Tally, &'static str>) -> Tally {
    let mut sum = Tally::default();
    for mtu in MTUS {
        let mut tally = Tally::default();
        let mut skipped: Vec<(&'static str, Vec<String>, usize)> = Vec::new();
        for case in capture::load(mtu) {
            match replay(&case) {
                Ok(of_case) => tally += of_case,
                Err(reason) => {
                    if !skipped.iter().any(|(known, ..)| *known == reason) {
                        skipped.push((reason, Vec::new(), 0));
                    }
                    let entry = skipped.iter_mut().find(|(known, ..)| *known == reason).unwrap();
                    entry.1.push(case.name.clone());
                    entry.2 += case.packets.len();
                    tally.skipped += case.packets.len();
                }
            }
        }
        println!("{role}, path MTU {mtu}: {tally}");
        for (reason, cases, packets) in skipped {
            println!("  skipped {packets} packets, {reason}: {}", cases.join(" "));
        }
        sum += tally;
    }
    println!("{role}, all: {sum}");
    assert_eq!(sum.compared + sum.replayed + sum.skipped, PACKETS);
    sum
}

#[test]
fn the_requester_builds_the_packets_that_the_kernel_built() {
    let sum = replay_all("requester", replay::requester);
    assert_eq!((sum.cases, sum.compared, sum.replayed), (86, 143, 123));
}

#[test]
fn the_responder_gives_the_answers_that_the_kernel_gave() {
    let sum = replay_all("responder", replay::responder);
    assert_eq!((sum.cases, sum.compared, sum.replayed), (84, 117, 137));
}

#[test]
fn every_deviation_that_is_listed_occurs() {
    let mut count = 0;
    for case in MTUS.into_iter().flat_map(capture::load) {
        let listed: Vec<_> = deviation::of(&case).collect();
        for deviation in &listed {
            println!(
                "{} {}: {}; {}",
                case.mtu_bytes, case.name, deviation.what, deviation.why
            );
        }
        if let Ok(tally) = replay::responder(&case) {
            let found = tally.packet_deviations + tally.completion_deviations;
            assert_eq!(found, listed.len(), "{}", case.name);
            count += found;
        }
    }
    assert_eq!(count, deviation::all().count());
}
