//! The requirements and the cases are in step, and reports are well-formed.

use std::collections::BTreeSet;

use conformance::beds::{BedKind, SimBed, all_tolerances};
use conformance::{Format, RunOptions, Summary, cases, catalogue, list, requirements, run};

#[test]
fn every_requirement_has_a_case_or_a_stated_exception() {
    let cases = cases::all::<SimBed>();
    let shown: BTreeSet<&str> = cases
        .iter()
        .flat_map(|case| case.requirements.iter().copied())
        .collect();
    for requirement in requirements::all() {
        match (&requirement.exception, shown.contains(requirement.id.as_str())) {
            (None, false) => panic!("no case shows {}, and no exception says why", requirement.id),
            (Some(_), true) => panic!("a case shows {}, which has an exception", requirement.id),
            _ => {}
        }
    }
}

#[test]
fn every_case_has_requirements_that_exist_and_an_id_of_its_own() {
    let known: BTreeSet<String> = requirements::all().into_iter().map(|r| r.id).collect();
    let mut ids = BTreeSet::new();
    for case in cases::all::<SimBed>() {
        assert!(
            !case.requirements.is_empty(),
            "case {} shows no requirement",
            case.id
        );
        for id in case.requirements {
            assert!(
                known.contains(*id),
                "case {} shows {id}, which does not exist",
                case.id
            );
        }
        assert!(ids.insert(case.id), "two cases are called {}", case.id);
    }
}

#[test]
fn requirements_have_ids_of_their_own_and_a_source() {
    let mut ids = BTreeSet::new();
    for requirement in requirements::all() {
        assert!(
            ids.insert(requirement.id.clone()),
            "two requirements are called {}",
            requirement.id
        );
        assert!(
            !requirement.text.is_empty() && !requirement.source.is_empty(),
            "{} is incomplete",
            requirement.id
        );
    }
}

#[test]
fn every_entry_of_the_catalogue_has_a_case_or_a_reason_and_every_case_an_entry() {
    let cases: Vec<&str> = cases::all::<SimBed>().iter().map(|case| case.id).collect();
    let entries = catalogue::all();
    let mut ids = BTreeSet::new();
    for entry in &entries {
        assert!(
            ids.insert(entry.id.as_str()),
            "two entries are called {}",
            entry.id
        );
        let shown = cases.iter().any(|case| entry.is_shown_by(case));
        assert_eq!(
            shown,
            entry.without.is_none(),
            "{} must have either a case or a reason why it has none",
            entry.id
        );
        for other in &entry.also {
            assert!(
                cases.contains(&other.as_str()),
                "{} names a case {other}",
                entry.id
            );
        }
    }
    for case in &cases {
        let entry = catalogue::entry_of(case);
        assert!(
            ids.contains(entry),
            "case {case} belongs to no entry of the catalogue"
        );
    }
}

#[test]
fn the_catalogue_report_has_every_entry_and_counts_those_that_are_a_must() {
    let (text, summary) = report(Format::Catalogue, "P_Key");
    assert!(text.contains("\nB3   query_pkey"), "{text}");
    assert_eq!(text.matches("pass       B3 ").count(), 2, "{text}");
    assert!(
        text.contains("in groups A to I: 60, shown without failure on each bed that ran: 1\n"),
        "{text}"
    );
    let counts = format!("cases: {} passed, 0 documented", summary.passed);
    assert!(text.contains(&counts), "{text}");
}

/// A few cases that take no time, as a report.
fn report(format: Format, filter: &str) -> (String, Summary) {
    let options = RunOptions {
        beds: vec![BedKind::Sim, BedKind::Udp],
        filter: Some(filter.to_owned()),
        format,
        failures: None,
        ..RunOptions::default()
    };
    let mut out = Vec::new();
    let summary = run(&options, &mut out, &mut |_| ()).expect("writing to memory");
    (String::from_utf8(out).expect("a report is text"), summary)
}

#[test]
fn the_json_report_parses_and_agrees_with_the_summary() {
    let (text, summary) = report(Format::Json, "P_Key");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["passed"], summary.passed);
    assert_eq!(value["failed"], 0);
    let cases = value["cases"].as_array().expect("a list of cases");
    assert_eq!(cases.len(), summary.passed + summary.skipped + summary.deviations);
    assert_eq!(cases[0]["id"], "B3");
    assert_eq!(cases[0]["verdict"], "pass");
}

#[test]
fn the_junit_report_has_a_suite_a_bed_and_closes_what_it_opens() {
    let (text, summary) = report(Format::Junit, "P_Key");
    assert!(text.starts_with("<?xml version=\"1.0\""));
    assert_eq!(text.matches("<testsuite ").count(), 2);
    assert_eq!(
        text.matches("<testcase ").count(),
        summary.passed + summary.skipped + summary.deviations
    );
    assert_eq!(text.matches("</testsuite>").count(), 2);
    assert!(text.trim_end().ends_with("</testsuites>"));
}

#[test]
fn the_table_has_a_line_a_case_and_ends_with_the_counts() {
    let (text, summary) = report(Format::Pretty, "P_Key");
    assert!(text.contains("B3"), "{text}");
    let counts = format!(
        "{} passed, 0 documented deviations, 0 failed, {} skipped",
        summary.passed, summary.skipped
    );
    assert!(text.trim_end().ends_with(&counts), "{text}");
}

#[test]
fn nothing_selected_is_no_success() {
    let (_, summary) = report(Format::Pretty, "no case has this in its title");
    assert_eq!(summary, Summary::default());
    assert_eq!(summary.exit_status(), 2);
    assert_eq!(
        Summary {
            passed: 3,
            skipped: 1,
            ..summary
        }
        .exit_status(),
        0
    );
    assert_eq!(
        Summary {
            passed: 3,
            failed: 1,
            ..summary
        }
        .exit_status(),
        1
    );
}

#[test]
fn the_list_names_cases_beds_and_requirements() {
    let options = RunOptions {
        beds: vec![BedKind::Sim],
        filter: Some("d1".into()),
        ..RunOptions::default()
    };
    let mut out = Vec::new();
    list(&options, &mut out).expect("writing to memory");
    let text = String::from_utf8(out).expect("a list is text");
    assert!(
        text.lines()
            .any(|line| line.starts_with("D1 ") && line.contains("sim") && line.contains("SEND-1")),
        "{text}"
    );
}

#[test]
fn every_tolerance_names_a_case_and_its_requirement_and_has_a_log() {
    let cases = cases::all::<SimBed>();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in all_tolerances() {
        for tolerance in &file.tolerance {
            let what = format!("{}: {}", file.device, tolerance.case);
            let case = cases.iter().find(|case| case.id == tolerance.case);
            let case = case.unwrap_or_else(|| panic!("{what}: there is no such case"));
            assert!(
                case.requirements.contains(&tolerance.requirement.as_str()),
                "{what}: the case does not show {}",
                tolerance.requirement
            );
            assert!(!tolerance.why.is_empty() && !tolerance.seen.is_empty(), "{what}");
            assert!(
                root.join(&tolerance.shown_by).is_file(),
                "{what}: there is no {}",
                tolerance.shown_by
            );
        }
    }
}
