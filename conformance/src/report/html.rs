//! One page for a browser: requirements against beds; for each failure and deviation what was expected, the
//! completions, the packets as a ladder, and the capture to download. Complete in itself: no script, no network.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use roce_analyze::ladder::{STYLE, escaped};

use crate::beds::{BedKind, Tolerance};
use crate::outcome::Verdict;
use crate::requirements::{self, Requirement};
use crate::run::{Row, Summary};

mod packets;

/// What the page needs besides the style of its ladders.
const OWN_STYLE: &str = "\
h1{margin:.2rem 0}h2{margin:2rem 0 .6rem}h3{margin:0}a{color:var(--request)}\n\
.bar{display:flex;height:12px;border-radius:6px;overflow:hidden;margin:.8rem 0;background:var(--rule)}\n\
.bar i{display:block}.bar .pass{background:var(--ack)}.bar .deviation{background:var(--note)}\
.bar .fail{background:var(--bad)}.bar .skipped{background:var(--rule)}\n\
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;\
border-bottom:1px solid var(--rule)}th{font-weight:600;color:var(--faint)}\n\
td.id{white-space:nowrap;font-family:ui-monospace,monospace}td.n{text-align:right;white-space:nowrap}\n\
.v{display:inline-block;min-width:1.6rem;padding:0 .45rem;border-radius:4px;white-space:nowrap;\
border:1px solid currentColor;font-size:.86em}\n\
.v.pass{color:var(--ack)}.v.fail{color:var(--bad);font-weight:bold}.v.deviation{color:var(--note)}\
.v.skipped{color:var(--faint)}\n\
article{background:var(--panel);border:1px solid var(--rule);border-left:4px solid var(--bad);border-radius:6px;\
padding:1rem;margin:1rem 0}article.deviation{border-left-color:var(--note)}\n\
article .scroll{background:var(--paper);border-radius:4px;margin:.6rem 0}\n\
.why{font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}\n\
.faint{color:var(--faint)}summary{cursor:pointer}details{margin:.5rem 0}\n";

/// The report as a page. Captures of rows are read from their files; `idle` are documented deviations that did not
/// occur.
pub fn html_page(rows: &[Row], summary: &Summary, idle: &[Tolerance]) -> String {
    let known = requirements::all();
    let mut out = String::with_capacity(1 << 16);
    out.push_str(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>RDMA conformance</title>\n<style>\n",
    );
    out.push_str(STYLE);
    out.push_str(OWN_STYLE);
    out.push_str("</style></head>\n<body>\n<h1>RDMA conformance</h1>\n");
    overview(rows, summary, &mut out);
    troubles(rows, &known, &mut out);
    idle_tolerances(idle, &mut out);
    matrix(rows, &known, &mut out);
    all_cases(rows, &mut out);
    out.push_str("</body></html>\n");
    out
}

/// The class of a verdict, which is also its word.
fn class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Deviation(_) => "deviation",
        Verdict::Fail(_) => "fail",
        Verdict::Skipped(_) => "skipped",
    }
}

fn is_trouble(row: &Row) -> bool {
    matches!(row.verdict, Verdict::Fail(_) | Verdict::Deviation(_))
}

/// Where on the page a row's packets stand.
fn anchor(row: &Row) -> String {
    format!("{}-{}", row.entry.bed, row.entry.id)
}

// Writing to a string does not fail, here and below.

fn overview(rows: &[Row], summary: &Summary, out: &mut String) {
    let beds: Vec<&str> = beds_of(rows).into_iter().map(BedKind::name).collect();
    let _ = writeln!(
        out,
        "<p>{} case{} on {}: <span class=\"v pass\">{} passed</span> <span class=\"v deviation\">{} documented \
         deviations</span> <span class=\"v fail\">{} failed</span> <span class=\"v skipped\">{} skipped</span></p>",
        rows.len(),
        if rows.len() == 1 { "" } else { "s" },
        escaped(&beds.join(", ")),
        summary.passed,
        summary.deviations,
        summary.failed,
        summary.skipped
    );
    out.push_str("<div class=\"bar\" role=\"img\" aria-label=\"shares of the verdicts\">");
    for (class, count) in [
        ("fail", summary.failed),
        ("deviation", summary.deviations),
        ("pass", summary.passed),
        ("skipped", summary.skipped),
    ] {
        if count > 0 {
            let _ = write!(out, "<i class=\"{class}\" style=\"flex:{count}\"></i>");
        }
    }
    out.push_str("</div>\n");
}

fn beds_of(rows: &[Row]) -> Vec<BedKind> {
    BedKind::ALL
        .into_iter()
        .filter(|bed| rows.iter().any(|row| row.entry.bed == *bed))
        .collect()
}

/// Failures first, then deviations, each with its packets.
fn troubles(rows: &[Row], known: &[Requirement], out: &mut String) {
    let mut room = packets::Room::default();
    for (class_wanted, title) in [("fail", "Failures"), ("deviation", "Documented deviations")] {
        let mut chosen = rows
            .iter()
            .filter(|row| class(&row.verdict) == class_wanted)
            .peekable();
        if chosen.peek().is_none() {
            continue;
        }
        let _ = writeln!(out, "<h2>{title}</h2>");
        for row in chosen {
            trouble(row, known, &mut room, out);
        }
    }
}

