//! `softroce drill`: scripts that play one end of a conversation.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use drill::{Agent, Bench, LocalDut, RemoteDut, Script, SimBench, Span, WireBench};
use serde::Serialize;
use verbs_api::{Context as _, GidType, Provider};
use verbs_native::Native;

use crate::device::DeviceArgs;
use crate::progress::Progress;
use crate::{input, output};

/// The port of agents, where none is given.
const AGENT_PORT: u16 = 18_790;

/// The exit status when a script is no script, or there is none.
const WRONG_SCRIPT: u8 = 2;

/// Play one end of RDMA conversations by scripts, and check what the device at the other end does
#[derive(Args, Debug)]
pub struct Drill {
    /// Scripts, or folders of *.drill files
    #[arg(
        value_name = "FILE",
        required_unless_present = "serve",
        conflicts_with = "serve"
    )]
    scripts: Vec<PathBuf>,
    /// Against the embedded engine in virtual time; so it is without --target too
    #[arg(long, conflicts_with_all = ["target", "serve"])]
    sim: bool,
    /// Against the device that `softroce drill --serve` serves there, in real time (TCP port 18790 when left out)
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "serve")]
    target: Option<String>,
    /// With --target: the address of the played end. Nothing else on this host may use it for RDMA
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::new(127, 77, 7, 7)), requires = "target")]
    from: IpAddr,
    /// Serve this host's softroce device to scripts that run elsewhere, until interrupted (127.0.0.1 and TCP port 18790
    /// when left out). Whoever reaches the address may run scripts on it
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    serve: Option<String>,
    /// With --serve: serve so many scripts, then end
    #[arg(long, value_name = "N", requires = "serve", value_parser = clap::value_parser!(u64).range(1..))]
    scripts_served: Option<u64>,
    /// With --serve: serve this device of libibverbs instead, such as rxe0 or mlx5_0
    #[arg(long, value_name = "DEVICE", requires = "serve", conflicts_with_all = ["device_address", "capture"])]
    libibverbs: Option<String>,
    /// With --libibverbs: which entry of the device's GID table; the first of RoCEv2 when left out
    #[arg(long, value_name = "N", requires = "libibverbs")]
    gid_index: Option<u32>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print each line as it is done, with its time
    #[arg(long, short, conflicts_with = "serve")]
    verbose: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["verbose", "serve"])]
    json: bool,
    /// Write the packets of the last script to a pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Everything random in virtual time follows from it
    #[arg(long, default_value_t = 1, conflicts_with_all = ["target", "serve"])]
    seed: u64,
}

/// How one script ended.
#[derive(Serialize)]
struct Report {
    script: String,
    title: String,
    shows: Vec<String>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<String>,
}

impl Report {
    /// Of what is no script.
    fn wrong(name: String, at: Option<Span>, explanation: String) -> Report {
        Report {
            title: name.clone(),
            script: name,
            shows: Vec::new(),
            verdict: "wrong",
            line: at.map(|span| span.line + 1),
            column: at.map(|span| span.column + 1),
            explanation: Some(explanation),
        }
    }
}

impl Drill {
    /// Run it. The status is 0 when every script ran as it says, 1 when one did not, 2 when one cannot be read.
    pub fn run(self) -> Result<ExitCode> {
        if self.device.device_address.is_some() && self.serve.is_none() {
            bail!(
                "--device-address has no meaning without --serve: scripts run on the simulator, or on a --target"
            );
        }
        if let Some(address) = &self.serve {
            return self.serve(address);
        }
        let paths = match scripts(&self.scripts) {
            Ok(paths) => paths,
            Err(error) => {
                let _ = writeln!(io::stderr(), "softroce: {}", crate::message(&error));
                return Ok(ExitCode::from(WRONG_SCRIPT));
            }
        };
        let mut reports = Vec::new();
        let mut status = 0;
        let progress = (!self.verbose).then(|| Progress::new("drill", paths.len()));
        for path in &paths {
            if let Some(progress) = &progress {
                progress.step(&path.display().to_string());
            }
            let (report, code) = self.one(path)?;
            status = status.max(code);
            reports.push(report);
        }
        drop(progress);
        output::unless_unread(self.report(&reports))?;
        Ok(ExitCode::from(status))
    }

    fn one(&self, path: &Path) -> Result<(Report, u8)> {
        let name = path.display().to_string();
        let text = match input::text(path) {
            Ok(text) => text,
            Err(error) => {
                let why = format!("the script {name} cannot be read: {error}");
                return Ok((Report::wrong(name, None, why), WRONG_SCRIPT));
            }
        };
        let script = match Script::parse(name.clone(), &text) {
            Ok(script) => script,
            Err((source, problems)) => {
                let shown: Vec<String> = problems.iter().map(|p| p.show(&source).to_string()).collect();
                let first = problems.first().map(|problem| problem.span);
                return Ok((Report::wrong(name, first, shown.join("\n")), WRONG_SCRIPT));
            }
        };
        let mut report = Report {
            script: name,
            title: script.title.clone(),
            shows: script.shows.clone(),
            verdict: "pass",
            line: None,
            column: None,
            explanation: None,
        };
        if let (Some(why), Some(_)) = (&script.only_sim, &self.target) {
            report.verdict = "skipped";
            report.explanation = Some(why.clone());
            return Ok((report, 0));
        }
        let mut bench = self.bench()?;
        let mut told = Ok(());
        if self.verbose {
            told = output::line(format_args!("{}: {}", report.script, script.title));
        }
        let mut follow = |at: Duration, line: &str| {
            if self.verbose && told.is_ok() {
                told = output::line(format_args!("{:>12.6} ms  {line}", at.as_secs_f64() * 1e3));
            }
        };
        let done = drill::run(&script, bench.as_mut(), &mut follow);
        told?;
        if let Some(path) = &self.capture {
            bench
                .save_capture(path)
                .with_context(|| format!("cannot write the capture {}", path.display()))?;
        }
        let Err(failed) = done else {
            return Ok((report, 0));
        };
        report.verdict = "FAIL";
        report.line = Some(failed.problem.span.line + 1);
        report.column = Some(failed.problem.span.column + 1);
        report.explanation = Some(failed.show(&script).to_string());
        Ok((report, 1))
    }

