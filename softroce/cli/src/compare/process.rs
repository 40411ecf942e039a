//! Pairs of processes: a server on the first CPU and a client on the second.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Names the CPU to which a child of ours pins itself.
pub const PIN_VARIABLE: &str = "SOFTROCE_PIN_CPU";

/// Longest time for one measurement.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the two processes of a measurement run.
pub struct Pair {
    pinned: bool,
    port: AtomicU16,
}

/// A child that does not outlive its measurement.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pair {
    /// Pinned, where there are two CPUs.
    pub fn new(pinned: bool) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let port = 20_000 + (std::process::id() % 20_000) as u16;
        Pair {
            pinned: pinned && cpus >= 2,
            port: AtomicU16::new(port),
        }
    }

    /// Whether processes are pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// A port not used by this run yet.
    pub fn next_port(&self) -> u16 {
        self.port.fetch_add(1, Ordering::Relaxed)
    }

    /// Run `server` and `client` to the client's end; what the client printed.
    pub fn run(&self, server: &mut Command, client: &mut Command) -> Result<String> {
        let _server = Guard(
            self.place(server, 0)
                .spawn()
                .with_context(|| format!("starting {server:?}"))?,
        );
        std::thread::sleep(Duration::from_millis(150));
        let child = self
            .place(client, 1)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut client = Guard(child.with_context(|| format!("starting {client:?}"))?);
        let mut output = client.0.stdout.take().context("the client's output")?;
        let mut errors = client.0.stderr.take().context("the client's errors")?;
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        });
        let error_reader = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).map(|_| text)
        });
        let deadline = Instant::now() + MEASUREMENT_TIMEOUT;
        let status = loop {
            if let Some(status) = client.0.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("no result within {} s", MEASUREMENT_TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let text = reader
            .join()
            .map_err(|_| anyhow::anyhow!("reading the client's output failed"))??;
        if !status.success() {
            let errors = error_reader.join().ok().and_then(Result::ok).unwrap_or_default();
            bail!("the client ended with {status}: {}", errors.trim());
        }
        Ok(text)
    }

    fn place<'c>(&self, command: &'c mut Command, cpu: usize) -> &'c mut Command {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if self.pinned {
            command.env(PIN_VARIABLE, cpu.to_string());
        }
        command
    }

    /// A foreign program, pinned by `taskset` where that is installed.
    pub fn foreign(&self, program: &str, cpu: usize) -> Command {
        if self.pinned && is_installed("taskset") {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), program]);
            command
        } else {
            Command::new(program)
        }
    }

    /// One figure of raw UDP.
    pub fn raw(&self, mode: &str) -> Result<Vec<f64>> {
        let port = self.next_port().to_string();
        let base = ["perf", "raw", mode, "--port", &port];
        let text = self.run(own().args(base), own().args(base).arg("127.0.0.1"))?;
        Ok(vec![
            text.trim()
                .parse()
                .with_context(|| format!("raw {mode} printed {text:?}"))?,
        ])
    }
}

/// This very program.
pub fn own() -> Command {
    Command::new(std::env::current_exe().unwrap_or_else(|_| "softroce".into()))
}

/// Whether a program can be found.
pub fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Run `softroce perf ARGS` and pick figures out of its JSON by dotted keys.
pub fn softroce_figures(pair: &Pair, args: &[String], keys: &[&str]) -> Result<Vec<f64>> {
    let port = pair.next_port().to_string();
    let mut server = own();
    server.arg("perf").args(args).args(["--json", "--port", &port]);
    let mut client = own();
    client
        .arg("perf")
        .args(args)
        .args(["--json", "--port", &port, "127.0.0.1"]);
    let text = pair.run(&mut server, &mut client)?;
    let json: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("output {text:?}"))?;
    keys.iter()
        .map(|key| {
            let value = key.split('.').try_fold(&json, |at, part| at.get(part));
            value
                .and_then(serde_json::Value::as_f64)
                .with_context(|| format!("no {key} in {text:?}"))
        })
        .collect()
}

/// Pin this process to the CPU that its parent chose.
pub fn pin_as_asked() {
    let Some(cpu) = std::env::var(PIN_VARIABLE).ok().and_then(|cpu| cpu.parse().ok()) else {
        return;
    };
    let mut set = nix::sched::CpuSet::new();
    if set.set(cpu).is_ok() {
        // A CPU that is not there leaves the process where it is: slower, not wrong.
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
    }
}
