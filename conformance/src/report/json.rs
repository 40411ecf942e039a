//! One JSON object for a run.

use std::io::{self, Write};

use serde::Serialize;

use crate::beds::{Entry, Tolerance};
use crate::run::{Row, Summary};

#[derive(Serialize)]
struct Run<'a> {
    passed: usize,
    deviations: usize,
    failed: usize,
    skipped: usize,
    /// Documented deviations that did not occur, by case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    did_not_occur: Vec<&'a str>,
    cases: Vec<CaseOut<'a>>,
}

#[derive(Serialize)]
struct CaseOut<'a> {
    bed: &'a str,
    id: &'a str,
    title: &'a str,
    priority: u8,
    requirements: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<String>,
}

fn case_out(entry: &Entry) -> CaseOut<'_> {
    CaseOut {
        bed: entry.bed.name(),
        id: entry.id,
        title: entry.title,
        priority: entry.priority,
        requirements: entry.requirements,
        verdict: None,
        explanation: entry.missing,
        seconds: None,
        capture: None,
    }
}

fn print(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

pub(super) fn write(
    rows: &[Row],
    summary: &Summary,
    idle: &[Tolerance],
    out: &mut dyn Write,
) -> io::Result<()> {
    let cases = rows.iter().map(|row| CaseOut {
        verdict: Some(match row.verdict.word() {
            "FAIL" => "fail",
            other => other,
        }),
        explanation: row.verdict.explanation(),
        seconds: Some(row.elapsed.as_secs_f64()),
        capture: row.capture.as_ref().map(|path| path.display().to_string()),
        ..case_out(&row.entry)
    });
    let run = Run {
        passed: summary.passed,
        deviations: summary.deviations,
        failed: summary.failed,
        skipped: summary.skipped,
        did_not_occur: idle.iter().map(|tolerance| tolerance.case.as_str()).collect(),
        cases: cases.collect(),
    };
    print(&run, out)
}

pub(super) fn list(entries: &[Entry], out: &mut dyn Write) -> io::Result<()> {
    print(&entries.iter().map(case_out).collect::<Vec<_>>(), out)
}
