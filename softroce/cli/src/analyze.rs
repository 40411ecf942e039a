//! `softroce analyze`: what a capture shows of the protocol.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use roce_analyze::{Ending, Options, Report, Survey};
use roce_wire::pcap::{ReadError, Reader, Record};

use crate::output;

/// Check a capture (pcap or pcapng) against the protocol: both ends of each connection, with latencies
#[derive(Args, Debug)]
pub struct Analyze {
    /// The capture
    file: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// The address of the machine on which it was taken; more can be told then of what was lost where
    #[arg(long, value_name = "ADDRESS")]
    at: Vec<IpAddr>,
}

/// The exit status when there is no capture, no RoCEv2 packet in it, or no way to print the report.
const NOTHING_THERE: u8 = 2;

impl Analyze {
    /// Print the report. The status is 0 without findings, 1 with some, 2 when there is no capture or no RoCEv2 packet.
    pub fn run(self) -> Result<ExitCode> {
        let report = match self.report() {
            Ok(report) => report,
            Err(error) => {
                let _ = writeln!(io::stderr(), "softroce: {}", crate::message(&error));
                return Ok(ExitCode::from(NOTHING_THERE));
            }
        };
        let mut out = BufWriter::new(output::standard());
        let written = if self.json {
            serde_json::to_writer_pretty(&mut out, &report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        } else {
            write!(out, "{report}")
        };
        if let Err(error) = output::unless_unread(written.and_then(|()| out.flush())) {
            let _ = writeln!(io::stderr(), "softroce: {}", crate::message(&error));
            return Ok(ExitCode::from(NOTHING_THERE));
        }
        if report.roce == 0 {
            eprintln!("softroce: {} has no RoCEv2 packet", self.file.display());
            return Ok(ExitCode::from(NOTHING_THERE));
        }
        Ok(ExitCode::from(u8::from(report.findings().next().is_some())))
    }

    fn report(&self) -> Result<Report> {
        let mut survey = Survey::new(Options {
            taken_at: self.at.clone(),
        });
        read(&self.file, &mut |record| survey.record(record))?;
        let mut analysis = survey.analysis();
        let ending = read(&self.file, &mut |record| analysis.record(record))?;
        Ok(analysis.finish(ending))
    }
}

/// Hands out every record of a capture, as far as it can be read.
pub fn read(path: &Path, take: &mut dyn FnMut(&Record<'_>)) -> Result<Ending> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        bail!("{shown} is read twice, so it must be a file (write a pipe into one first)");
    }
    let mut reader = Reader::new(BufReader::new(file)).with_context(|| format!("cannot read {shown}"))?;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => take(&record),
            Ok(None) => {
                return Ok(Ending {
                    dropped: reader.dropped(),
                    damage: None,
                });
            }
            Err(ReadError::Io(error)) => {
                return Err(error).with_context(|| format!("cannot read {shown}"));
            }
            Err(error) => {
                return Ok(Ending {
                    dropped: reader.dropped(),
                    damage: Some(error.to_string()),
                });
            }
        }
    }
}
