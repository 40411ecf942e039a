//! Programs under `softroce run` while they run: which of them a command is about, and telling them something.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use softroce::journal::ask::{self, Answer, Question};

use crate::output;
use crate::run::session;

/// How long processes have to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which programs.
#[derive(Args, Debug)]
pub struct Running {
    /// Only programs of the `softroce run` with this process number; else all of this user, as standard error tells
    #[arg(long, value_name = "PID")]
    run: Option<u32>,

    /// Print who was told, and the answers, as JSON
    #[arg(long)]
    json: bool,
}

/// A device that has answered.
struct Told {
    /// The process number of `softroce run`.
    run: u32,
    /// What the process is called.
    program: String,
    device: String,
    /// Why it does not do what it was told.
    refusal: Option<String>,
    answer: Answer,
}

impl Told {
    fn new(run: u32, answer: Answer) -> Told {
        let (device, refusal) = match answer.device.split_once(": ") {
            Some((device, refusal)) => (device.to_owned(), Some(refusal.to_owned())),
            None => (answer.device.clone(), None),
        };
        Told {
            run,
            program: program_of(answer.process),
            device,
            refusal,
            answer,
        }
    }
}

/// The name of a process, without characters that a terminal would take for commands.
fn program_of(process: u32) -> String {
    let name = fs::read(Path::new("/proc").join(process.to_string()).join("comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    match name.trim_end() {
        "" => "?".into(),
        name => name.escape_debug().to_string(),
    }
}

impl Running {
    /// Tell them, and say whom. Of each device follows what `lines` makes of its answer; in JSON, what `value` makes of it.
    ///
    /// # Errors
    /// Nobody is there, or somebody has not done it.
    pub fn tell(
        &self,
        question: &Question,
        lines: impl Fn(&Answer) -> Result<()>,
        value: impl Fn(&Answer) -> Value,
    ) -> Result<()> {
        let (mut told, mut silent) = (Vec::new(), Vec::<u32>::new());
        for (run, directory) in session::all() {
            if self.run.is_some_and(|meant| meant != run) {
                continue;
            }
            let (answers, without) = ask::ask(&directory, question, PATIENCE);
            told.extend(answers.into_iter().map(|answer| Told::new(run, answer)));
            silent.extend(without);
        }
        for process in &silent {
            eprintln!("softroce: process {process} did not answer");
        }
        if told.is_empty() {
            if self.json {
                output::line(json!({ "told": [], "silent": silent }))?;
            }
            match self.run {
                Some(run) => {
                    bail!("no program of this user has a device open under the `softroce run` {run}")
                }
                None => bail!("no program of this user has a device open under `softroce run`"),
            }
        }
        told.sort_by(|a, b| (a.run, a.answer.process, &a.device).cmp(&(b.run, b.answer.process, &b.device)));
        match self.json {
            true => output::line(json!({
                "told": told.iter().map(|told| to_json(told, value(&told.answer))).collect::<Vec<_>>(),
                "silent": silent,
            }))?,
            false => show(&told, lines)?,
        }
        match told.iter().filter(|told| told.refusal.is_some()).count() {
            0 => Ok(()),
            refusals => bail!(
                "{} of {} did not do it",
                refusals,
                output::count(told.len() as u64, "device")
            ),
        }
    }
}

fn to_json(told: &Told, answer: Value) -> Value {
    json!({
        "run": told.run,
        "process": told.answer.process,
        "program": told.program,
        "device": told.device,
        "error": told.refusal,
        "answer": answer,
    })
}

/// On standard error which runs it was, on standard output what the devices say.
fn show(told: &[Told], lines: impl Fn(&Answer) -> Result<()>) -> Result<()> {
    for of_run in told.chunk_by(|a, b| a.run == b.run) {
        let mut programs: Vec<String> = of_run
            .iter()
            .map(|told| format!("{} (process {})", told.program, told.answer.process))
            .collect();
        programs.dedup();
        eprintln!("softroce: run {}: {}", of_run[0].run, programs.join(", "));
    }
    for told in told {
        output::line(format_args!(
            "{} of process {}",
            told.answer.device, told.answer.process
        ))?;
        lines(&told.answer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_and_one_that_is_gone_has_none() {
        assert!(!program_of(std::process::id()).is_empty());
        assert_eq!(program_of(u32::MAX), "?");
    }

    #[test]
    fn an_answer_says_whether_the_device_has_done_it() {
        let told = |device: &str| {
            let answer = Answer {
                process: std::process::id(),
                device: device.into(),
                entries: Vec::new(),
                lines: Vec::new(),
            };
            let told = Told::new(7, answer);
            (told.device, told.refusal)
        };
        assert_eq!(told("softroce0"), ("softroce0".into(), None));
        assert_eq!(
            told("softroce0: line 3: no such rule"),
            ("softroce0".into(), Some("line 3: no such rule".into()))
        );
    }
}
