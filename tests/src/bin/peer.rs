//! RDMA processes for tests: one end of a conversation each. `e2e::peer` has what they do.
#![deny(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use e2e::peer::loss::Loss;
use e2e::peer::{Line, Path, Role, crowd, group, incast, interop, matrix, passive, pulse, scale};
use serde_json::{Map, Value, json};
use softroce::{Device, Options, Softroce};
use verbs_api::{Mtu, Provider};
use verbs_native::Native;

#[derive(Parser, Debug)]
struct Cli {
    /// Whose verbs to use
    #[arg(long, value_enum, default_value = "softroce")]
    provider: Chosen,
    /// The device, by default the provider's first
    #[arg(long)]
    device: Option<String>,
    #[command(subcommand)]
    part: Part,
}

#[derive(ValueEnum, Debug, Clone, Copy)]
enum Chosen {
    /// The embedded card, on the address where the two ends meet
    Softroce,
    /// The first device of the installed libibverbs
    Native,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Every operation with the kernel's rxe, or with another process of this program
    Interop(Meeting),
    /// Every operation, size and trouble between two ends of any providers, with a verdict for each case
    Matrix {
        #[command(flatten)]
        meeting: Meeting,
        /// The listener: path MTU in bytes
        #[arg(long, default_value = "1024", value_parser = mtu)]
        mtu: Mtu,
        /// The listener: ACK timeout exponent
        #[arg(long, default_value_t = 20)]
        timeout: u8,
        /// The listener: only cases with this in their name
        #[arg(long)]
        only: Option<String>,
    },
    /// One small message forth and back each few milliseconds
    Pulse {
        #[command(flatten)]
        meeting: Meeting,
        /// The caller: how long
        #[arg(long, default_value_t = 1)]
        seconds: u64,
        /// ACK timeout exponent
        #[arg(long, default_value_t = 14)]
        timeout: u8,
        /// Attempts after the first
        #[arg(long, default_value_t = 7)]
        retry_cnt: u8,
        /// The listener: fork a child once connected, which sleeps and keeps everything that it inherited
        #[arg(long)]
        fork: bool,
    },
    /// Many processes, each with many queue pairs, into one
    Incast {
        #[command(flatten)]
        meeting: Meeting,
        /// The listener: callers
        #[arg(long, default_value_t = 8)]
        sources: usize,
        /// Queue pairs of each caller
        #[arg(long, default_value_t = 8)]
        qps: usize,
    },
    /// A sleeping target and its visitor
    Passive {
        #[command(flatten)]
        meeting: Meeting,
        /// The caller: WRITEs, and as many READs
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        /// The caller: seconds without a message before the end
        #[arg(long, default_value_t = 0)]
        idle_seconds: u64,
    },
    /// Words that must not tear
    Words {
        #[command(flatten)]
        meeting: Meeting,
        /// The caller: WRITEs, and as many READs
        #[arg(long, default_value_t = 1_000_000)]
        count: u64,
    },
    /// Very many queue pairs: connect, one message each, destroy
    Crowd {
        #[command(flatten)]
        meeting: Meeting,
        /// Both ends: queue pairs
        #[arg(long, default_value_t = 10_000)]
        qps: usize,
        /// Both ends: requests that each of their queues holds
        #[arg(long, default_value_t = 64)]
        depth: u32,
    },
    /// A multicast group: the listener sends, all receive each message once, and one leaves
    Group {
        #[command(flatten)]
        meeting: Meeting,
        /// The listener: members that call it
        #[arg(long, default_value_t = 2)]
        members: usize,
        /// The listener: the group's address
        #[arg(long, default_value = "239.7.7.7")]
        group: IpAddr,
        /// The listener: messages
        #[arg(long, default_value_t = 1000)]
        count: u64,
    },
    /// A table: what a message costs among so many queue pairs
    Scale {
        #[command(flatten)]
        meeting: Meeting,
        /// Both ends: numbers of queue pairs, ascending
        #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000")]
        counts: Vec<usize>,
        /// Both ends: requests that a queue holds, and small messages that are posted together
        #[arg(long, default_value_t = 16)]
        depth: u32,
    },
}

