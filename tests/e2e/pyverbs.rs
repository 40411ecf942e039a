//! rdma-core's own Python tests, as Debian packages them, under `softroce run`; those of the connection manager in a
//! case of their own, since they need no list: all pass.
//!
//! `tests/data/pyverbs-44.tsv` says of each generic test how it ends here and on the kernel's rxe. The others are for
//! cards of two vendors and skip themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::case::ensure;
use e2e::{Bed, Case, Outcome, Stop, softroce};

const LIMIT: Duration = Duration::from_secs(180);
const PYTHON: &str = "/usr/bin/python3";
/// Where the package leaves them, some compressed.
const PACKAGED: &str = "/usr/share/doc/rdma-core/tests";
/// The release of rdma-core that the list is of.
const RELEASE: &str = "44.";
const LIST: &str = include_str!("../data/pyverbs-44.tsv");
const PAGE: &str = include_str!("../../docs/pyverbs.md");
/// So that nobody gets by without a look at the list.
const PASSES_MIN: usize = 128;
/// Of the connection manager.
const CONNECTION_MANAGER_TESTS: usize = 10;
/// Tests that need pages of 2 MiB.
const WITH_HUGE_PAGES: &str = "ok with huge pages";

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "the python tests of rdma core pass or skip as listed in three runs",
            three_runs,
        ),
        Case::new(
            "the python tests of the connection manager pass in three runs",
            connection_manager,
        ),
        Case::new(
            "the documentation of the python tests counts as the list does",
            documented,
        ),
    ]
}

/// How tests ended, by name: `ok`, `skipped: REASON`, or what went wrong.
type Results = BTreeMap<String, String>;

fn three_runs() -> Outcome {
    needs_the_release()?;
    let bed = Bed::loopback()?;
    let folder = bed.scratch.file("python");
    copy_tests(&folder, "test_rdmacm.py test_mlx5_rdmacm.py")?;
    let first = run(&bed, &folder, &[])?;
    compare(&first)?;
    for _ in 0..2 {
        let again = run(&bed, &folder, &[])?;
        ensure(again == first, || {
            let differ = |(name, ended): &(&String, &String)| first.get(*name) != Some(*ended);
            format!(
                "other results than in the run before: {:?}",
                again.iter().filter(differ).collect::<Vec<_>>()
            )
        })?;
    }
    Ok(())
}

fn connection_manager() -> Outcome {
    needs_the_release()?;
    let bed = Bed::loopback()?;
    let folder = bed.scratch.file("python");
    copy_tests(&folder, "test_mlx5_rdmacm.py")?;
    for _ in 0..3 {
        let results = run(&bed, &folder, &["-k", ".CMTestCase."])?;
        let passed = results.values().filter(|ended| *ended == "ok").count();
        ensure(
            passed == CONNECTION_MANAGER_TESTS && results.len() == passed,
            || format!("{passed} of {CONNECTION_MANAGER_TESTS} passed: {results:?}"),
        )?;
    }
    Ok(())
}

fn needs_the_release() -> Outcome {
    let usable = Command::new(PYTHON)
        .args(["-c", "import pyverbs.device"])
        .output();
    if !usable.is_ok_and(|output| output.status.success()) || !Path::new(PACKAGED).is_dir() {
        return Err(Stop::skip("pyverbs is not installed (package python3-pyverbs)"));
    }
    let asked = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", "python3-pyverbs"])
        .output();
    let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match version {
        Ok(version) if version.starts_with(RELEASE) => Ok(()),
        Ok(version) => Err(Stop::skip(format!(
            "the list is of pyverbs {RELEASE}x, and {version} is installed"
        ))),
        Err(error) => Err(Stop::skip(format!(
            "no dpkg-query to ask for the release: {error}"
        ))),
    }
}

