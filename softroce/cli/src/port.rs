//! `softroce port`: take ports down and up under programs that run, to see what they do.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::Value;
use softroce::journal::ask::Question;

use crate::running::Running;

/// Take the port of the devices of running programs down, or up again: they get IBV_EVENT_PORT_ERR or PORT_ACTIVE, and
/// nothing is sent while it is down. For programs under `softroce run` of this user.
#[derive(Args, Debug)]
pub struct Port {
    /// What becomes of the ports
    state: State,

    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// As if the cable had been pulled
    Down,
    /// As the interface is
    Up,
}

impl Port {
    /// Tell them all.
    pub fn run(self) -> Result<()> {
        let question = match self.state {
            State::Down => Question::PortDown,
            State::Up => Question::PortUp,
        };
        self.running.tell(&question, |_| Ok(()), |_| Value::Null)
    }
}
