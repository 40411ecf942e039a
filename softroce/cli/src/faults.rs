//! `softroce faults`: look over files of fault rules, and change the rules of programs that run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use softroce::faults::{self, Rules};
use softroce::journal::ask::{Answer, Question};

use crate::running::Running;
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
        running: Running,
    },
    /// Have running programs go by no rules any more
    Clear {
        #[command(flatten)]
        running: Running,
    },
    /// Show what the rules of running programs have done so far
    Show {
        #[command(flatten)]
        running: Running,
    },
}

/// The longest text that can be sent to a program that runs, bytes.
const SENT_BYTES_MAX: usize = 50_000;
/// Exit status for a file that is wrong.
const WRONG_FILE: u8 = 1;

impl Faults {
    /// Do it.
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Check { files } => return check(&files),
            What::Load { file, running } => {
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
                running.tell(
                    &Question::LoadFaults { number, text },
                    |_| Ok(()),
                    |_| Value::Null,
                )?;
            }
            What::Clear { running } => running.tell(&Question::ClearFaults, |_| Ok(()), |_| Value::Null)?,
            What::Show { running } => running.tell(&Question::ShowFaults, print_rules, rules_as_json)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A rule of a device's answer: how often it matched and hit, and what it is called.
fn rules(answer: &Answer) -> impl Iterator<Item = [&str; 3]> {
    answer.lines.iter().map(|line| {
        let mut fields = line.splitn(3, '\t');
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    })
}

fn print_rules(answer: &Answer) -> Result<()> {
    output::line(format_args!("{:>12} {:>12}  rule", "matched", "hit"))?;
    for [matched, hit, name] in rules(answer) {
        output::line(format_args!("{matched:>12} {hit:>12}  {name}"))?;
    }
    Ok(())
}

fn rules_as_json(answer: &Answer) -> Value {
    let number = |text: &str| text.parse::<u64>().ok();
    rules(answer)
        .map(|[matched, hit, name]| json!({ "matched": number(matched), "hit": number(hit), "rule": name }))
        .collect()
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

/// A line for each rule of a run that never hit in any of its processes.
pub fn never_hit(directory: &Path) -> String {
    let mut hits: BTreeMap<String, u64> = BTreeMap::new();
    for page in faults::pages(directory) {
        *hits.entry(page.name).or_default() += page.hits;
    }
    faults::unhit(hits.iter().map(|(name, hits)| (name.as_str(), *hits)))
}
