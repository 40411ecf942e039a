//! `softroce sim`: swarms of random runs in virtual time.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use softroce_sim::Random;
use softroce_sim::swarm::{self, Finding, Plan, Run};

use crate::input;
use crate::output;
use crate::progress::Progress;

/// Runs that the reduction of a finding may take.
const REDUCTION_RUNS: usize = 600;
/// A year.
const MINUTES_MAX: f64 = 525_600.0;
/// Findings after which a session ends: each is reduced, which takes its time.
const MOST_FINDINGS: usize = 5;

/// Run random conversations over a bad network in virtual time, and check every byte and every completion
#[derive(Args, Debug)]
pub struct Sim {
    /// Run this seed, and with --runs or --minutes go on with seeds that follow from it; else the clock chooses
    #[arg(long)]
    seed: Option<u64>,
    /// So many runs [default: 200, or 1 with --seed alone]
    #[arg(long, conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// For so many minutes, such as 0.5
    #[arg(long, value_parser = minutes)]
    minutes: Option<f64>,
    /// Run a plan that an earlier session has written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "runs", "minutes"])]
    plan: Option<PathBuf>,
    /// With --plan or a single seed: write the packets to a pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Where to write what is found: a small plan and its packets
    #[arg(long, value_name = "FOLDER", default_value = ".", conflicts_with = "plan")]
    findings: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if minutes > 0.0 && minutes <= MINUTES_MAX => Ok(minutes),
        _ => Err(format!(
            "{text:?} is no number above 0 and up to {MINUTES_MAX}, such as 30 or 0.5"
        )),
    }
}

/// A finding and the files that show it.
#[derive(Serialize)]
struct Found {
    seed: Option<u64>,
    what: String,
    plan: PathBuf,
    capture: PathBuf,
}

/// A session.
#[derive(Default, Serialize)]
struct Report {
    first_seed: Option<u64>,
    runs: u64,
    packets: u64,
    virtual_seconds: f64,
    /// Of a single run.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_hash: Option<String>,
    findings: Vec<Found>,
}

