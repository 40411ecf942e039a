//! perftest under `softroce run`, in every combination, beside what it does on the kernel's rxe.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::perftest::{Bench, Combination, Record, Verdict, disagreement, matrix};
use e2e::program::repository;
use e2e::{Bed, Case, Outcome, Program, Stop, softroce};

use crate::pingpong::free_port;

/// Combinations that run at once.
const JOBS: usize = 2;
/// Messages of each size: of eight queue pairs together no more than a shared receive queue has room for, since datagrams
/// that find no receive request are lost by right, and perftest waits for them for ever.
const ITERATIONS: u32 = 48;
/// Runs of a combination that may wait in vain, until one ends.
const SHORT_OF_RECEIVES_TRIES: usize = 3;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the compiler may take.
const COMPILER_LIMIT: Duration = Duration::from_secs(60);

/// All cases of this file: one for each tool.
pub fn cases() -> Vec<Case> {
    let tools: BTreeSet<String> = match matrix() {
        Ok(all) => all.into_iter().map(|combination| combination.tool).collect(),
        Err(error) => {
            return vec![Case::new("the matrix of perftest is well formed", || {
                Err(Stop::Fail(error))
            })];
        }
    };
    let sentence = |tool: &str| {
        let name = tool.replace('_', " ");
        format!("{name} does in every combination what it does on kernel rxe or more")
    };
    tools
        .into_iter()
        .map(|tool| Case::new(sentence(&tool), move || every_combination(&tool)))
        .collect()
}

fn every_combination(tool: &str) -> Outcome {
    needs_program(tool, "perftest")?;
    needs_program("gcc", "gcc")?;
    let bed = Bed::loopback()?;
    let shim = shim(&bed)?;
    let (on_rxe, expected) = (record("rxe.tsv")?, record("softroce.tsv")?);
    let combinations: Vec<Combination> = matrix()
        .map_err(Stop::Fail)?
        .into_iter()
        .filter(|combination| combination.tool == tool)
        .collect();
    let verdicts = run_all(&bed, &shim, &combinations)?;
    let mut wrong = Vec::new();
    println!("{:<70} {:<50} softroce", "", "kernel rxe");
    for (combination, verdict) in combinations.iter().zip(&verdicts) {
        let there = on_rxe.of(combination);
        let rxe = there.map_or("was not run".to_owned(), Verdict::to_string);
        println!("{:<70} {rxe:<50} {verdict}", combination.to_string());
        if let Some(why) = disagreement(there, expected.of(combination), verdict) {
            wrong.push(format!("{combination}: {why}"));
        }
    }
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

/// What came of each combination, in their order; also written to the file that `PERFTEST_RECORD` names.
fn run_all(bed: &Bed, shim: &Path, combinations: &[Combination]) -> Result<Vec<Verdict>, Stop> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(vec![None; combinations.len()]);
    let work = |job: usize| -> Outcome {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(combination) = combinations.get(at) else {
                return Ok(());
            };
            let verdict = run(bed, shim, combination, job)?;
            if let Ok(mut verdicts) = verdicts.lock() {
                verdicts[at] = Some(verdict);
            }
        }
    };
    std::thread::scope(|scope| -> Outcome {
        let work = &work;
        let jobs: Vec<_> = (0..JOBS).map(|job| scope.spawn(move || work(job))).collect();
        jobs.into_iter().try_for_each(|job| {
            job.join()
                .unwrap_or_else(|_| Err(Stop::fail("a worker panicked")))
        })
    })?;
    let verdicts: Option<Vec<Verdict>> = verdicts
        .into_inner()
        .ok()
        .and_then(|all| all.into_iter().collect());
    let verdicts = verdicts.ok_or_else(|| Stop::fail("not everything was run"))?;
    if let Some(path) = std::env::var_os("PERFTEST_RECORD") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        for (combination, verdict) in combinations.iter().zip(&verdicts) {
            writeln!(file, "{}", Record::line(combination, verdict))?;
        }
    }
    Ok(verdicts)
}

/// Both ends as processes of their own on one address, which each job has for itself.
fn run(bed: &Bed, shim: &Path, combination: &Combination, job: usize) -> Result<Verdict, Stop> {
    let softroce = softroce()?;
    let address = format!("127.0.0.{}", job + 1);
    let program = |words: &[&str]| -> Program {
        bed.program(&bed.here, [softroce])
            .args(["run", "--device-address", &address, "--"])
            .args(words)
    };
    let bench = Bench {
        program: &program,
        device: &["-d", "softroce0", "-x", "0"],
        server: &address,
        shim,
        iterations: ITERATIONS,
        limit: LIMIT,
    };
    // With a shared queue for several queue pairs the tool posts as many receives as one of them sends, and an unreliable
    // service loses what finds none (docs/perftest.md): it may wait in vain, on a card as well.
    let is_short_of_receives =
        combination.connection == "UC" && combination.has("--use-srq") && combination.has("-q");
    let tries = if is_short_of_receives {
        SHORT_OF_RECEIVES_TRIES
    } else {
        1
    };
    let mut verdict = bench.run(combination, free_port())?;
    for _ in 1..tries {
        if !matches!(&verdict, Verdict::Fails(how) if how.contains("hangs")) {
            break;
        }
        verdict = bench.run(combination, free_port())?;
    }
    Ok(verdict)
}

fn shim(bed: &Bed) -> Result<PathBuf, Stop> {
    let built = bed.scratch.file("shim.so");
    Program::new(&bed.scratch, ["gcc", "-O1", "-shared", "-fPIC", "-o"])
        .args([&built, &repository().join("tests/src/perftest/shim.c")])
        .finish(COMPILER_LIMIT)?
        .succeeded()?;
    Ok(built)
}

fn record(name: &str) -> Result<Record, Stop> {
    let path = repository().join("tests/data/perftest").join(name);
    let text =
        std::fs::read_to_string(&path).map_err(|error| Stop::Fail(format!("{}: {error}", path.display())))?;
    Record::parse(&text).map_err(Stop::Fail)
}