/// Where the two ends meet; the device is on the same address.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Meeting {
    /// Wait here for a call
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Call there
    #[arg(long, value_name = "ADDRESS:PORT")]
    call: Option<SocketAddr>,
}

impl Meeting {
    /// The connections, one but for a listener with several callers.
    fn meet(&self, callers: usize) -> Result<(Role, Vec<Line>)> {
        match (self.listen, self.call) {
            (Some(address), None) => Ok((Role::Listener, Line::listen(address, callers)?)),
            (None, Some(address)) => Ok((Role::Caller, vec![Line::call(address)?])),
            _ => bail!("one of --listen and --call"),
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let (meeting, callers) = match &cli.part {
        Part::Interop(meeting)
        | Part::Matrix { meeting, .. }
        | Part::Pulse { meeting, .. }
        | Part::Passive { meeting, .. }
        | Part::Words { meeting, .. }
        | Part::Crowd { meeting, .. }
        | Part::Scale { meeting, .. } => (meeting, 1),
        Part::Incast { meeting, sources, .. } => (meeting, *sources),
        Part::Group { meeting, members, .. } => (meeting, *members),
    };
    let (role, mut lines) = meeting.meet(callers)?;
    if let Part::Matrix {
        mtu, timeout, only, ..
    } = &cli.part
    {
        let line = lines.first_mut().context("nobody called")?;
        let setting = matrix::Setting {
            mtu: *mtu,
            timeout: *timeout,
            only: only.clone(),
        };
        return play_matrix(cli, role, line, &setting);
    }
    match cli.provider {
        Chosen::Softroce => {
            let address = lines.first().context("nobody called")?.local_ip()?;
            let provider = open(address)?;
            // Keeps the device, and so its counters, beyond the end of the part.
            let context = provider.open("softroce0")?;
            let device = context.device();
            play(&cli.part, role, lines, &provider, &|| counters(device))
        }
        Chosen::Native => play(&cli.part, role, lines, &Native::new()?, &|| json!({})),
    }
}

/// Plays a part; prints what it found, and `counters` as they are at the end.
fn play<P: Provider>(
    part: &Part,
    role: Role,
    mut lines: Vec<Line>,
    provider: &P,
    counters: &dyn Fn() -> Value,
) -> Result<()> {
    let line = lines.first_mut().context("nobody called")?;
    let mut found = match (part, role) {
        (Part::Matrix { .. }, _) => bail!("the matrix has an opening of its own"),
        (Part::Interop(_), _) => {
            let sent_twice = || counters()["retransmitted_bytes"].as_u64().unwrap_or(0);
            interop::converse(provider, line, role, &sent_twice).map(|()| json!({}))
        }
        (
            Part::Pulse {
                timeout,
                retry_cnt,
                fork,
                ..
            },
            Role::Listener,
        ) => pulse::answer(provider, line, path(*timeout, *retry_cnt), || fork_if(*fork)),
        (
            Part::Pulse {
                timeout,
                retry_cnt,
                seconds,
                ..
            },
            Role::Caller,
        ) => pulse::pulse(
            provider,
            line,
            path(*timeout, *retry_cnt),
            Duration::from_secs(*seconds),
        ),
        (Part::Incast { qps, .. }, Role::Listener) => {
            incast::target(provider, lines, *qps).map(|()| json!({}))
        }
        (Part::Incast { qps, .. }, Role::Caller) => incast::source(provider, line, *qps).map(|()| json!({})),
        (Part::Passive { .. }, Role::Listener) => passive::sleep(provider, line).map(|()| json!({})),
        (
            Part::Passive {
                count, idle_seconds, ..
            },
            Role::Caller,
        ) => passive::visit(provider, line, *count, Duration::from_secs(*idle_seconds)),
        (Part::Words { .. }, Role::Listener) => passive::spin(provider, line),
        (Part::Words { count, .. }, Role::Caller) => passive::tear(provider, line, *count),
        (Part::Crowd { qps, depth, .. }, role) => crowd::play(provider, line, role, (*qps, *depth)),
        (Part::Group { group, count, .. }, Role::Listener) => {
            group::lead(provider, &mut lines, *group, *count)
        }
        (Part::Group { .. }, Role::Caller) => group::follow(provider, line),
        (Part::Scale { counts, depth, .. }, role) => {
            let plan = scale::Plan {
                counts,
                depth: *depth,
            };
            scale::play(provider, line, role, plan)
        }
    }?;
    found["counters"] = counters();
    println!("{found}");
    Ok(())
}

/// Plays the matrix: on the embedded card with packets that get lost on demand.
fn play_matrix(cli: &Cli, role: Role, line: &mut Line, setting: &matrix::Setting) -> Result<()> {
    let name = cli.device.as_deref();
    let summary = match cli.provider {
        Chosen::Softroce => {
            let mut options = Options::from_env()?;
            options.addresses = vec![line.local_ip()?];
            // So that rules may come.
            options.faults.get_or_insert_default();
            let provider = Softroce::new(options)?;
            let context = provider.open("softroce0")?;
            let loss = Loss::of(&provider)?;
            let all = || match counters(context.device()) {
                Value::Object(all) => all
                    .into_iter()
                    .map(|(name, count)| (name, count.as_u64().unwrap_or(0)))
                    .collect(),
                _ => matrix::Counters::new(),
            };
            let instruments = matrix::Instruments {
                kind: matrix::Kind::Softroce,
                counters: &all,
                loss: Some(loss),
            };
            matrix::converse(&provider, name, line, role, setting, &instruments)
        }
        Chosen::Native => {
            let provider = Native::new()?;
            let first = || Some(provider.devices().ok()?.first()?.name.clone());
            let device = cli.device.clone().or_else(first);
            let device = device.context("libibverbs shows no device")?;
            let instruments = matrix::Instruments {
                kind: matrix::Kind::Rxe,
                counters: &|| matrix::hardware_counters(&device),
                loss: None,
            };
            matrix::converse(&provider, name, line, role, setting, &instruments)
        }
    }?;
    println!("{summary}");
    Ok(())
}

fn mtu(bytes: &str) -> Result<Mtu> {
    Mtu::from_bytes(bytes.parse()?).with_context(|| format!("{bytes} is no path MTU"))
}

fn path(timeout: u8, retry_cnt: u8) -> Path {
    Path {
        timeout,
        retry_cnt,
        rd_atomic: 4,
    }
}

fn open(address: IpAddr) -> Result<Softroce> {
    let mut options = Options::from_env()?;
    options.addresses = vec![address];
    Ok(Softroce::new(options)?)
}

/// All that the device has counted: the engine's counters by name, and what the fabric lost or passed on.
fn counters(device: &Device) -> Value {
    let counters = device.counters();
    let mut all: Map<String, Value> = counters
        .engine
        .iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let fabric = &counters.fabric;
    for (name, count) in [
        ("receive_overflows", fabric.receive_overflows),
        ("forwarded", fabric.forwarded),
        ("adopted", fabric.adopted),
        ("steering_repairs", fabric.steering_repairs),
    ] {
        all.insert(name.into(), count.into());
    }
    all.into()
}

fn fork_if(wanted: bool) {
    if wanted {
        fork_sleeper();
    }
}

/// Forks a child that keeps what it inherited and only sleeps; prints its process id.
#[allow(unsafe_code)]
fn fork_sleeper() {
    // SAFETY: the child makes only calls that are safe after a fork of a threaded process, and never returns.
    match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Child) => loop {
            nix::unistd::pause();
        },
        Ok(nix::unistd::ForkResult::Parent { child }) => println!("{}", json!({ "child": child.as_raw() })),
        Err(error) => println!("{}", json!({ "fork_error": error.to_string() })),
    }
}
