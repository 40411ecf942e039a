//! The conformance command as a newcomer and a build machine see it.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::case::ensure;
use e2e::{Bed, Case, Outcome, Stop, softroce};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(300);
const BEDS: [&str; 2] = ["sim", "udp"];
const CASES_AT_LEAST: usize = 25;

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            "conformance without options passes and says so in a table",
            || {
                let printed = run(&[])?;
                ensure(printed.lines().count() > CASES_AT_LEAST, || {
                    format!("this is no table:\n{printed}")
                })
            },
        ),
        Case::new("conformance lists its cases without running them", || {
            let printed = run(&["--list"])?;
            ensure(printed.lines().count() >= CASES_AT_LEAST, || {
                format!("too few cases:\n{printed}")
            })
        }),
    ];
    cases.extend([
        Case::new(
            "conformance over the C interface passes without a deviation",
            || over_the_drop_in(&[]),
        ),
        Case::new(
            "conformance over the C interface passes with the builder and the cursor",
            || over_the_drop_in(&["--interface", "extended"]),
        ),
        Case::new(
            "conformance without libibverbs says so and ends with 2",
            without_library,
        ),
        Case::new(
            "conformance without a device says so and ends with 2",
            without_device,
        ),
    ]);
    for bed in BEDS {
        cases.push(Case::new(
            format!("conformance in json on bed {bed} is well formed and passes"),
            move || json(bed),
        ));
        cases.push(Case::new(
            format!("conformance in junit on bed {bed} is well formed and passes"),
            move || junit(bed),
        ));
    }
    cases
}

fn run(options: &[&str]) -> Result<String, Stop> {
    let bed = Bed::loopback()?;
    let program = bed.program(&bed.here, [softroce()?.as_os_str()]);
    let finished = program.args(["conformance"]).args(options).finish(LIMIT)?;
    finished.succeeded()?;
    Ok(finished.stdout)
}

/// Our own shared object, through libibverbs' interface: nothing is tolerated.
fn over_the_drop_in(options: &[&str]) -> Outcome {
    let all = [&["--bed", "dropin", "--format", "json"], options].concat();
    let printed = run(&all)?;
    let report: Value =
        serde_json::from_str(&printed).map_err(|error| Stop::Fail(format!("{error} in:\n{printed}")))?;
    let count = |name: &str| report[name].as_u64().unwrap_or(u64::MAX);
    ensure(
        (count("failed"), count("deviations")) == (0, 0) && count("passed") > 200,
        || format!("failed, deviated, or too little ran:\n{printed}"),
    )
}

/// The suite on a libibverbs that is not to be had: status 2, and a message with these words.
fn cannot_be_had(options: &[&str], words: &[&str]) -> Outcome {
    let bed = Bed::loopback()?;
    let program = bed.program(&bed.here, [softroce()?.as_os_str()]);
    let finished = program
        .args(["conformance", "--provider", "libibverbs"])
        .args(options)
        .finish(LIMIT)?;
    ensure(finished.code() == Some(2), || {
        format!("the status is {:?}:\n{}", finished.code(), finished.stderr)
    })?;
    ensure(words.iter().any(|word| finished.stderr.contains(word)), || {
        format!("none of {words:?} in:\n{}", finished.stderr)
    })
}

fn without_library() -> Outcome {
    cannot_be_had(
        &["--library", "/nowhere/libibverbs.so.1"],
        &["It comes with rdma-core"],
    )
}

/// On a machine without cards the system's library, if it is there at all, lists no device, or has no kernel to ask.
fn without_device() -> Outcome {
    let has_device =
        std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    if has_device {
        return Err(Stop::skip("this machine has an RDMA device"));
    }
    let words = [
        "finds no RDMA device",
        "listing RDMA devices",
        "It comes with rdma-core",
    ];
    cannot_be_had(&[], &words)?;
    cannot_be_had(
        &["--device", "no_such0"],
        &["no_such0", "listing RDMA devices", "It comes with rdma-core"],
    )
}

fn json(bed: &str) -> Outcome {
    let printed = run(&["--bed", bed, "--format", "json"])?;
    let report: Value =
        serde_json::from_str(&printed).map_err(|error| Stop::Fail(format!("{error} in:\n{printed}")))?;
    let mut verdicts = Vec::new();
    collect(&report, "verdict", &mut verdicts);
    ensure(verdicts.len() >= CASES_AT_LEAST, || {
        format!("{} verdicts in:\n{printed}", verdicts.len())
    })?;
    let failed = verdicts
        .iter()
        .any(|verdict| verdict.to_lowercase().contains("fail"));
    ensure(!failed, || format!("something failed:\n{printed}"))
}

/// Every string under this name, at any depth.
fn collect(value: &Value, name: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, name, found)),
        Value::Object(fields) => {
            for (field, item) in fields {
                match item.as_str() {
                    Some(text) if field == name => found.push(text.to_owned()),
                    _ => collect(item, name, found),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn junit(bed: &str) -> Outcome {
    let printed = run(&["--bed", bed, "--format", "junit"])?;
    let document = roxmltree::Document::parse(&printed)
        .map_err(|error| Stop::Fail(format!("{error} in:\n{printed}")))?;
    let root = document.root_element().tag_name().name();
    ensure(matches!(root, "testsuites" | "testsuite"), || {
        format!("the root is <{root}>:\n{printed}")
    })?;
    let cases: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("testcase"))
        .collect();
    ensure(cases.len() >= CASES_AT_LEAST, || {
        format!("{} test cases in:\n{printed}", cases.len())
    })?;
    let names: BTreeSet<_> = cases
        .iter()
        .map(|case| (case.attribute("classname"), case.attribute("name")))
        .collect();
    ensure(names.len() == cases.len(), || {
        format!("two cases have one name:\n{printed}")
    })?;
    let failed = document
        .descendants()
        .any(|node| node.has_tag_name("failure") || node.has_tag_name("error"));
    ensure(!failed, || format!("something failed:\n{printed}"))
}
