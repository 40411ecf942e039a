//! The `softroce` command.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // Field docs of commands are their help texts; the rest is private to this program.

mod compare;
mod conformance;
mod control;
mod decode;
mod device;
mod devices;
mod endpoint;
mod perf;
mod pingpong;
mod progress;
mod run;
mod stats;

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
    Decode(decode::Decode),
    Pingpong(pingpong::Pingpong),
    Perf(perf::Perf),
    Conformance(conformance::Conformance),
}

/// Exit status for wrong use and for failures that are no verdict.
const FAILURE: u8 = 1;

fn main() -> ExitCode {
    compare::pin_as_asked();
    let done = match Cli::parse().command {
        Command::Devices(devices) => devices.run().map(|()| ExitCode::SUCCESS),
        Command::Run(run) => run.run(),
        Command::Decode(decode) => decode.run(),
        Command::Pingpong(pingpong) => pingpong.run().map(|()| ExitCode::SUCCESS),
        Command::Perf(perf) => perf.run().map(|()| ExitCode::SUCCESS),
        Command::Conformance(conformance) => conformance.run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("softroce: {error:#}");
        ExitCode::from(FAILURE)
    })
}
