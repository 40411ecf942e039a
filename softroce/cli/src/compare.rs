//! `softroce perf compare`: raw UDP, softroce and its peers, measured in turns in one run.
//!
//! Only ratios within one run carry over to another machine, so every figure is the median over rounds in which
//! all contestants take turns, each pair of processes pinned to two CPUs. A measurement that other programs disturb is
//! repeated a few times.

mod others;
mod peers;
mod perftest;
mod process;
mod raw;
mod table;

use anyhow::{Result, bail};
use clap::Args;

pub use process::pin_as_asked;
use process::{Pair, softroce_figures};
pub use raw::Raw;
use table::{Row, Table};

use crate::output;
use crate::progress::Progress;
use crate::stats::median;

/// Measure raw UDP, softroce and its peers in turns
#[derive(Args, Debug)]
pub struct Compare {
    /// One short round instead of five
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Do not pin the processes to CPUs
    #[arg(long)]
    unpinned: bool,
    /// Rounds of all contestants
    #[arg(long, value_parser = rounds)]
    rounds: Option<usize>,
    /// Leave out peers (UCX, libfabric, iperf3)
    #[arg(long)]
    no_peers: bool,
    /// Measure only what has this in its name; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

/// Attempts at a measurement that others disturb; the least disturbed counts.
const ATTEMPTS: usize = 3;

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds @ 1..=1000) => Ok(rounds),
        _ => Err("the rounds are a number from 1 to 1000".to_owned()),
    }
}

/// How a contest gets its figures, one a row.
type Run = Box<dyn Fn(&Pair) -> Result<Vec<f64>>>;

/// One thing to measure: names and units of its rows, and how to get their figures.
struct Contest {
    rows: Vec<(&'static str, &'static str)>,
    run: Run,
}

impl Contest {
    /// Whether it is asked for: one of the parts is in one of its names, or there are no parts.
    fn is_among(&self, parts: &[String]) -> bool {
        parts.is_empty()
            || parts
                .iter()
                .any(|part| self.rows.iter().any(|(name, _)| name.contains(part.as_str())))
    }
}

impl Compare {
    /// Run it.
    pub fn run(self) -> Result<()> {
        let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { 5 });
        let mut contests = own_contests(self.quick);
        let mut notes = Vec::new();
        perftest::add(&mut contests, &mut notes, self.quick);
        if !self.no_peers {
            peers::add(&mut contests, &mut notes);
        }
        contests.retain(|contest| contest.is_among(&self.only));
        if contests.is_empty() {
            bail!("nothing that is measured here is named like {:?}", self.only);
        }
        let pair = Pair::new(!self.unpinned);
        let mut figures: Vec<Vec<Vec<f64>>> =
            contests.iter().map(|c| vec![Vec::new(); c.rows.len()]).collect();
        let mut disturbed = Vec::new();
        let progress = Progress::new("perf compare", rounds * contests.len());
        for round in 0..rounds {
            for (contest, into) in contests.iter().zip(&mut figures) {
                progress.step(contest.rows[0].0);
                let (figures, others) = least_disturbed(|| (contest.run)(&pair));
                if others > others::DISTURBED {
                    disturbed.push(others);
                }
                match figures {
                    Ok(values) => into
                        .iter_mut()
                        .zip(values)
                        .for_each(|(row, value)| row.push(value)),
                    Err(error) => notes.push(format!("round {round}, {}: {error:#}", contest.rows[0].0)),
                }
            }
        }
        drop(progress);
        notes.extend(tell_of_disturbances(&disturbed, rounds * contests.len()));
        let rows = contests
            .iter()
            .zip(&figures)
            .flat_map(|(contest, rows)| contest.rows.iter().zip(rows))
            .filter(|(_, values)| !values.is_empty())
            .map(|(&(name, unit), values)| Row {
                name,
                unit,
                median: median(values),
                min: values.iter().copied().fold(f64::INFINITY, f64::min),
                max: values.iter().copied().fold(0.0, f64::max),
            })
            .collect();
        let table = Table {
            rows,
            notes,
            rounds,
            pinned: pair.is_pinned(),
        };
        if self.json {
            output::line(table.json())
        } else {
            output::line(table.to_string().trim_end())
        }
    }
}

/// Repeat until others leave the machine alone, a few times at most: the figures with the least of others, and how much of
/// the processors those used.
fn least_disturbed(mut run: impl FnMut() -> Result<Vec<f64>>) -> (Result<Vec<f64>>, f64) {
    let mut best = others::beside(&mut run);
    for _ in 1..ATTEMPTS {
        if best.1 <= others::DISTURBED {
            break;
        }
        let next = others::beside(&mut run);
        if next.0.is_ok() && next.1 < best.1 {
            best = next;
        }
    }
    best
}