impl Sim {
    /// Run it. The status is 0 when nothing was found, 1 when something was.
    ///
    /// # Errors
    /// There is no verdict: a plan that is none, a file that cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        if self.capture.is_some() && self.plan.is_none() && !self.is_single() {
            bail!("--capture has no meaning with many runs; give it a --plan, or a --seed alone");
        }
        // A panic of the engine is a finding, and told as one.
        std::panic::set_hook(Box::new(|_| {}));
        let report = match &self.plan {
            Some(path) => self.one_plan(path)?,
            None => self.seeds()?,
        };
        output::unless_unread(self.print(&report))?;
        Ok(ExitCode::from(u8::from(!report.findings.is_empty())))
    }

    /// Whether one seed is asked for.
    fn is_single(&self) -> bool {
        self.seed.is_some() && self.runs.is_none() && self.minutes.is_none()
    }

    fn one_plan(&self, path: &Path) -> Result<Report> {
        let text =
            input::text(path).with_context(|| format!("the plan {} cannot be read", path.display()))?;
        let plan: Plan =
            serde_json::from_str(&text).with_context(|| format!("{} is no plan", path.display()))?;
        if let Err(what) = plan.check() {
            bail!("{} is no plan: {what}", path.display());
        }
        let mut report = Report::default();
        match run(&plan, self.capture.as_deref())? {
            Ok(run) => report.add(&run, true),
            Err(finding) => {
                report.runs = 1;
                report.findings.push(Found {
                    seed: None,
                    what: finding.to_string(),
                    plan: path.to_path_buf(),
                    capture: self.capture.clone().unwrap_or_default(),
                });
            }
        }
        Ok(report)
    }

    fn seeds(&self) -> Result<Report> {
        let first = self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(1, |since| since.as_nanos() as u64)
        });
        let until = match self.minutes {
            Some(minutes) => Some(Instant::now() + Duration::try_from_secs_f64(minutes * 60.0)?),
            None => None,
        };
        let single = self.is_single();
        let runs = match self.runs {
            _ if until.is_some() => u64::MAX,
            Some(runs) => runs,
            None => {
                if single {
                    1
                } else {
                    200
                }
            }
        };
        // Half an hour later is too late to learn that nothing can be kept there.
        std::fs::create_dir_all(&self.findings)
            .with_context(|| format!("cannot make the folder {}", self.findings.display()))?;
        let mut report = Report {
            first_seed: Some(first),
            ..Report::default()
        };
        let progress = Progress::new("sim", runs.min(1_000_000) as usize);
        let (mut seed, mut following) = (first, Random::new(first));
        while report.runs < runs && until.is_none_or(|until| Instant::now() < until) {
            progress.step(&format!("seed {seed}, {} found", report.findings.len()));
            let plan = Plan::draw(seed);
            let capture = self.capture.as_deref().filter(|_| single);
            match run(&plan, capture)? {
                Ok(run) => report.add(&run, single),
                Err(finding) => {
                    report.runs += 1;
                    report.findings.push(self.keep(seed, plan, finding)?);
                    if report.findings.len() == MOST_FINDINGS {
                        break;
                    }
                }
            }
            seed = following.next_u64();
        }
        Ok(report)
    }

    /// Reduces a finding, and writes the small plan and its packets.
    fn keep(&self, seed: u64, plan: Plan, finding: Finding) -> Result<Found> {
        let what = finding.to_string();
        let small = swarm::reduce(plan, finding, REDUCTION_RUNS, &mut |plan| swarm::run(plan).err());
        let file = |ending: &str| self.findings.join(format!("softroce-sim-{seed}.{ending}"));
        let (plan, capture) = (file("json"), file("pcapng"));
        std::fs::write(&plan, serde_json::to_string_pretty(&small.plan)?)
            .with_context(|| format!("cannot write {}", plan.display()))?;
        // That something is found is known.
        let _ = run(&small.plan, Some(&capture))?;
        Ok(Found {
            seed: Some(seed),
            what: format!("{what}; reduced in {} runs to: {}", small.runs, small.finding),
            plan,
            capture,
        })
    }

    fn print(&self, report: &Report) -> io::Result<()> {
        let mut out = output::standard();
        if self.json {
            serde_json::to_writer_pretty(&mut out, report)?;
            return writeln!(out);
        }
        for found in &report.findings {
            let seed = found
                .seed
                .map_or("the plan".into(), |seed| format!("seed {seed}"));
            writeln!(out, "FOUND    {seed}: {}", found.what)?;
            writeln!(
                out,
                "         again with: softroce sim --plan {} ; packets: {}",
                found.plan.display(),
                found.capture.display()
            )?;
        }
        if let Some(hash) = &report.trace_hash {
            writeln!(out, "trace hash {hash}")?;
        }
        let seeds = report
            .first_seed
            .map_or(String::new(), |seed| format!(" from seed {seed}"));
        writeln!(
            out,
            "{} runs{seeds}: {} packets in {:.1} s of virtual time, {} findings",
            report.runs,
            report.packets,
            report.virtual_seconds,
            report.findings.len()
        )
    }
}

/// Run a plan, with a capture or without.
fn run(plan: &Plan, capture: Option<&Path>) -> Result<Result<Run, Finding>> {
    match capture {
        None => Ok(swarm::run(plan)),
        Some(path) => {
            swarm::run_captured(plan, path).with_context(|| format!("{} cannot be written", path.display()))
        }
    }
}

impl Report {
    fn add(&mut self, run: &Run, is_single: bool) {
        self.runs += 1;
        self.packets += run.packets;
        self.virtual_seconds += run.ended.as_nanos() as f64 / 1e9;
        if is_single {
            self.trace_hash = Some(format!("{:#018x}", run.trace_hash));
        }
    }
}
