//! `softroce run -- PROGRAM`: an unmodified verbs program on softroce.
//!
//! The program is started with the drop-in preloaded: it has the soname `libibverbs.so.1`, so that the dynamic linker
//! takes it for the library that the program asks for. Programs that open the library by name while they run find it
//! through a private directory of links that is put in front of `LD_LIBRARY_PATH`.
//!
//! Programs that look at `/sys/class/infiniband` and `/dev/infiniband` find the devices there through a second shared
//! object, which turns such paths into those of a tree of files made here.
//!
//! This process becomes the program: signals, terminal and exit status are the program's own.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use softroce::{DeviceDescription, Options, Softroce};

use child::{NOT_FOUND, NOT_RUNNABLE};
use environment::Environment;

mod child;
mod environment;
mod links;
mod program;
mod system_files;
mod tree;

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

        let mut environment = Environment::of_objects(&drop_in, &links::find_paths()?, &links);
        environment.set_addresses(&self.device_address);
        environment.set_tree(&tree::tree(&self.devices()?)?);
        if let Some(file) = &self.capture {
            environment.set_capture(file)?;
        }
        Ok(child::become_program(&path, name, arguments, &environment))
    }

    /// The devices that the program will find.
    fn devices(&self) -> Result<Vec<DeviceDescription>> {
        let mut options = Options::from_env()?;
        if !self.device_address.is_empty() {
            options.addresses = self.device_address.clone();
        }
        Ok(Softroce::new(options)?.describe()?)
    }
}
