//! Tries every mutation of the engine in a copy of the tree, and tells which the tests find.
//!
//! For each one, the conformance cases on the simulator run first, and the engine's own tests where those find
//! nothing. Exits with 1 when a mutation survives both, with 2 when one cannot be tried.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use e2e::mutations::{self, Mutation};
use e2e::program::repository;
use e2e::{Program, Scratch};

/// Building takes long on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// A mutated engine may hang; the tests take seconds otherwise.
const TEST_LIMIT: Duration = Duration::from_secs(180);

/// Try the mutations of the engine.
#[derive(Parser)]
struct Options {
    /// Only mutations whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Print the mutations and try none.
    #[arg(long)]
    list: bool,
}

/// What came of a mutation.
enum Found {
    /// By the tests of this name.
    By(String),
    Survived,
}

/// Who looks for mutations.
struct Suite {
    name: &'static str,
    /// Words after `cargo test`.
    package: &'static [&'static str],
    filter: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    Suite {
        name: "conformance",
        package: &["-p", "conformance", "--test", "conformance"],
        filter: &["sim::"],
    },
    Suite {
        name: "engine tests",
        package: &["-p", "softroce-engine"],
        filter: &[],
    },
];

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(message) => {
            eprintln!("mutate: {message}");
            ExitCode::from(2)
        }
    }
}

/// How many mutations survived.
fn run(options: &Options) -> Result<usize, String> {
    let mut chosen = mutations::all()?;
    if let Some(only) = &options.only {
        chosen.retain(|mutation| mutation.name.contains(only.as_str()));
    }
    if chosen.is_empty() {
        return Err("no mutation is called so".into());
    }
    if options.list {
        for mutation in &chosen {
            println!("{}: {}", mutation.name, mutation.from);
        }
        return Ok(0);
    }
    let workshop = Workshop::open()?;
    println!("without a mutation ...");
    if let Found::By(tests) = workshop.look()? {
        return Err(format!("the tests fail without any mutation: {tests}"));
    }
    let width = chosen
        .iter()
        .map(|mutation| mutation.name.len())
        .max()
        .unwrap_or(0);
    let mut survivors = 0;
    for mutation in &chosen {
        let start = Instant::now();
        let (verdict, by) = match workshop.try_one(mutation)? {
            Found::By(tests) => ("caught", tests),
            Found::Survived => {
                survivors += 1;
                ("SURVIVED", String::new())
            }
        };
        println!(
            "{:width$}  {verdict:8}  {:5.1} s  {by}",
            mutation.name,
            start.elapsed().as_secs_f64()
        );
    }
    println!("{} caught, {survivors} survived", chosen.len() - survivors);
    Ok(survivors)
}

/// A copy of the tree, with a build folder of its own that the next run finds again.
struct Workshop {
    tree: PathBuf,
    build: PathBuf,
    scratch: Scratch,
}

impl Workshop {
    fn open() -> Result<Self, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(repository().join("target"), PathBuf::from);
        let folder = target.join("mutations");
        let scratch = Scratch::new().map_err(|error| format!("no scratch folder: {error}"))?;
        let workshop = Workshop {
            tree: folder.join("tree"),
            build: folder.join("build"),
            scratch,
        };
        copy_tree(repository(), &workshop.tree)?;
        Ok(workshop)
    }

    fn try_one(&self, mutation: &Mutation) -> Result<Found, String> {
        let sources = mutations::engine_sources(&self.tree)?;
        let (path, mutated) = mutation.apply(&sources)?;
        let original = sources
            .iter()
            .find(|(other, _)| *other == path)
            .map_or("", |(_, text)| text);
        let write =
            |text: &str| fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));
        write(&mutated)?;
        let found = self.look();
        write(original)?;
        found.map_err(|error| format!("mutation {:?}: {error}", mutation.name))
    }

    /// Run the suites until one of them fails.
    fn look(&self) -> Result<Found, String> {
        for suite in &SUITES {
            let built = self.cargo(suite, &["--no-run"], &[]).finish(BUILD_LIMIT);
            let built = built.map_err(|stop| format!("cargo: {stop:?}"))?;
            if built.code() != Some(0) {
                return Err(format!("the tree does not build:\n{}", built.stderr));
            }
            match self
                .cargo(suite, &["--no-fail-fast"], suite.filter)
                .finish(TEST_LIMIT)
            {
                Ok(finished) if finished.code() == Some(0) => {}
                Ok(finished) => {
                    return Ok(Found::By(format!(
                        "{}: {}",
                        suite.name,
                        failed_tests(&finished.stdout)
                    )));
                }
                Err(_) => return Ok(Found::By(format!("{}: does not end", suite.name))),
            }
        }
        Ok(Found::Survived)
    }

    fn cargo(&self, suite: &Suite, arguments: &[&str], filter: &[&str]) -> Program {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let manifest = self.tree.join("Cargo.toml");
        let program = Program::new(
            &self.scratch,
            [
                cargo.as_os_str(),
                "test".as_ref(),
                "--manifest-path".as_ref(),
                manifest.as_os_str(),
            ],
        )
        .variable("CARGO_TARGET_DIR", &self.build)
        .args(suite.package)
        .args(arguments);
        if filter.is_empty() {
            program
        } else {
            program.args(["--"]).args(filter)
        }
    }
}

/// The first failed tests of a run, short.
fn failed_tests(stdout: &str) -> String {
    let failed: Vec<&str> = stdout
        .lines()
        .filter(|line| line.starts_with("test ") && line.trim_end().ends_with("FAILED"))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    match failed.as_slice() {
        [] => "fails".into(),
        few if few.len() <= 4 => few.join(" "),
        many => format!("{} and {} more", many[..4].join(" "), many.len() - 4),
    }
}

/// Copy what git knows and what is new, and remove what is gone. Files that are equal stay as they are, so that little
/// is built again.
fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(from)
        .output()
        .map_err(|error| format!("git cannot be started: {error}"))?;
    if !listed.status.success() {
        return Err(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&listed.stderr)
        ));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let mut copies = BTreeSet::new();
    for name in listed.split_terminator('\0') {
        let (source, copy) = (from.join(name), to.join(name));
        let Ok(bytes) = fs::read(&source) else { continue }; // Removed, or a link to nowhere.
        if !fs::read(&copy).is_ok_and(|old| old == bytes) {
            let write = || {
                fs::create_dir_all(copy.parent().unwrap_or(to))?;
                fs::write(&copy, &bytes)
            };
            write().map_err(|error| format!("{}: {error}", copy.display()))?;
        }
        copies.insert(copy);
    }
    remove_others(to, &copies).map_err(|error| format!("{}: {error}", to.display()))
}

fn remove_others(folder: &Path, keep: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, keep)?;
        } else if !keep.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
