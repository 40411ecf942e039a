//! Processes that always end: started in a group of their own, waited for with a limit, killed by id.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::case::{Outcome, Stop};
use crate::scratch::Scratch;

/// A program about to be started: the words of its command line, and where its output goes.
#[derive(Debug)]
pub struct Program {
    words: Vec<OsString>,
    variables: Vec<(String, OsString)>,
    output: PathBuf,
}

impl Program {
    /// A command line whose output is kept in `scratch`.
    pub fn new<W: AsRef<OsStr>>(scratch: &Scratch, words: impl IntoIterator<Item = W>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Program {
            words: words.into_iter().map(|word| word.as_ref().to_owned()).collect(),
            variables: Vec::new(),
            output: scratch.file(&format!("process-{number}")),
        }
    }

    /// Adds words to the command line.
    pub fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words
            .extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts it.
    pub fn start(self) -> Result<Running, Stop> {
        let line = self.words.join(OsStr::new(" ")).to_string_lossy().into_owned();
        let stdout = self.output.with_extension("out");
        let stderr = self.output.with_extension("err");
        let (name, arguments) = self
            .words
            .split_first()
            .ok_or_else(|| Stop::fail("an empty command line"))?;
        let child = Command::new(name)
            .args(arguments)
            .envs(self.variables)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .process_group(0)
            .spawn()
            .map_err(|error| Stop::Fail(format!("cannot start `{line}`: {error}")))?;
        let started = Instant::now();
        let ended = watch(&child);
        Ok(Running {
            line,
            child,
            started,
            ended,
            stdout,
            stderr,
            reaped: false,
        })
    }

    /// Starts it and waits for its end.
    pub fn finish(self, limit: Duration) -> Result<Finished, Stop> {
        self.start()?.wait(limit)
    }
}

/// Tells by message when `child` has ended, and leaves it to be reaped, so that its id stays ours till then.
fn watch(child: &Child) -> Receiver<Instant> {
    let (tell, ended) = channel();
    let pid = pid_of(child);
    std::thread::spawn(move || {
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        let _ = tell.send(Instant::now());
    });
    ended
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// A process that was started; dropping it kills it and its group.
#[derive(Debug)]
pub struct Running {
    line: String,
    child: Child,
    started: Instant,
    ended: Receiver<Instant>,
    stdout: PathBuf,
    stderr: PathBuf,
    reaped: bool,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal (to it alone, not to its children).
    pub fn signal(&self, signal: Signal) -> Outcome {
        kill(pid_of(&self.child), signal)
            .map_err(|error| Stop::Fail(format!("cannot send {signal} to `{}`: {error}", self.line)))
    }

    /// Whether it has ended by now.
    pub fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        !matches!(
            waitid(Id::Pid(pid_of(&self.child)), flags),
            Ok(nix::sys::wait::WaitStatus::StillAlive)
        )
    }

    /// What it has printed to stdout so far.
    pub fn stdout(&self) -> String {
        read_lossy(&self.stdout)
    }

    /// What it has printed to stderr so far.
    pub fn stderr(&self) -> String {
        read_lossy(&self.stderr)
    }

    /// Waits for its end; one that takes longer than `limit` is killed, and that is a failure.
    pub fn wait(mut self, limit: Duration) -> Result<Finished, Stop> {
        match self.ended.recv_timeout(limit) {
            Ok(at) => {
                let status = self.reap()?;
                Ok(Finished {
                    line: self.line.clone(),
                    status,
                    stdout: self.stdout(),
                    stderr: self.stderr(),
                    took: at.duration_since(self.started),
                    ended: at,
                })
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(Stop::Fail(format!(
                "`{}` did not end within {limit:?}.\n{}",
                self.line,
                self.report()
            ))),
        }
    }

    /// What it is and what it printed, for a failure's message.
    pub fn report(&self) -> String {
        transcript(&self.stdout(), &self.stderr())
    }

    fn reap(&mut self) -> std::io::Result<ExitStatus> {
        // The group goes before its leader is reaped: only till then is the group's id surely ours.
        let _ = killpg(pid_of(&self.child), Signal::SIGKILL);
        let status = self.child.wait();
        self.reaped = true;
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.reap();
        }
    }
}

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    line: String,
    status: ExitStatus,
    /// What it printed to stdout.
    pub stdout: String,
    /// What it printed to stderr.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
    /// When it ended.
    pub ended: Instant,
}

impl Finished {
    /// Its exit status; none if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Fails unless it exited with status 0.
    pub fn succeeded(&self) -> Outcome {
        if self.status.success() {
            Ok(())
        } else {
            Err(Stop::Fail(format!("should succeed: {self}")))
        }
    }

    /// Fails unless it refused in an orderly way: a status that is neither 0 nor that of a panic, no signal,
    /// and a message on stderr that names each of `words` (in any case).
    pub fn refused_naming(&self, words: &[&str]) -> Outcome {
        let orderly = matches!(self.status.code(), Some(code) if code != 0 && code != 101);
        if !orderly || self.stderr.contains("panicked at") {
            return Err(Stop::Fail(format!("should end with an orderly error: {self}")));
        }
        if self.stderr.trim().is_empty() {
            return Err(Stop::Fail(format!("stderr should tell what was wrong: {self}")));
        }
        let said = self.stderr.to_lowercase();
        for word in words {
            if !said.contains(&word.to_lowercase()) {
                return Err(Stop::Fail(format!("the error should name `{word}`: {self}")));
            }
        }
        Ok(())
    }
}

impl Display for Finished {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` ", self.line)?;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(out, "exited with status {code}")?,
            (None, Some(signal)) => write!(out, "was ended by signal {signal}")?,
            (None, None) => write!(out, "ended as {:?}", self.status)?,
        }
        write!(
            out,
            " after {:?}\n{}",
            self.took,
            transcript(&self.stdout, &self.stderr)
        )
    }
}

fn read_lossy(path: &PathBuf) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn transcript(stdout: &str, stderr: &str) -> String {
    format!("--- stdout\n{}\n--- stderr\n{}", ends_of(stdout), ends_of(stderr))
}

/// A long output's first and last part.
fn ends_of(text: &str) -> String {
    const SHOWN: usize = 40;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.len() <= 2 * SHOWN {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..SHOWN], &lines[lines.len() - SHOWN..]);
    format!(
        "{}\n[{} lines left out]\n{}",
        head.join("\n"),
        lines.len() - 2 * SHOWN,
        tail.join("\n")
    )
}
