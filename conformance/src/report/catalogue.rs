//! The catalogue with verdicts, and how much of it is shown.

use std::io::{self, Write};

use crate::catalogue::{self, CatalogueEntry, MadeWith};
use crate::outcome::Verdict;
use crate::run::{Row, Summary};

/// The groups whose entries of priority 1 that need verbs only are a must on every provider.
const MUST_GROUPS: &str = "ABCDEFGHI";

pub(super) fn write(rows: &[Row], summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let (mut must, mut must_shown) = (0, 0);
    for entry in catalogue::all() {
        let shown: Vec<&Row> = rows
            .iter()
            .filter(|row| entry.is_shown_by(row.entry.id))
            .collect();
        if is_must(&entry) {
            must += 1;
            must_shown += usize::from(is_shown(&shown));
        }
        writeln!(out, "{:4} {}", entry.id, entry.text)?;
        for row in &shown {
            let (bed, id, word) = (row.entry.bed.name(), row.entry.id, row.verdict.word());
            write!(out, "       {bed:3}  {word:9}  {id:14}")?;
            match row.verdict.explanation() {
                Some(why) => writeln!(out, "  {why}")?,
                None => writeln!(out)?,
            }
        }
        if let (true, Some(why)) = (shown.is_empty(), &entry.without) {
            writeln!(out, "       no case: {why}")?;
        }
    }
    writeln!(
        out,
        "\nentries of priority 1 with verbs alone in groups A to I: {must}, shown without failure on each bed that \
         ran: {must_shown}"
    )?;
    writeln!(
        out,
        "cases: {} passed, {} documented deviations, {} failed, {} skipped",
        summary.passed, summary.deviations, summary.failed, summary.skipped
    )
}

fn is_must(entry: &CatalogueEntry) -> bool {
    let listed = entry.id.starts_with(|group| MUST_GROUPS.contains(group));
    listed && entry.priority == 1 && entry.made_with == MadeWith::Verbs
}

/// All its cases ended well, on every bed at least one.
fn is_shown(rows: &[&Row]) -> bool {
    let good = |row: &Row| matches!(row.verdict, Verdict::Pass | Verdict::Deviation(_));
    let beds = |wanted: &dyn Fn(&Row) -> bool| {
        let mut beds: Vec<&str> = rows
            .iter()
            .filter(|row| wanted(row))
            .map(|row| row.entry.bed.name())
            .collect();
        beds.dedup();
        beds
    };
    let failed = rows.iter().any(|row| matches!(row.verdict, Verdict::Fail(_)));
    !rows.is_empty() && !failed && beds(&|row| good(row)) == beds(&|_| true)
}
