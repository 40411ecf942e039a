//! The program as a child process, and this process as one that nobody notices: signals go through to it, it stops and
//! goes on with it, and ends as it ended.
//!
//! Both are in one process group, the caller's: the terminal's signals reach the program from the terminal, and only
//! those that were sent to this process alone are passed on. Whatever the program starts stays below this process, so
//! that a timeout finds all of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, raise, sigaction, sigprocmask,
};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};

use super::environment::Environment;

/// The exit status for a program that is not there, as in shells.
pub(super) const NOT_FOUND: u8 = 127;
/// The exit status for a program that cannot be run.
pub(super) const NOT_RUNNABLE: u8 = 126;
/// The exit status after a timeout, as of timeout(1).
const TIMED_OUT: u8 = 124;

/// How long the program has to end by itself after the timeout's SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// How long processes take to go away after SIGKILL, at most.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Signals that are passed on.
const PASSED_ON: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
];

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With this status.
    Exited(u8),
    /// By a signal.
    Killed(Signal),
    /// By us, since its time was over.
    TimedOut,
}

/// The running program.
pub(super) struct Child {
    pid: Pid,
    signals: SignalFd,
}

impl Child {
    /// Start the program. The status to end with when that fails; why was told.
    pub(super) fn start(
        path: &Path,
        name: &OsStr,
        arguments: &[OsString],
        environment: &Environment,
    ) -> Result<Child, ExitCode> {
        let mut command = Command::new(path);
        command.arg0(name).args(arguments).envs(environment.variables());
        spawn(&mut command).map_err(|error| {
            super::tell(&format!(
                "softroce: {} cannot be run: {error}{}\n",
                path.display(),
                missing_interpreter(path, &error)
            ));
            ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
                NOT_FOUND
            } else {
                NOT_RUNNABLE
            })
        })
    }

    /// Wait for its end, until then at most.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> Option<End> {
        loop {
            if let Some(end) = self.reap() {
                return Some(end);
            }
            let timeout = match until {
                None => PollTimeout::NONE,
                Some(until) => {
                    let left = until.checked_duration_since(Instant::now())?;
                    // Up to a whole millisecond, and never beyond what fits.
                    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
                }
            };
            let mut entries = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if poll(&mut entries, timeout).is_ok_and(|ready| ready > 0) {
                self.pass_on();
            }
        }
    }

    /// Its time is over: end it, and all that it has started.
    pub(super) fn end(&mut self) {
        signal_all(Signal::SIGTERM);
        // One that is stopped would not hear.
        signal_all(Signal::SIGCONT);
        self.wait(Some(Instant::now() + GRACE));
        let patience = Instant::now() + KILL_PATIENCE;
        // Those that were being started meanwhile are found the next time.
        while signal_all(Signal::SIGKILL) > 0 && Instant::now() < patience {
            self.wait(Some(Instant::now() + Duration::from_millis(10)));
        }
    }

    /// Hear of children that ended or stopped; `Some` once the program is among those that ended.
    fn reap(&self) -> Option<End> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        let mut end = None;
        loop {
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::Exited(pid, status)) if pid == self.pid => {
                    end = Some(End::Exited(status as u8));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => {
                    end = Some(End::Killed(signal));
                }
                Ok(WaitStatus::Stopped(pid, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU))
                    if pid == self.pid =>
                {
                    // The shell must see the job stop; when it goes on, so does the program.
                    let _ = raise(Signal::SIGSTOP);
                    let _ = kill(self.pid, Signal::SIGCONT);
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return end,
                Err(Errno::EINTR) | Ok(_) => {}
                Err(_) => return end,
            }
        }
    }

    /// Take the signals that wait.
    fn pass_on(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            // What the terminal sends reaches the program as well, by itself.
            let was_sent = info.ssi_code <= 0;
            let signal = Signal::try_from(info.ssi_signo.cast_signed());
            if let Ok(signal) = signal
                && was_sent
                && signal != Signal::SIGCHLD
            {
                let _ = kill(self.pid, signal);
            }
        }
    }
}

/// What is missing when the program itself is there.
fn missing_interpreter(path: &Path, error: &io::Error) -> String {
    match super::program::interpreter_of(path) {
        Some(interpreter) if error.kind() == io::ErrorKind::NotFound => {
            format!("; its interpreter is {interpreter:?}")
        }
        Some(_) | None => String::new(),
    }
}

impl End {
    /// End as the program did: with its status, or by its signal.
    pub(super) fn follow(self) -> ExitCode {
        match self {
            End::Exited(status) => ExitCode::from(status),
            End::TimedOut => ExitCode::from(TIMED_OUT),
            End::Killed(signal) => {
                // The program has left its core already, if it was to.
                let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
                die_by(signal);
                ExitCode::from(128_u8.wrapping_add(signal as i32 as u8))
            }
        }
    }
}

/// Start it with this process's signals unblocked again, so that none is lost between.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut mask = SigSet::empty();
    for signal in PASSED_ON {
        mask.add(signal);
    }
    mask.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), Some(&mut before))?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    // Where that is refused, a timeout does not find what was left behind by its parent; nothing else changes.
    let _ = prctl::set_child_subreaper(true);
    in_child(command, before);
    let pid = Pid::from_raw(command.spawn()?.id().cast_signed());
    Ok(Child { pid, signals })
}

/// In the new process: the signal mask that we were given, and an end together with ours, even if that comes by SIGKILL.
#[allow(unsafe_code)]
fn in_child(command: &mut Command, mask: SigSet) {
    let parent = nix::unistd::getpid();
    let set_up = move || {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            // It died before.
            let _ = raise(Signal::SIGKILL);
        }
        Ok(())
    };
    // SAFETY: the closure makes three system calls and touches no memory but its own.
    unsafe { command.pre_exec(set_up) };
}

#[allow(unsafe_code)]
fn die_by(signal: Signal) {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this process.
    let _ = unsafe { sigaction(signal, &action) };
    let mut set = SigSet::empty();
    set.add(signal);
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None);
    let _ = raise(signal);
}

/// Send a signal to every process below this one; how many there were.
fn signal_all(signal: Signal) -> usize {
    let below = descendants(std::process::id().cast_signed());
    for pid in &below {
        let _ = kill(Pid::from_raw(*pid), signal);
    }
    below.len()
}

/// The processes below `root` that have not ended.
fn descendants(root: i32) -> Vec<i32> {
    let processes: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parent_of_living(&stat)?))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for (pid, of) in &processes {
            if *of == parent && !found.contains(pid) {
                found.push(*pid);
            }
        }
    }
    found.remove(0);
    found
}

/// The parent in a line of `/proc/PID/stat`, unless the process has ended. The name may hold anything, brackets too.
fn parent_of_living(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name() {
        assert_eq!(parent_of_living("7 (a) S 3 (b)) S 12 7 7 0"), Some(12));
        assert_eq!(parent_of_living("7 (sh) Z 12 7 7 0"), None);
        assert_eq!(parent_of_living("7"), None);
    }

    #[test]
    fn processes_below_this_one_are_found() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = sleeper.id().cast_signed();
        assert!(descendants(std::process::id().cast_signed()).contains(&pid));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(!descendants(std::process::id().cast_signed()).contains(&pid));
    }
}
