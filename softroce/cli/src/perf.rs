//! `softroce perf`: latency and bandwidth of two processes.

mod bandwidth;
mod latency;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::compare::Compare;
use crate::control::Control;
use crate::device::{self, DeviceArgs};
use crate::endpoint::{
    Kind, Service, Transport, check_told, check_told_mtu, check_told_switch, check_transport,
};
use crate::output;
use crate::stats::Distribution;

/// Measure latency or bandwidth between two processes (start one without HOST, then one with, which decides; a server
/// that was told otherwise refuses)
#[derive(Args, Debug)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Perf {
    #[command(subcommand)]
    compare: Option<PerfCommand>,
    #[command(flatten)]
    measure: Measure,
}

#[derive(Subcommand, Debug)]
enum PerfCommand {
    /// Measure raw UDP, softroce and its peers in turns, pinned, and print medians and ratios
    Compare(Compare),
    #[command(hide = true)]
    Raw(crate::compare::Raw),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Operation {
    Send,
    Write,
    Read,
    Atomic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Metric {
    Lat,
    Bw,
}

#[derive(Args, Debug)]
struct Measure {
    /// What to do
    #[arg(required = true)]
    operation: Option<Operation>,
    /// What to measure: latency or bandwidth
    #[arg(required = true)]
    metric: Option<Metric>,
    /// The server to connect to; without it this process is the server
    host: Option<String>,
    /// The service of the queue pairs (rc when left out; a server goes by its client)
    #[arg(long)]
    transport: Option<Kind>,
    /// Take receive requests from one shared queue
    #[arg(long)]
    srq: bool,
    /// Bytes a message; when left out 8 for latency, 65536 for bandwidth, or 1024 over ud
    #[arg(long)]
    size: Option<u32>,
    /// Messages measured (on each queue pair) [default: 20000 for latency, 10000 for bandwidth]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    iters: Option<u32>,
    /// Queue pairs (bandwidth) [default: 1]
    #[arg(long)]
    qps: Option<u32>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; the interface's when left out
    #[arg(long, value_parser = device::parse_mtu)]
    mtu: Option<usize>,
    /// Sleep on the completion channel rather than spin
    #[arg(long, conflicts_with = "memory_poll")]
    events: bool,
    /// WRITE latency: wait by looking at memory alone, without any verbs call
    #[arg(long)]
    memory_poll: bool,
    /// SEND and WRITE latency: wait for the completion of each message before looking for the answer, as perftest's tools
    /// do; else one in 16 completes
    #[arg(long)]
    completions: bool,
    /// TCP port on which the two ends meet
    #[arg(long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print what engine and fabric of this end have counted, to standard error
    #[arg(long)]
    counters: bool,
    #[command(flatten)]
    device: DeviceArgs,
    /// Write all packets of this end to a pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

/// What the client decides for both ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Settings {
    service: Service,
    operation: Operation,
    metric: Metric,
    size: u32,
    iters: u32,
    qps: u32,
    mtu: usize,
    events: bool,
    memory_poll: bool,
    completions: bool,
}

/// What a run has shown.
#[derive(Debug, Serialize)]
struct Report {
    transport: &'static str,
    operation: Operation,
    metric: Metric,
    size: u32,
    iters: u32,
    qps: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbit_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_per_s: Option<f64>,
    /// Messages that did not arrive (SEND over an unreliable service).
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

const SIZE_BYTES_MAX: u32 = 1 << 28;
const QPS_MAX: u32 = 1024;
const WARM_UP: u32 = 100;

impl Perf {
    /// Run the comparison, or one end of a measurement.
    pub fn run(self) -> Result<()> {
        match self.compare {
            Some(PerfCommand::Compare(compare)) => compare.run(),
            Some(PerfCommand::Raw(raw)) => raw.run(),
            None => self.measure.run(),
        }
    }
}

impl Measure {
    fn settings(&self) -> Result<Settings> {
        let (Some(operation), Some(metric)) = (self.operation, self.metric) else {
            bail!("name an operation and a metric: softroce perf send lat");
        };
        let mut service = Service::from(self.transport.unwrap_or(Kind::Rc));
        service.shared_receives |= self.srq;
        check_offered(service.transport, operation)?;
        let atomic = operation == Operation::Atomic;
        let size = self.size.unwrap_or(match service.transport {
            _ if metric == Metric::Lat || atomic => 8,
            Transport::Ud => 1024,
            Transport::Rc | Transport::Uc | Transport::Xrc => 65536,
        });
        if size == 0 || size > SIZE_BYTES_MAX || (atomic && size != 8) {
            bail!("--size {size} is not measured: 1 to {SIZE_BYTES_MAX} bytes, 8 for atomics");
        }
        let qps = self.qps.unwrap_or(1);
        if qps == 0 || qps > QPS_MAX {
            bail!("--qps {qps} is outside 1 to {QPS_MAX}");
        }
        if metric == Metric::Lat && qps != 1 {
            bail!("--qps {qps} is for bandwidth; latency is measured on one queue pair");
        }
        if self.memory_poll && (operation, metric) != (Operation::Write, Metric::Lat) {
            bail!("--memory-poll is for WRITE latency: softroce perf write lat --memory-poll");
        }
        let is_sent = matches!(operation, Operation::Send | Operation::Write);
        if self.completions && !(is_sent && metric == Metric::Lat) {
            bail!("--completions is for SEND and WRITE latency: softroce perf send lat --completions");
        }
        let iters = self
            .iters
            .unwrap_or(if metric == Metric::Lat { 20_000 } else { 10_000 });
        Ok(Settings {
            service,
            operation,
            metric,
            size,
            iters: iters.max(1),
            qps,
            mtu: self.mtu.unwrap_or(0),
            events: self.events,
            memory_poll: self.memory_poll,
            completions: self.completions,
        })
    }

    /// The client decides: what this end was told must be the same.
    fn check_told(&self, agreed: &Settings) -> Result<()> {
        check_transport(self.transport, agreed.service)?;
        check_told("--size", self.size, agreed.size)?;
        check_told("--iters", self.iters, agreed.iters)?;
        check_told("--qps", self.qps, agreed.qps)?;
        check_told_mtu(self.mtu, agreed.mtu)?;
        for (option, told, agreed) in [
            ("--srq", self.srq, agreed.service.shared_receives),
            ("--events", self.events, agreed.events),
            ("--memory-poll", self.memory_poll, agreed.memory_poll),
            ("--completions", self.completions, agreed.completions),
        ] {
            check_told_switch(option, told, agreed)?;
        }
        Ok(())
    }

    fn run(self) -> Result<()> {
        let own = self.settings()?;
        device::check_capture(self.capture.as_deref())?;
        device::check_address(&self.device)?;
        let (mut control, settings) = match &self.host {
            Some(host) => {
                let mut control = Control::connect(host, self.port, "perf")?;
                control.send(&own)?;
                (control, own)
            }
            None => {
                let mut control = Control::accept(self.port, "perf")?;
                let theirs: Settings = control.receive()?;
                (control, theirs)
            }
        };
        if (settings.operation, settings.metric) != (own.operation, own.metric) {
            bail!(
                "the client measures {:?} {:?}, this server {:?} {:?}; start both with the same words",
                settings.operation,
                settings.metric,
                own.operation,
                own.metric
            );
        }
        self.check_told(&settings)?;
        check_offered(settings.service.transport, settings.operation)?;
        if settings.size > SIZE_BYTES_MAX || settings.qps > QPS_MAX || settings.size == 0 || settings.qps == 0
        {
            bail!(
                "the peer asks for {} bytes on {}",
                settings.size,
                output::count(settings.qps, "queue pair")
            );
        }
        let provider = device::open(&self.device, self.capture.as_deref(), control.local_ip()?)?;
        let client = self.host.is_some();
        let counters = if self.counters {
            Some(device::counters(&provider)?)
        } else {
            None
        };
        let report = match settings.metric {
            Metric::Lat => latency::measure(&provider, &mut control, &settings, client)?,
            Metric::Bw => bandwidth::measure(&provider, &mut control, &settings, client)?,
        };
        if let Some(report) = report {
            report.print(self.json)?;
        }
        if let Some(counters) = counters {
            eprint!("{}", counters.text());
        }
        Ok(())
    }
}

/// Which operations a service has.
fn check_offered(transport: Transport, operation: Operation) -> Result<()> {
    let is_offered = match (transport, operation) {
        (Transport::Rc | Transport::Xrc, _) | (_, Operation::Send) => true,
        (Transport::Uc, Operation::Write) => true,
        (Transport::Uc, Operation::Read | Operation::Atomic) => false,
        (Transport::Ud, Operation::Write | Operation::Read | Operation::Atomic) => false,
    };
    if !is_offered {
        bail!("this service does not offer that operation: uc offers send and write, ud send alone");
    }
    Ok(())
}

impl Report {
    fn new(settings: &Settings) -> Self {
        Report {
            transport: settings.service.name(),
            operation: settings.operation,
            metric: settings.metric,
            size: settings.size,
            iters: settings.iters,
            qps: settings.qps,
            latency: None,
            gbit_per_s: None,
            messages_per_s: None,
            lost: None,
        }
    }

    fn print(&self, json: bool) -> Result<()> {
        if json {
            return output::line(serde_json::to_string(self)?);
        }
        let name = format!("{} {:?}", self.transport, self.operation).to_uppercase();
        if let Some(l) = &self.latency {
            let what = if matches!(self.operation, Operation::Send | Operation::Write) {
                "half round trip"
            } else {
                "round trip"
            };
            output::line(format_args!(
                "{name} {}, {what}, {}, us:",
                output::count(self.size, "byte"),
                output::count(self.iters, "iteration")
            ))?;
            output::line(format_args!(
                "  min {:.2}  p50 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}  mean {:.2}",
                l.min_us, l.p50_us, l.p99_us, l.p999_us, l.max_us, l.mean_us
            ))?;
        }
        if let (Some(gbit), Some(rate)) = (self.gbit_per_s, self.messages_per_s) {
            output::line(format_args!(
                "{name} {} on {}, {}:",
                output::count(self.size, "byte"),
                output::count(self.qps, "queue pair"),
                output::count(self.iters, "iteration")
            ))?;
            let lost = match self.lost {
                None | Some(0) => String::new(),
                Some(lost) => format!("  ({} lost)", output::count(lost, "message")),
            };
            output::line(format_args!("  {gbit:.2} Gbit/s  {rate:.0} messages/s{lost}"))?;
        }
        Ok(())
    }
}
