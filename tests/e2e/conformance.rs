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
