//! `softroce port`: take ports down and up under programs that run, to see what they do.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use softroce::journal::ask::{self, Question};

use crate::output;
use crate::run::session;

/// Take the port of the devices of running programs down, or up again: they get IBV_EVENT_PORT_ERR or PORT_ACTIVE, and
/// nothing is sent while it is down. For programs under `softroce run` of this user.
#[derive(Args, Debug)]
pub struct Port {
    /// What becomes of the ports
    state: State,

    /// Only of programs of the `softroce run` with this process number
    #[arg(long, value_name = "PID")]
    run: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// As if the cable had been pulled
    Down,
    /// As the interface is
    Up,
}

/// How long processes have to answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Port {
    /// Tell them all.
    pub fn run(self) -> Result<()> {
        let question = match self.state {
            State::Down => Question::PortDown,
            State::Up => Question::PortUp,
        };
        let mut count = 0;
        for directory in session::all() {
            let is_meant = self
                .run
                .is_none_or(|run| directory.ends_with(format!("run-{run}")));
            if !is_meant {
                continue;
            }
            let (answers, silent) = ask::ask(&directory, &question, PATIENCE);
            for answer in &answers {
                output::line(format_args!("{} of process {}", answer.device, answer.process))?;
            }
            for process in silent {
                eprintln!("softroce: process {process} did not answer");
            }
            count += answers.len();
        }
        if count == 0 {
            bail!("no program of this user has a device open under `softroce run`");
        }
        Ok(())
    }
}
