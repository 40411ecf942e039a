//! `softroce perf compare`: raw UDP, softroce and its peers, measured in turns in one run.
//!
//! Only ratios within one run carry over to another machine, so every figure is the median over rounds in which
//! all contestants take turns, each pair of processes pinned to two CPUs.

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
    #[arg(long)]
    rounds: Option<usize>,
    /// Leave out peers (UCX, libfabric, iperf3)
    #[arg(long)]
    no_peers: bool,
    /// Measure only what has this in its name; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
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
        if rounds == 0 {
            bail!("--rounds 0 measures nothing");
        }
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
        let progress = Progress::new("perf compare", rounds * contests.len());
        for round in 0..rounds {
            for (contest, into) in contests.iter().zip(&mut figures) {
                progress.step(contest.rows[0].0);
                match (contest.run)(&pair) {
                    Ok(values) => into
                        .iter_mut()
                        .zip(values)
                        .for_each(|(row, value)| row.push(value)),
                    Err(error) => notes.push(format!("round {round}, {}: {error:#}", contest.rows[0].0)),
                }
            }
        }
        drop(progress);
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

fn own_contests(quick: bool) -> Vec<Contest> {
    let scale = |iters: u32| if quick { iters / 4 } else { iters }.to_string();
    let raw = |name, unit, mode: &'static str| Contest {
        rows: vec![(name, unit)],
        run: Box::new(move |pair: &Pair| pair.raw(mode)),
    };
    let own = |rows: &[(&'static str, &'static str)], args: &[&str], keys: &'static [&'static str]| {
        let args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
        Contest {
            rows: rows.to_vec(),
            run: Box::new(move |pair: &Pair| softroce_figures(pair, &args, keys)),
        }
    };
    let latency: &[&str] = &["latency.p50_us"];
    let latencies: &[&str] = &["latency.p50_us", "latency.p99_us"];
    let (lat, few, many) = (scale(40_000), scale(4_000), scale(2_000_000));
    let (medium, mid) = (scale(40_000), scale(200_000));
    vec![
        raw("raw UDP spinning", "us", "spin"),
        own(
            &[("softroce SEND 8 B", "us")],
            &["send", "lat", "--size", "8", "--iters", &lat],
            latency,
        ),
        own(
            &[("softroce SEND 8 B, each completed", "us")],
            &["send", "lat", "--size", "8", "--completions", "--iters", &lat],
            latency,
        ),
        own(
            &[("softroce WRITE 8 B, polled", "us")],
            &["write", "lat", "--size", "8", "--iters", &lat],
            latency,
        ),
        own(
            &[("softroce UC SEND 8 B", "us")],
            &["send", "lat", "--transport", "uc", "--size", "8", "--iters", &lat],
            latency,
        ),
        own(
            &[("softroce UD SEND 8 B", "us")],
            &["send", "lat", "--transport", "ud", "--size", "8", "--iters", &lat],
            latency,
        ),
        raw("raw UDP blocking", "us", "block"),
        own(
            &[
                ("softroce WRITE 8 B, memory-poll", "us"),
                ("softroce WRITE 8 B, memory-poll p99", "us"),
            ],
            &["write", "lat", "--size", "8", "--memory-poll", "--iters", &lat],
            latencies,
        ),
        own(
            &[("softroce SEND 8 B, events", "us")],
            &["send", "lat", "--size", "8", "--events", "--iters", &lat],
            latency,
        ),
        raw("raw UDP GSO stream", "Gbit/s", "stream"),
        own(
            &[("softroce SEND 1 MiB", "Gbit/s")],
            &["send", "bw", "--size", "1048576", "--iters", &few],
            &["gbit_per_s"],
        ),
        own(
            &[("softroce WRITE 1 MiB", "Gbit/s")],
            &["write", "bw", "--size", "1048576", "--iters", &few],
            &["gbit_per_s"],
        ),
        own(
            &[("softroce WRITE 64 KiB", "Gbit/s")],
            &["write", "bw", "--size", "65536", "--iters", &medium],
            &["gbit_per_s"],
        ),
        own(
            &[("softroce READ 1 MiB", "Gbit/s")],
            &["read", "bw", "--size", "1048576", "--iters", &few],
            &["gbit_per_s"],
        ),
        raw("raw UDP 64 B staged", "msg/s", "staged"),
        own(
            &[("softroce SEND 64 B", "msg/s")],
            &["send", "bw", "--size", "64", "--iters", &many],
            &["messages_per_s"],
        ),
        own(
            &[("softroce WRITE 64 B", "msg/s")],
            &["write", "bw", "--size", "64", "--iters", &many],
            &["messages_per_s"],
        ),
        own(
            &[("softroce WRITE 4 KiB", "Gbit/s")],
            &["write", "bw", "--size", "4096", "--iters", &mid],
            &["gbit_per_s"],
        ),
        own(
            &[("softroce SEND 4 KiB", "Gbit/s")],
            &["send", "bw", "--size", "4096", "--iters", &mid],
            &["gbit_per_s"],
        ),
        own(
            &[("softroce UC SEND 4 KiB", "Gbit/s")],
            &[
                "send",
                "bw",
                "--transport",
                "uc",
                "--size",
                "4096",
                "--iters",
                &mid,
            ],
            &["gbit_per_s"],
        ),
        own(
            &[("softroce UD SEND 4 KiB", "Gbit/s")],
            &[
                "send",
                "bw",
                "--transport",
                "ud",
                "--size",
                "4096",
                "--iters",
                &mid,
            ],
            &["gbit_per_s"],
        ),
    ]
}