fn tell_of_disturbances(disturbed: &[f64], measurements: usize) -> Option<String> {
    let most = disturbed.iter().copied().fold(0.0, f64::max);
    (!disturbed.is_empty()).then(|| {
        format!(
            "others worked during {} of {measurements} measurements and used up to {:.0} % of the processors: do not \
             trust these figures, repeat them on an idle machine",
            disturbed.len(),
            most * 100.0
        )
    })
}

/// The contests of `softroce perf` against raw UDP, in their order.
fn own_contests(quick: bool) -> Vec<Contest> {
    let scale = |iters: u32| if quick { iters / 4 } else { iters }.to_string();
    let raw = |name, unit, mode: &'static str| Contest {
        rows: vec![(name, unit)],
        run: Box::new(move |pair: &Pair| pair.raw(mode)),
    };
    let own =
        |rows: &[(&'static str, &'static str)], args: &str, iters: &str, keys: &'static [&'static str]| {
            let args: Vec<String> = args
                .split_whitespace()
                .chain(["--iters", iters])
                .map(str::to_owned)
                .collect();
            Contest {
                rows: rows.to_vec(),
                run: Box::new(move |pair: &Pair| softroce_figures(pair, &args, keys)),
            }
        };
    let (lat, few, many) = (scale(40_000), scale(4_000), scale(2_000_000));
    let (medium, mid) = (scale(40_000), scale(200_000));
    let half_trip = |name, args: &str| own(&[(name, "us")], args, &lat, &["latency.p50_us"]);
    let stream = |name, args: &str, iters: &str| own(&[(name, "Gbit/s")], args, iters, &["gbit_per_s"]);
    let rate = |name, args: &str| own(&[(name, "msg/s")], args, &many, &["messages_per_s"]);
    let memory_poll = [
        ("softroce WRITE 8 B, memory-poll", "us"),
        ("softroce WRITE 8 B, memory-poll p99", "us"),
    ];
    vec![
        raw("raw UDP spinning", "us", "spin"),
        half_trip("softroce SEND 8 B", "send lat --size 8"),
        half_trip(
            "softroce SEND 8 B, each completed",
            "send lat --size 8 --completions",
        ),
        half_trip("softroce WRITE 8 B, polled", "write lat --size 8"),
        half_trip("softroce UC SEND 8 B", "send lat --transport uc --size 8"),
        half_trip("softroce UD SEND 8 B", "send lat --transport ud --size 8"),
        raw("raw UDP blocking", "us", "block"),
        own(
            &memory_poll,
            "write lat --size 8 --memory-poll",
            &lat,
            &["latency.p50_us", "latency.p99_us"],
        ),
        half_trip("softroce SEND 8 B, events", "send lat --size 8 --events"),
        raw("raw UDP GSO stream", "Gbit/s", "stream"),
        stream("softroce SEND 1 MiB", "send bw --size 1048576", &few),
        stream("softroce WRITE 1 MiB", "write bw --size 1048576", &few),
        stream("softroce WRITE 64 KiB", "write bw --size 65536", &medium),
        stream("softroce READ 1 MiB", "read bw --size 1048576", &few),
        raw("raw UDP 64 B staged", "msg/s", "staged"),
        rate("softroce SEND 64 B", "send bw --size 64"),
        rate("softroce WRITE 64 B", "write bw --size 64"),
        stream("softroce WRITE 4 KiB", "write bw --size 4096", &mid),
        stream("softroce SEND 4 KiB", "send bw --size 4096", &mid),
        stream(
            "softroce UC SEND 4 KiB",
            "send bw --transport uc --size 4096",
            &mid,
        ),
        stream(
            "softroce UD SEND 4 KiB",
            "send bw --transport ud --size 4096",
            &mid,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_leave_undisturbed_is_measured_once_and_else_a_few_times() {
        let mut runs = 0;
        let (figures, others) = least_disturbed(|| {
            runs += 1;
            Ok(vec![1.0])
        });
        assert_eq!(figures.unwrap(), [1.0]);
        let expected = if others > others::DISTURBED {
            ATTEMPTS..=ATTEMPTS
        } else {
            1..=ATTEMPTS
        };
        assert!(expected.contains(&runs));
    }

    #[test]
    fn disturbances_are_told_with_their_number_and_size() {
        assert_eq!(tell_of_disturbances(&[], 40), None);
        let told = tell_of_disturbances(&[0.06, 0.4], 40).unwrap();
        assert!(
            told.starts_with("others worked during 2 of 40 measurements and used up to 40 %"),
            "{told}"
        );
    }
}
