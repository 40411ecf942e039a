//! The table of `docs/perftest.md`: what came of every combination on both, groups of like ones together.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::matrix::Combination;
use super::pair::Verdict;
use super::record::Record;

/// A set's title and a tool, and for each connection type how many pass on rxe and on softroce, of how many.
type Row<'a> = ((&'a str, &'a str), BTreeMap<&'a str, [usize; 3]>);

/// Two tables in Markdown: the matrix, and what is said where something is refused.
pub fn report(combinations: &[Combination], rxe: &Record, softroce: &Record) -> String {
    format!(
        "{}\n{}",
        accepted(combinations, rxe, softroce),
        refused(combinations, rxe, softroce)
    )
}

/// For each set and tool a row, for each connection type a cell: how many pass on rxe and on softroce, of how many.
fn accepted(combinations: &[Combination], rxe: &Record, softroce: &Record) -> String {
    const CONNECTIONS: [&str; 6] = ["RC", "UC", "UD", "XRC", "DC", "SRD"];
    let mut rows: Vec<Row> = Vec::new();
    for combination in combinations {
        let key = (combination.title.as_str(), combination.tool.as_str());
        let at = rows.iter().position(|(row, _)| *row == key).unwrap_or_else(|| {
            rows.push((key, BTreeMap::new()));
            rows.len() - 1
        });
        let cell = rows[at].1.entry(&combination.connection).or_default();
        for (count, record) in cell.iter_mut().zip([rxe, softroce]) {
            *count += usize::from(record.of(combination) == Some(&Verdict::Passes));
        }
        cell[2] += 1;
    }
    let mut out = format!("| what | tool | {} |\n|---|---|", CONNECTIONS.join(" | "));
    out += &"---|".repeat(CONNECTIONS.len());
    out.push('\n');
    let mut last = "";
    for ((title, tool), cells) in rows {
        let _ = write!(out, "| {} | {tool} |", if title == last { "" } else { title });
        last = title;
        for connection in CONNECTIONS {
            let _ = match cells.get(connection) {
                Some([rxe, softroce, all]) => write!(out, " {rxe} · {softroce} of {all} |"),
                None => write!(out, " |"),
            };
        }
        out.push('\n');
    }
    out
}

/// For each thing that is said a row: in how many combinations on each, and the first of them.
fn refused(combinations: &[Combination], rxe: &Record, softroce: &Record) -> String {
    let mut rows: Vec<(&str, [usize; 2], &Combination)> = Vec::new();
    for combination in combinations {
        for (column, record) in [rxe, softroce].into_iter().enumerate() {
            let Some(message) = record
                .of(combination)
                .map(Verdict::message)
                .filter(|said| !said.is_empty())
            else {
                continue;
            };
            let at = rows.iter().position(|row| row.0 == message).unwrap_or_else(|| {
                rows.push((message, [0; 2], combination));
                rows.len() - 1
            });
            rows[at].1[column] += 1;
        }
    }
    let mut out = "| said | rxe | softroce | for example |\n|---|---|---|---|\n".to_owned();
    for (message, [on_rxe, on_softroce], example) in rows {
        let words = example.words().join(" ");
        let _ = writeln!(out, "| {message} | {on_rxe} | {on_softroce} | `{words}` |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::report;
    use crate::perftest::{Record, matrix};

    const BEGIN: &str = "<!-- tables: begin -->\n";
    const END: &str = "<!-- tables: end -->";

    /// With `PERFTEST_UPDATE` set, writes them there instead.
    #[test]
    fn the_documentation_shows_the_tables_of_the_records() {
        let combinations = matrix().expect("the matrix is well-formed");
        let record = |text| Record::parse(text).expect("the record is well-formed");
        let tables = report(
            &combinations,
            &record(include_str!("../../data/perftest/rxe.tsv")),
            &record(include_str!("../../data/perftest/softroce.tsv")),
        );
        let path = crate::program::repository().join("docs/perftest.md");
        let text = std::fs::read_to_string(&path).expect("docs/perftest.md can be read");
        let (before, rest) = text.split_once(BEGIN).expect("there is a mark before the tables");
        let (shown, after) = rest.split_once(END).expect("there is a mark behind the tables");
        if std::env::var_os("PERFTEST_UPDATE").is_some() {
            std::fs::write(&path, format!("{before}{BEGIN}{tables}{END}{after}"))
                .expect("docs/ can be written to");
        } else {
            assert_eq!(
                shown, tables,
                "renew docs/perftest.md with PERFTEST_UPDATE=1 and this test"
            );
        }
    }
}