fn idle_tolerances(idle: &[Tolerance], out: &mut String) {
    if idle.is_empty() {
        return;
    }
    out.push_str("<h2>Documented deviations that did not occur</h2>\n<ul>\n");
    for tolerance in idle {
        let _ = writeln!(
            out,
            "<li><b>{}</b> ({}): {}</li>",
            escaped(&tolerance.case),
            escaped(&tolerance.requirement),
            escaped(&tolerance.seen)
        );
    }
    out.push_str("</ul>\n");
}

fn trouble(row: &Row, known: &[Requirement], room: &mut packets::Room, out: &mut String) {
    let class = class(&row.verdict);
    let _ = writeln!(
        out,
        "<article id=\"{}\" class=\"{class}\"><h3>{} on {}: {}</h3>\n<p class=\"why\"><span class=\"v {class}\">{class}\
         </span> {}</p>",
        escaped(&anchor(row)),
        escaped(row.entry.id),
        row.entry.bed,
        escaped(row.entry.title),
        escaped(row.verdict.explanation().unwrap_or_default())
    );
    out.push_str("<ul>\n");
    for requirement in known
        .iter()
        .filter(|r| row.entry.requirements.contains(&r.id.as_str()))
    {
        let clause = match requirement.clause.as_str() {
            "" => String::new(),
            clause => format!(" ({clause})"),
        };
        let _ = writeln!(
            out,
            "<li><b>{}</b>{} {}</li>",
            escaped(&requirement.id),
            escaped(&clause),
            escaped(&requirement.text)
        );
    }
    out.push_str("</ul>\n");
    completions(row, out);
    packets::write(row, room, out);
    out.push_str("</article>\n");
}

fn completions(row: &Row, out: &mut String) {
    if row.completions.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<details><summary>{} completions</summary><table><tr><th>time</th><th>queue pair</th><th>request</th>\
         <th>status</th><th>what</th><th>bytes</th></tr>",
        row.completions.len()
    );
    for completed in &row.completions {
        let _ = writeln!(
            out,
            "<tr><td class=\"n\">{:.3} ms</td><td class=\"id\">{:#x}</td><td class=\"n\">{}</td><td>{:?}</td><td>{}\
             </td><td class=\"n\">{}</td></tr>",
            completed.at.as_secs_f64() * 1000.0,
            completed.qpn,
            completed.wr_id,
            completed.status,
            escaped(completed.what.as_deref().unwrap_or("-")),
            completed.byte_len
        );
    }
    out.push_str("</table></details>\n");
}

/// A line a requirement, a column a bed: how many of its cases ended how.
fn matrix(rows: &[Row], known: &[Requirement], out: &mut String) {
    let beds = beds_of(rows);
    out.push_str("<h2>Requirements</h2>\n<div class=\"scroll\"><table><tr><th>id</th><th>requirement</th>");
    for bed in &beds {
        let _ = write!(out, "<th>{bed}</th>");
    }
    out.push_str("</tr>\n");
    for requirement in known {
        let of = |row: &&Row| row.entry.requirements.contains(&requirement.id.as_str());
        if !rows.iter().any(|row| of(&row)) {
            continue;
        }
        let _ = write!(
            out,
            "<tr><td class=\"id\">{}</td><td>{}</td>",
            escaped(&requirement.id),
            escaped(&requirement.text)
        );
        for bed in &beds {
            out.push_str("<td>");
            cell(rows.iter().filter(of).filter(|row| row.entry.bed == *bed), out);
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn cell<'a>(rows: impl Iterator<Item = &'a Row>, out: &mut String) {
    let mut counts: BTreeMap<&str, (usize, &Row)> = BTreeMap::new();
    for row in rows {
        counts.entry(class(&row.verdict)).or_insert((0, row)).0 += 1;
    }
    for word in ["fail", "deviation", "pass", "skipped"] {
        let Some((count, first)) = counts.get(word) else {
            continue;
        };
        if is_trouble(first) {
            let anchor = escaped(&anchor(first));
            let _ = write!(
                out,
                "<a class=\"v {word}\" href=\"#{anchor}\">{count} {word}</a> "
            );
        } else {
            let _ = write!(out, "<span class=\"v {word}\">{count} {word}</span> ");
        }
    }
}

fn all_cases(rows: &[Row], out: &mut String) {
    for bed in beds_of(rows) {
        let own: Vec<&Row> = rows.iter().filter(|row| row.entry.bed == bed).collect();
        let open = if own.len() <= 20 { " open" } else { "" };
        let _ = writeln!(
            out,
            "<h2>Cases on {bed}</h2>\n<details{open}><summary>{} in all</summary>\n<table><tr><th>case</th><th>title</th>\
             <th>verdict</th><th>time</th></tr>",
            own.len()
        );
        for row in own {
            let word = class(&row.verdict);
            let verdict = if is_trouble(row) {
                let anchor = escaped(&anchor(row));
                format!("<a class=\"v {word}\" href=\"#{anchor}\">{word}</a>")
            } else {
                format!("<span class=\"v {word}\">{word}</span>")
            };
            let note = match &row.verdict {
                Verdict::Skipped(why) => format!(" <span class=\"faint\">{}</span>", escaped(why)),
                Verdict::Pass | Verdict::Deviation(_) | Verdict::Fail(_) => String::new(),
            };
            let _ = writeln!(
                out,
                "<tr><td class=\"id\">{}</td><td>{}{note}</td><td>{verdict}</td><td class=\"n\">{:.1} ms</td></tr>",
                escaped(row.entry.id),
                escaped(row.entry.title),
                row.elapsed.as_secs_f64() * 1000.0
            );
        }
        out.push_str("</table></details>\n");
    }
}
