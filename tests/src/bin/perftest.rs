//! Runs perftest over every combination on a device of the installed libibverbs; `e2e::perftest` has how.
//!
//! It runs in the VM, and makes the record of what the kernel's rxe does.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use e2e::perftest::{Bench, Combination, Record, matrix};
use e2e::{Program, Scratch};

#[derive(Parser, Debug)]
struct Cli {
    /// The device
    #[arg(long, default_value = "rxe0")]
    device: String,
    /// The index of its GID
    #[arg(long, default_value = "1")]
    gid: String,
    /// Where the server is called
    #[arg(long, default_value = "127.0.0.1")]
    server: String,
    /// The built `shim.c` of `e2e::perftest`
    #[arg(long)]
    shim: PathBuf,
    /// Combinations that run at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Messages of each size
    #[arg(long, default_value_t = 16)]
    iterations: u32,
    /// Seconds that a run may take
    #[arg(long, default_value_t = 200)]
    limit: u64,
    /// Only combinations with these words
    #[arg(long, default_value = "")]
    only: String,
    /// The record: what it holds already is not run again
    record: PathBuf,
}

/// TCP ports, one for each combination.
const FIRST_PORT: u16 = 20_000;

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let known = std::fs::read_to_string(&cli.record).unwrap_or_default();
    let known = Record::parse(&known).map_err(|error| anyhow!(error))?;
    let all = matrix().map_err(|error| anyhow!(error))?;
    let wanted: Vec<Combination> = all
        .into_iter()
        .filter(|combination| known.of(combination).is_none() && combination.to_string().contains(&cli.only))
        .collect();
    let record = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&cli.record)
        .with_context(|| format!("{}", cli.record.display()))?;
    let record = Mutex::new(record);
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cli.jobs)
            .map(|_| scope.spawn(|| work(&cli, &wanted, &next, &record)))
            .collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a worker panicked"))??;
        }
        anyhow::Ok(())
    })?;
    eprintln!("{} combinations in {:?}", wanted.len(), begun.elapsed());
    Ok(ExitCode::SUCCESS)
}

/// Takes combinations in turn until none is left.
fn work(cli: &Cli, wanted: &[Combination], next: &AtomicUsize, record: &Mutex<std::fs::File>) -> Result<()> {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(combination) = wanted.get(index) else {
            return Ok(());
        };
        let scratch = Scratch::new()?;
        let bench = Bench {
            program: &|words| Program::new(&scratch, words),
            device: &["-d", &cli.device, "-x", &cli.gid],
            server: &cli.server,
            shim: &cli.shim,
            iterations: cli.iterations,
            limit: Duration::from_secs(cli.limit),
        };
        let begun = Instant::now();
        let port = FIRST_PORT + u16::try_from(index)?;
        let verdict = bench
            .run(combination, port)
            .map_err(|stop| anyhow!("{combination}: {stop:?}"))?;
        println!(
            "{:6.1} s  {combination}: {verdict}",
            begun.elapsed().as_secs_f64()
        );
        let mut record = record.lock().map_err(|_| anyhow!("a worker panicked"))?;
        writeln!(record, "{}", Record::line(combination, &verdict))?;
    }
}
