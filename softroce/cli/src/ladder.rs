//! `softroce ladder`: a capture as a picture.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use roce_analyze::ladder::{self, Builder};
use roce_analyze::{Options, Survey};

use crate::analyze::read;
use crate::output;

/// Draw the packets of a capture as a ladder: text, or a page for a browser
#[derive(Args, Debug)]
pub struct Ladder {
    /// The capture
    file: PathBuf,
    /// Write a page (HTML with SVG, complete in itself) instead of text
    #[arg(short, long, value_name = "HTML")]
    output: Option<PathBuf>,
    /// The first frame to draw
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    from: u64,
    /// The last one; to the end when left out
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    to: u64,
    /// The address of the machine on which the capture was taken
    #[arg(long, value_name = "ADDRESS")]
    at: Vec<IpAddr>,
}

impl Ladder {
    /// Draw it. Frames that `softroce analyze` has findings on are marked.
    pub fn run(self) -> Result<ExitCode> {
        if self.to < self.from {
            bail!(
                "--to {} is before --from {}: no frame is drawn",
                self.to,
                self.from
            );
        }
        let options = Options { taken_at: self.at };
        let mut survey = Survey::new(options.clone());
        read(&self.file, &mut |record| survey.record(record))?;
        let mut analysis = survey.analysis();
        let ending = read(&self.file, &mut |record| analysis.record(record))?;
        let report = analysis.finish(ending);
        let mut builder = Builder::new(options, self.from..=self.to).marking(&report);
        read(&self.file, &mut |record| builder.record(record))?;
        let ladders = builder.finish();
        let damage = report
            .damage
            .map(|damage| format!("the capture is damaged, the rest is not drawn: {damage}"));
        if let Some(page) = &self.output {
            let title = format!("Packets of {}", self.file.display());
            output::file(page)?.write_all(ladder::page(&title, &ladders).as_bytes())?;
        } else {
            output::unless_unread(write!(output::standard(), "{ladders}"))?;
        }
        if let Some(damage) = damage {
            eprintln!("softroce: {damage}");
        }
        if ladders.ladders.is_empty() {
            eprintln!("softroce: there is no RoCEv2 packet among these frames");
        }
        Ok(ExitCode::SUCCESS)
    }
}
