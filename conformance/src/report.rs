//! Reports: tables and a page for people, JSON and JUnit for machines.

mod catalogue;
mod html;
mod json;
mod junit;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

pub use html::html_page;

use crate::beds::{Entry, Tolerance};
use crate::outcome::Verdict;
use crate::requirements;
use crate::run::{Row, Summary};

/// How to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table.
    Pretty,
    /// The catalogue, with the verdicts on the cases of each entry.
    Catalogue,
    /// One JSON object.
    Json,
    /// JUnit XML.
    Junit,
    /// One page for a browser, complete in itself.
    Html,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "pretty" => Ok(Format::Pretty),
            "catalogue" => Ok(Format::Catalogue),
            "json" => Ok(Format::Json),
            "junit" => Ok(Format::Junit),
            "html" => Ok(Format::Html),
            _ => Err(format!(
                "there is no format {name:?}; the formats are pretty, catalogue, json, junit and html"
            )),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Pretty => "pretty",
            Format::Catalogue => "catalogue",
            Format::Json => "json",
            Format::Junit => "junit",
            Format::Html => "html",
        })
    }
}

/// A report in the making: the table grows row by row, the others are written at the end.
pub(crate) struct Report {
    format: Format,
    id_width: usize,
    title_width: usize,
}

fn widest<'a>(entries: &'a [Entry], text: impl Fn(&'a Entry) -> &'a str) -> usize {
    entries
        .iter()
        .map(|entry| text(entry).chars().count())
        .max()
        .unwrap_or(0)
        .max(5)
}

impl Report {
    pub(crate) fn begin(format: Format, entries: &[Entry], out: &mut dyn Write) -> io::Result<Self> {
        let report = Report {
            format,
            id_width: widest(entries, |e| e.id),
            title_width: widest(entries, |e| e.title),
        };
        if format == Format::Pretty {
            report.line(out, "case", "title", "bed", "verdict", "time")?;
        }
        Ok(report)
    }

    fn line(
        &self,
        out: &mut dyn Write,
        id: &str,
        title: &str,
        bed: &str,
        verdict: &str,
        time: &str,
    ) -> io::Result<()> {
        let (id_width, title_width) = (self.id_width, self.title_width);
        writeln!(
            out,
            "{id:id_width$}  {title:title_width$}  {bed:3}  {verdict:9}  {time:>9}"
        )?;
        out.flush()
    }

    pub(crate) fn row(&mut self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        if self.format != Format::Pretty {
            return Ok(());
        }
        let time = match row.verdict {
            Verdict::Skipped(_) => "-".to_owned(),
            _ => format!("{:.1} ms", row.elapsed.as_secs_f64() * 1000.0),
        };
        let entry = &row.entry;
        self.line(
            out,
            entry.id,
            entry.title,
            entry.bed.name(),
            row.verdict.word(),
            &time,
        )?;
        if let Verdict::Fail(why) | Verdict::Deviation(why) = &row.verdict {
            writeln!(out, "{:1$}  {why}", "", self.id_width)?;
        }
        Ok(())
    }

    /// `idle`: documented deviations that did not occur.
    pub(crate) fn end(
        &self,
        rows: &[Row],
        summary: &Summary,
        idle: &[Tolerance],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self.format {
            Format::Pretty => {
                pretty_idle(idle, out)?;
                pretty_end(rows, summary, out)
            }
            Format::Catalogue => catalogue::write(rows, summary, out),
            Format::Json => json::write(rows, summary, idle, out),
            Format::Junit => junit::write(rows, summary, out),
            Format::Html => out.write_all(html_page(rows, summary, idle).as_bytes()),
        }
    }
}

fn pretty_idle(idle: &[Tolerance], out: &mut dyn Write) -> io::Result<()> {
    for tolerance in idle {
        writeln!(
            out,
            "\na documented deviation did not occur in {}: {}",
            tolerance.case, tolerance.seen
        )?;
    }
    Ok(())
}

fn pretty_end(rows: &[Row], summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
    for row in rows {
        let Verdict::Skipped(why) = &row.verdict else {
            continue;
        };
        let bed = row.entry.bed.name();
        match reasons
            .iter_mut()
            .find(|(b, w, _)| (*b, *w) == (bed, why.as_str()))
        {
            Some((_, _, count)) => *count += 1,
            None => reasons.push((bed, why, 1)),
        }
    }
    for (bed, why, count) in reasons {
        writeln!(out, "\nskipped on {bed}: {count}, since {why}")?;
    }
    let failed: Vec<&Row> = rows
        .iter()
        .filter(|row| matches!(row.verdict, Verdict::Fail(_)))
        .collect();
    if !failed.is_empty() {
        let known = requirements::all();
        writeln!(out, "\nfailures:")?;
        for row in failed {
            let Verdict::Fail(why) = &row.verdict else {
                continue;
            };
            writeln!(
                out,
                "\n{} on {}: {}\n  {why}",
                row.entry.id, row.entry.bed, row.entry.title
            )?;
            for requirement in known
                .iter()
                .filter(|r| row.entry.requirements.contains(&r.id.as_str()))
            {
                let clause = if requirement.clause.is_empty() { "" } else { ", " };
                writeln!(
                    out,
                    "  required ({}{clause}{}): {}",
                    requirement.id, requirement.clause, requirement.text
                )?;
            }
            if let Some(capture) = &row.capture {
                writeln!(out, "  packets: {}", capture.display())?;
            }
        }
    }
    writeln!(
        out,
        "\n{} passed, {} documented deviations, {} failed, {} skipped",
        summary.passed, summary.deviations, summary.failed, summary.skipped
    )
}

pub(crate) fn list(entries: &[Entry], format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Json => json::list(entries, out),
        Format::Junit | Format::Catalogue | Format::Html => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a list has no form {format}; use pretty or json"),
        )),
        Format::Pretty => {
            let (id_width, title_width) = (widest(entries, |e| e.id), widest(entries, |e| e.title));
            for entry in entries {
                let (id, title, bed) = (entry.id, entry.title, entry.bed.name());
                let requirements = entry.requirements.join(" ");
                write!(
                    out,
                    "{id:id_width$}  {title:title_width$}  {bed:3}  {requirements}"
                )?;
                match entry.missing {
                    Some(missing) => writeln!(out, "  (skipped: {missing})")?,
                    None => writeln!(out)?,
                }
            }
            Ok(())
        }
    }
}