    fn bench(&self) -> Result<Box<dyn Bench>> {
        let Some(target) = &self.target else {
            return Ok(Box::new(SimBench::new(self.seed)?));
        };
        let address = with_port(target)?;
        let dut = RemoteDut::connect(address).with_context(|| {
            format!("no agent at {address}; start one there with `softroce drill --serve ADDRESS`")
        })?;
        Ok(Box::new(WireBench::new(dut, self.from)?))
    }

    fn report(&self, reports: &[Report]) -> io::Result<()> {
        let mut out = output::standard();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &serde_json::json!({ "scripts": reports }))?;
            return writeln!(out);
        }
        let mut counts = [("pass", 0), ("FAIL", 0), ("wrong", 0), ("skipped", 0)];
        for report in reports {
            if let Some((_, count)) = counts.iter_mut().find(|(verdict, _)| *verdict == report.verdict) {
                *count += 1;
            }
            if report.verdict == "pass" && reports.len() > 1 {
                continue;
            }
            writeln!(out, "{:<8} {}: {}", report.verdict, report.script, report.title)?;
            if let Some(explanation) = &report.explanation {
                writeln!(out, "{explanation}\n")?;
            }
        }
        let told: Vec<String> = counts
            .iter()
            .filter(|(verdict, count)| *count > 0 || *verdict == "pass")
            .map(|(verdict, count)| format!("{count} {verdict}"))
            .collect();
        writeln!(out, "{} scripts: {}", reports.len(), told.join(", "))
    }

    fn serve(&self, address: &str) -> Result<ExitCode> {
        let address = with_port(address)?;
        let agent = Agent::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        if let Some(device) = &self.libibverbs {
            let provider = Native::new()?;
            let (port, index) = self.gid_of(&provider.open(device)?)?;
            return self.serve_device(&agent, &provider, device, port, index);
        }
        crate::device::check_address(&self.device)?;
        let provider =
            crate::device::open(&self.device, self.capture.as_deref(), Ipv4Addr::LOCALHOST.into())?;
        let name = first_device(&provider)?;
        self.serve_device(&agent, &provider, &name, 1, 0)
    }

    /// The port and index of the GID to use.
    fn gid_of(&self, context: &verbs_native::Context) -> Result<(u8, u32)> {
        let table = context.gid_table()?;
        let routed = || table.iter().filter(|entry| entry.gid_type == GidType::RoceV2);
        let entry = match self.gid_index {
            Some(index) => table
                .iter()
                .find(|entry| entry.index == index)
                .with_context(|| format!("the device has no GID at --gid-index {index}"))?,
            None => routed()
                .find(|entry| entry.gid.ip().is_ipv4())
                .or_else(|| routed().next())
                .context("the device has no GID of RoCEv2; has its interface an address?")?,
        };
        Ok((entry.port, entry.index))
    }

    fn serve_device<P: Provider>(
        &self,
        agent: &Agent,
        provider: &P,
        name: &str,
        port: u8,
        gid_index: u32,
    ) -> Result<ExitCode> {
        output::line(format_args!("serving {name} at {}", agent.local_addr()?))?;
        let mut served = 0;
        while self.scripts_served.is_none_or(|most| served < most) {
            let done = agent.serve_one::<P>(|| LocalDut::new(provider.open(name)?, port, gid_index));
            if let Err(error) = done {
                eprintln!("softroce: a script ended early: {error}");
            }
            served += 1;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn first_device<P: Provider>(provider: &P) -> Result<String> {
    let device = provider.devices()?.into_iter().next();
    Ok(device.context("the provider has no device")?.name)
}

/// An address that may lack its port.
fn with_port(text: &str) -> Result<SocketAddr> {
    let addresses = match text.parse::<IpAddr>() {
        Ok(address) => return Ok(SocketAddr::new(address, AGENT_PORT)),
        Err(_) => text
            .to_socket_addrs()
            .or_else(|_| (text, AGENT_PORT).to_socket_addrs()),
    };
    addresses
        .ok()
        .and_then(|mut all| all.next())
        .with_context(|| format!("{text:?} is no HOST or HOST:PORT"))
}

/// The files, and those of folders, in order.
fn scripts(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in given {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path)
            .with_context(|| format!("the folder {} cannot be read", path.display()))?;
        let mut inside: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "drill"))
            .collect();
        if inside.is_empty() {
            bail!("the folder {} has no *.drill files", path.display());
        }
        inside.sort();
        all.extend(inside);
    }
    Ok(all)
}
