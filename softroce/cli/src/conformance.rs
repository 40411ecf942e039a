//! `softroce conformance`: the suite, on one bed or on all.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use conformance::beds::{self, BedKind};
use conformance::{Format, Mode, RunOptions};

use crate::output;
use crate::progress::Progress;

mod library;

/// Run the conformance suite: on the embedded engine, or on a device of libibverbs
#[derive(Args, Debug)]
pub struct Conformance {
    /// Where to run it: sim (virtual time), udp (real sockets), native (devices of libibverbs), dropin (softroce
    /// through the C interface of its shared object); sim and udp when left out
    #[arg(long)]
    bed: Vec<BedKind>,
    #[command(flatten)]
    library: library::Options,
    /// Only cases whose id or title contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only cases that are made with this: verbs (and nothing else), faults (between two ends), raw (one end is played
    /// packet by packet)
    #[arg(long, value_name = "MODE")]
    mode: Vec<Mode>,
    /// Print the cases and run none
    #[arg(long, conflicts_with = "capture")]
    list: bool,
    /// How to report: pretty, catalogue, json, junit or html
    #[arg(long, default_value = "pretty")]
    format: Format,
    /// Write the report to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the packets of all cases to a pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Everything random on the simulator, and losses by chance on real sockets, follow from it [default: 1]
    #[arg(long)]
    seed: Option<u64>,
}

const SEED: u64 = 1;
/// Beds that have the packets in any case, and go by a seed.
const WITH_PACKETS: &[BedKind] = &[BedKind::Sim, BedKind::Udp];
/// The exit status when there was no case to run or to list.
const NOTHING_RAN: u8 = 2;

impl Conformance {
    /// Run it. The status is 0 when nothing failed, 1 when something did, 2 when nothing ran or was listed.
    ///
    /// # Errors
    /// Wrong use, or a report that cannot be written: there is no verdict.
    pub fn run(self) -> Result<ExitCode> {
        match self.report() {
            // A reader that has gone (`| head`) is no error of ours.
            Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
            done => done,
        }
    }

    fn report(self) -> Result<ExitCode> {
        let mut options = RunOptions {
            filter: self.filter,
            modes: self.mode,
            format: self.format,
            capture: self.capture,
            seed: self.seed.unwrap_or(SEED),
            native: self.library.native()?,
            ..RunOptions::default()
        };
        if !self.bed.is_empty() {
            options.beds = self.bed;
        } else if let Some(beds) = self.library.beds() {
            options.beds = beds;
        }
        self.library.check(&options.beds)?;
        if self.seed.is_some() {
            library::expect_use("--seed", &options.beds, WITH_PACKETS)?;
        }
        if options.capture.is_some() && options.native.wire.is_none() {
            library::expect_use("--capture without --wire", &options.beds, WITH_PACKETS)?;
        }
        if options.beds.contains(&BedKind::DropIn) {
            options.native.library = Some(library::drop_in()?);
        }
        for bed in &options.beds {
            if let Err(failure) = beds::entries(*bed, &options.bed_options()) {
                eprintln!("softroce: the bed {bed} cannot be had: {failure}");
                return Ok(ExitCode::from(NOTHING_RAN));
            }
        }
        let out: Box<dyn io::Write> = match &self.output {
            None => Box::new(output::standard()),
            Some(path) => Box::new(output::file(path)?),
        };
        let mut out = BufWriter::new(out);
        if self.list {
            let listed = conformance::list(&options, &mut out)?;
            out.flush()?;
            if listed == 0 {
                eprintln!("softroce: no case has this in its id or title");
                return Ok(ExitCode::from(NOTHING_RAN));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut line: Option<Progress> = None;
        let summary = conformance::run(&options, &mut out, &mut |step| {
            if let conformance::Progress::Starting { entry, total, .. } = step {
                line.get_or_insert_with(|| Progress::new("conformance", total))
                    .step(&format!("{} {}", entry.bed, entry.id));
            }
        })?;
        drop(line);
        if summary.exit_status() == NOTHING_RAN {
            eprintln!("softroce: no case ran; see softroce conformance --list");
        }
        Ok(ExitCode::from(summary.exit_status()))
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