/// The tests as they are run: unpacked, readable by all, without some files.
fn copy_tests(folder: &Path, without: &str) -> Outcome {
    let script = r#"
        mkdir "$1" && cp -r "$0" "$1/tests" && cd "$1/tests" && gunzip -f ./*.gz &&
        rm $2 && chmod -R a+rX "$1""#;
    let copied = Command::new("sh")
        .args(["-c", script, PACKAGED])
        .arg(folder)
        .arg(without)
        .output()?;
    ensure(copied.status.success(), || {
        format!("copying the tests: {}", String::from_utf8_lossy(&copied.stderr))
    })
}

fn run(bed: &Bed, folder: &Path, more: &[&str]) -> Result<Results, Stop> {
    let script = folder.join("tests/run_tests.py");
    let program = bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--", PYTHON])
        .args([script.as_os_str()])
        .args(["-v", "--dev", "softroce0", "--gid", "0"])
        .args(more)
        .variable("PYTHONPATH", folder)
        .variable("PYTHONDONTWRITEBYTECODE", "1")
        // Warnings would stand between a test's name and its result.
        .variable("PYTHONWARNINGS", "ignore");
    let finished = program.finish(LIMIT)?;
    finished.succeeded()?;
    Ok(results(&finished.stderr))
}

/// What the test runner printed: a line begins with the name, and one of the next ends with the result.
fn results(printed: &str) -> Results {
    let mut results = Results::new();
    let mut test = None;
    for line in printed.lines() {
        if line.starts_with("=====") {
            break;
        }
        if let Some(name) = line
            .starts_with("test_")
            .then(|| line.split_once(" (tests.")?.1.split_once(')'))
            .flatten()
        {
            test = Some(name.0.to_owned());
        }
        let ended = line.rsplit_once("... ").map_or(line, |(_, ended)| ended);
        let ended = match ended {
            "ok" | "FAIL" | "ERROR" => ended.to_owned(),
            _ => match ended.strip_prefix("skipped ") {
                Some(reason) => format!("skipped: {}", reason.trim_matches(['\'', '"'])),
                None => continue,
            },
        };
        if let Some(test) = test.take() {
            results.insert(test, ended);
        }
    }
    results
}

/// The list: test, how it ends here, how on the kernel's rxe.
fn list() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    LIST.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (test, rest) = line.split_once('\t')?;
            let (here, rxe) = rest.split_once('\t')?;
            Some((test, here, rxe))
        })
}

fn compare(results: &Results) -> Outcome {
    let has_huge_pages = fs::read_to_string("/proc/sys/vm/nr_hugepages")?.trim() != "0";
    let mut differ = Vec::new();
    for (test, here, _) in list() {
        let ended = results.get(test).map_or("did not run", String::as_str);
        let is_as_listed = match here {
            // Others may have taken the pages meanwhile.
            WITH_HUGE_PAGES if has_huge_pages => ended == "ok" || ended.contains("huge pages"),
            WITH_HUGE_PAGES => ended.starts_with("skipped") && ended.contains("huge pages"),
            // Why there is no such memory depends on the machine's graphics card.
            _ if test.contains("DmaBuf") => ended.starts_with("skipped"),
            _ => ended == here,
        };
        if !is_as_listed {
            differ.push(format!("{test}: {ended}, not {here}"));
        }
    }
    let of_vendors = results
        .iter()
        .filter(|(test, _)| list().all(|(listed, ..)| listed != *test));
    for (test, ended) in of_vendors {
        if !ended.starts_with("skipped") && ended != "ok" {
            differ.push(format!("{test}: {ended}"));
        }
    }
    let passed = list().filter(|(test, ..)| results.get(*test).is_some_and(|ended| ended == "ok"));
    let passed = passed.count();
    ensure(differ.is_empty() && passed >= PASSES_MIN, || {
        format!(
            "{passed} passed, and {} ended otherwise than listed:\n{}",
            differ.len(),
            differ.join("\n")
        )
    })
}

/// Each row of the page's first table: a class, its tests, those that pass here and on rxe.
fn documented() -> Outcome {
    let mut counts = BTreeMap::<&str, [usize; 3]>::new();
    for (test, here, rxe) in list() {
        let class = test.rsplit_once('.').map_or(test, |(class, _)| class);
        for class in [class, "together"] {
            let count = counts.entry(class).or_default();
            count[0] += 1;
            count[1] += usize::from(here.starts_with("ok"));
            count[2] += usize::from(rxe == "ok");
        }
    }
    for (class, [all, here, rxe]) in counts {
        let name = match class {
            "together" => class.to_owned(),
            _ => format!("`{class}`"),
        };
        let row = format!("| {name} | {all} | {here} | {rxe} |");
        ensure(PAGE.lines().any(|line| line == row), || {
            format!("docs/pyverbs.md has no row `{row}`")
        })?;
    }
    Ok(())
}
