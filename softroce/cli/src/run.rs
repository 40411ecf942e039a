//! `softroce run -- PROGRAM`: an unmodified verbs program on softroce.
//!
//! The program is started with the drop-in preloaded: it has the soname `libibverbs.so.1`, so that the dynamic linker
//! takes it for the library that the program asks for. Programs that open the library by name while they run find it
//! through a private directory of links that is put in front of `LD_LIBRARY_PATH`.
//!
//! Programs that look at `/sys/class/infiniband` and `/dev/infiniband` find the devices there through a second shared
//! object, which turns such paths into those of a tree of files made here.
//!
//! This process stays, as its parent, and is not noticed: signals, terminal and exit status are the program's own. When
//! the program fails, it says why (`explain`).

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use nix::sys::signal::Signal;

use child::{Child, End, NOT_FOUND, NOT_RUNNABLE};
use environment::Environment;
use explain::Report;
use options::Options;
use session::Session;

mod capture;
mod child;
mod env;
mod environment;
mod explain;
mod links;
mod options;
mod private;
mod program;
pub mod session;
mod system_files;
mod tree;

pub use env::Env;
pub use links::find_drop_in;

/// Run an unmodified verbs program on softroce.
#[derive(Args, Debug)]
pub struct Run {
    #[command(flatten)]
    options: Options,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Where packets are kept.
enum Recording {
    Nowhere,
    /// All of them; the file is held as long as the run lives.
    All(PathBuf, Option<File>),
    /// The last ones, for this file.
    Last(PathBuf),
}

impl Run {
    /// Run the program to its end.
    pub fn run(self) -> Result<ExitCode> {
        let (name, arguments) = self.program.split_first().context("no program was named")?;
        let Some(path) = program::find(name) else {
            tell(&format!(
                "softroce: there is no program {} in PATH or at this place\n",
                name.display()
            ));
            return Ok(ExitCode::from(NOT_FOUND));
        };
        if let Some(reason) = program::obstacle(&path)? {
            tell(&format!(
                "softroce: {} cannot run on softroce: {reason}\n",
                path.display()
            ));
            return Ok(ExitCode::from(NOT_RUNNABLE));
        }
        if let Some(rival) = program::rival(&path) {
            tell(&format!(
                "softroce: the path in {} (DT_RPATH) leads to {}; should it open libibverbs.so while it runs, it gets that one\n",
                path.display(),
                rival.display()
            ));
        }
        let time = self.options.timeout()?;
        let mut environment = Environment::new(&self.options)?;
        let session = Session::open()?;
        environment.set_journal(session.directory());
        let recording = self.record(&session, &mut environment)?;

        let mut child = match Child::start(&path, name, arguments, &environment) {
            Ok(child) => child,
            Err(status) => return Ok(status),
        };
        let ended = child.wait(time.map(|time| Instant::now() + time));
        let (end, waiting) = match ended {
            Some(end) => (end, Default::default()),
            None => {
                let waiting = explain::ask(session.directory());
                child.end();
                (End::TimedOut, waiting)
            }
        };
        tell(&crate::faults::never_hit(session.directory()));
        if end != End::Exited(0) {
            let report = Report::new(session.directory(), waiting);
            if report.knows_failures() || !was_asked_to_end(end) {
                let capture = recording.after_failure(&session);
                let capture = capture
                    .as_ref()
                    .map(|(file, about)| (file.as_path(), about.clone()));
                tell(&report.text(&explain::name_of(name), &end, time, capture));
            }
        }
        drop((session, recording));
        Ok(end.follow())
    }

    fn record(&self, session: &Session, environment: &mut Environment) -> Result<Recording> {
        if let Some(file) = self.options.capture() {
            environment.set_capture(&file)?;
            let held = capture::hold(&file)?;
            return Ok(Recording::All(file, held));
        }
        if let Some(file) = self.options.capture_on_failure() {
            environment.set_last_packets(session.directory());
            return Ok(Recording::Last(file));
        }
        Ok(Recording::Nowhere)
    }
}

impl Recording {
    /// The capture of a program that failed, and what else to say of it.
    fn after_failure(&self, session: &Session) -> Option<(PathBuf, String)> {
        match self {
            Recording::Nowhere => None,
            Recording::All(file, held) => held.as_ref().map(|_| (file.clone(), String::new())),
            Recording::Last(file) => match capture::put_together(session.directory(), file) {
                Ok(Some((packets, processes))) => Some((
                    file.clone(),
                    format!(" (the last {packets} packets of {processes} processes)"),
                )),
                Ok(None) => None,
                Err(error) => {
                    tell(&format!("softroce: no capture: {}\n", crate::message(&error)));
                    None
                }
            },
        }
    }
}

/// By somebody who does not wonder why.
fn was_asked_to_end(end: End) -> bool {
    matches!(
        end,
        End::Killed(Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGPIPE)
    )
}

/// On standard error. Where nobody can be told, the status tells.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
