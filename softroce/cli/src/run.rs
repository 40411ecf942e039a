//! `softroce run -- PROGRAM`: an unmodified verbs program on softroce.
//!
//! The program is started with the drop-in preloaded: it has the soname `libibverbs.so.1`, so that the dynamic linker
//! takes it for the library that the program asks for. Programs that open the library by name while they run find it
//! through a private directory of links that is put in front of `LD_LIBRARY_PATH`.
//!
//! This process becomes the program: signals, terminal and exit status are the program's own.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use child::{NOT_FOUND, NOT_RUNNABLE};
use environment::Environment;

mod child;
mod environment;
mod links;
mod program;

/// Run an unmodified verbs program on softroce.
#[derive(Args, Debug)]
pub struct Run {
    /// Addresses of the devices, separated by commas: softroce0 on the first (default 127.0.0.1).
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    device_address: Vec<IpAddr>,

    /// Write every packet of the program to this pcapng file.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

impl Run {
    /// Become the program; returns only when that fails.
    pub fn run(self) -> Result<ExitCode> {
        let (name, arguments) = self.program.split_first().context("no program was named")?;
        let Some(path) = program::find(name) else {
            eprintln!(
                "softroce: there is no program {} in PATH or at this place",
                name.display()
            );
            return Ok(ExitCode::from(NOT_FOUND));
        };
        if let Some(reason) = program::obstacle(&path)? {
            eprintln!("softroce: {} cannot run on softroce: {reason}", path.display());
            return Ok(ExitCode::from(NOT_RUNNABLE));
        }
        let drop_in = links::find_drop_in()?;
        let links = links::link_directory(&drop_in)?;

        let mut environment = Environment::of_drop_in(&drop_in, &links);
        environment.set_addresses(&self.device_address);
        if let Some(file) = &self.capture {
            environment.set_capture(file)?;
        }
        Ok(child::become_program(&path, name, arguments, &environment))
    }
}
