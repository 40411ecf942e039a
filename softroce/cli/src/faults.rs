//! `softroce faults`: look over files of fault rules, and change the rules of programs that run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use softroce::faults::{self, Rules};
use softroce::journal::ask::{self, Answer, Question};

use crate::run::session;
use crate::{input, output};

/// Fault rules: look over a file of them, and change those of programs under `softroce run` while they run.
#[derive(Args, Debug)]
pub struct Faults {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Look over a file: what it says, or where it is wrong
    Check {
        /// Files of rules
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Have running programs go by the rules of this file from now on
    Load {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        run: OfRun,
    },
    /// Have running programs go by no rules any more
    Clear {
        #[command(flatten)]
        run: OfRun,
    },
    /// Show what the rules of running programs have done so far
    Show {
        #[command(flatten)]
        run: OfRun,
    },
}

#[derive(Args, Debug)]
struct OfRun {
    /// Only of programs of the `softroce run` with this process number
    #[arg(long, value_name = "PID")]
    run: Option<u32>,
}

/// How long processes have to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest text that can be sent to a program that runs, bytes.
const SENT_BYTES_MAX: usize = 50_000;
/// Exit status for a file that is wrong.
const WRONG_FILE: u8 = 1;

impl Faults {
    /// Do it.
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Check { files } => check(&files),
            What::Load { file, run } => {
                let text = read(&file)?;
                if text.len() > SENT_BYTES_MAX {
                    bail!(
                        "{} has {} bytes; {SENT_BYTES_MAX} at most can be sent to a program that runs",
                        file.display(),
                        text.len()
                    );
                }
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let number = since.as_nanos() as u64;
                tell(&run, &Question::LoadFaults { number, text }, |_| Ok(()))
            }
            What::Clear { run } => tell(&run, &Question::ClearFaults, |_| Ok(())),
            What::Show { run } => tell(&run, &Question::ShowFaults, |answer| {
                output::line(format_args!("{:>12} {:>12}  rule", "matched", "hit"))?;
                for line in &answer.lines {
                    let mut fields = line.splitn(3, '\t');
                    let mut next = || fields.next().unwrap_or_default();
                    output::line(format_args!("{:>12} {:>12}  {}", next(), next(), next()))?;
                }
                Ok(())
            }),
        }
    }
}

/// The text of a file of rules, if it is one.
pub fn read(file: &Path) -> Result<String> {
    let text = input::text(file).with_context(|| format!("reading {}", file.display()))?;
    match Rules::parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => bail!("{}: {error}", file.display()),
    }
}

fn check(files: &[PathBuf]) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for file in files {
        let shown = file.display();
        match input::text(file).map(|text| Rules::parse(&text)) {
            Ok(Ok(rules)) => output::line(format_args!(
                "{shown}: {} about packets, {} about calls, {} about completions, {}",
                output::count(rules.packets.len() as u64, "rule"),
                rules.verbs.len(),
                rules.completions.len(),
                output::count(rules.events.len() as u64, "event"),
            ))?,
            Ok(Err(error)) => {
                eprintln!("{shown}: {error}");
                status = ExitCode::from(WRONG_FILE);
            }
            Err(error) => {
                eprintln!("{shown}: {error}");
                status = ExitCode::from(WRONG_FILE);
            }
        }
    }
    Ok(status)
}

/// Tell running programs, and show who heard.
fn tell(of: &OfRun, question: &Question, show: impl Fn(&Answer) -> Result<()>) -> Result<ExitCode> {
    let mut count = 0;
    for directory in session::all() {
        let is_meant = of.run.is_none_or(|run| directory.ends_with(format!("run-{run}")));
        if !is_meant {
            continue;
        }
        let (answers, silent) = ask::ask(&directory, question, PATIENCE);
        for answer in &answers {
            output::line(format_args!("{} of process {}", answer.device, answer.process))?;
            show(answer)?;
        }
        for process in silent {
            eprintln!("softroce: process {process} did not answer");
        }
        count += answers.len();
    }
    if count == 0 {
        bail!("no program of this user has a device open under `softroce run`");
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each rule of a run that never hit in any of its processes.
pub fn never_hit(directory: &Path) -> String {
    let mut hits: BTreeMap<String, u64> = BTreeMap::new();
    for page in faults::pages(directory) {
        *hits.entry(page.name).or_default() += page.hits;
    }
    faults::unhit(hits.iter().map(|(name, hits)| (name.as_str(), *hits)))
}
