//! The `softroce` command.
#![deny(unsafe_code)]
#![allow(missing_docs)] // Field docs of commands are their help texts; the rest is private to this program.

mod analyze;
mod compare;
mod conformance;
mod control;
mod decode;
mod device;
mod devices;
mod drill;
mod endpoint;
mod faults;
mod input;
mod ladder;
mod output;
mod perf;
mod pingpong;
mod port;
mod progress;
mod run;
mod running;
mod sim;
mod stats;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An RDMA network card in software: RoCEv2 over UDP, with no hardware, no root and no kernel module.
#[derive(Parser, Debug)]
#[command(name = "softroce", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Devices(devices::Devices),
    Run(run::Run),
    Env(run::Env),
    Port(port::Port),
    Faults(faults::Faults),
    Decode(decode::Decode),
    Analyze(analyze::Analyze),
    Ladder(ladder::Ladder),
    Pingpong(pingpong::Pingpong),
    Perf(perf::Perf),
    Conformance(conformance::Conformance),
    Drill(drill::Drill),
    Sim(sim::Sim),
}

/// Exit status for wrong use, as of the command line; of commands whose status 1 is a verdict, for all other failures.
const WRONG_USE: u8 = 2;
/// Exit status for other failures that are no verdict.
const FAILURE: u8 = 1;

/// The error with its causes. Some errors already tell their cause, which is not said twice.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// For commands whose status 1 is a verdict: an error is told, and is none.
fn without_verdict(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "softroce: {}", message(&error));
        ExitCode::from(WRONG_USE)
    })
}

fn main() -> ExitCode {
    compare::pin_as_asked();
    let command = Cli::parse().command;
    if let Err(error) = softroce_log::start() {
        let _ = writeln!(
            io::stderr(),
            "softroce: {}",
            format_args!("{}: {error}", softroce_log::VARIABLE)
        );
        return ExitCode::from(WRONG_USE);
    }
    let done = match command {
        Command::Devices(devices) => devices.run().map(|()| ExitCode::SUCCESS),
        Command::Run(run) => run.run(),
        Command::Env(env) => env.run().map(|()| ExitCode::SUCCESS),
        Command::Port(port) => port.run().map(|()| ExitCode::SUCCESS),
        Command::Faults(faults) => faults.run(),
        Command::Decode(decode) => decode.run(),
        Command::Analyze(analyze) => analyze.run(),
        Command::Ladder(ladder) => ladder.run(),
        Command::Pingpong(pingpong) => pingpong.run().map(|()| ExitCode::SUCCESS),
        Command::Perf(perf) => perf.run().map(|()| ExitCode::SUCCESS),
        Command::Conformance(conformance) => Ok(without_verdict(conformance.run())),
        Command::Drill(drill) => Ok(without_verdict(drill.run())),
        Command::Sim(sim) => Ok(without_verdict(sim.run())),
    };
    done.unwrap_or_else(|error| {
        // Where nobody can be told, the status tells.
        let _ = writeln!(io::stderr(), "softroce: {}", message(&error));
        ExitCode::from(FAILURE)
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;
    use verbs_api::Error;

    use super::message;

    #[test]
    fn a_cause_is_told_once() {
        let cause = || io::Error::from_raw_os_error(28);
        let told = "the disk: No space left on device (os error 28)";
        let own = anyhow::Error::from(Error::system("the disk", cause()));
        assert_eq!(message(&own), told);
        let added = Err::<(), _>(cause()).context("the disk").unwrap_err();
        assert_eq!(message(&added), told);
    }
}
