//! JUnit XML: a test suite a bed.

use std::io::{self, Write};

use crate::beds::BedKind;
use crate::outcome::Verdict;
use crate::run::{Row, Summary};

pub(super) fn write(rows: &[Row], summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuites name=\"conformance\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
        rows.len(),
        summary.failed,
        summary.skipped,
        seconds(rows.iter())
    )?;
    for bed in BedKind::ALL {
        let own: Vec<&Row> = rows.iter().filter(|row| row.entry.bed == bed).collect();
        if own.is_empty() {
            continue;
        }
        let count = |matching: fn(&Verdict) -> bool| own.iter().filter(|row| matching(&row.verdict)).count();
        writeln!(
            out,
            "  <testsuite name=\"{bed}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3}\">",
            own.len(),
            count(|v| matches!(v, Verdict::Fail(_))),
            count(|v| matches!(v, Verdict::Skipped(_))),
            seconds(own.iter().copied())
        )?;
        for row in own {
            test_case(row, out)?;
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")
}

fn seconds<'a>(rows: impl Iterator<Item = &'a Row>) -> f64 {
    // Of no numbers the sum is -0.
    rows.map(|row| row.elapsed.as_secs_f64())
        .fold(0.0, |sum, seconds| sum + seconds)
}

fn test_case(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "    <testcase classname=\"conformance.{}\" name=\"{} {}\" time=\"{:.3}\"",
        row.entry.bed,
        escaped(row.entry.id),
        escaped(row.entry.title),
        row.elapsed.as_secs_f64()
    )?;
    match &row.verdict {
        Verdict::Pass => writeln!(out, "/>"),
        Verdict::Skipped(why) => writeln!(out, "><skipped message=\"{}\"/></testcase>", escaped(why)),
        Verdict::Fail(why) => writeln!(out, "><failure message=\"{}\"/></testcase>", escaped(why)),
        Verdict::Deviation(why) => writeln!(out, "><system-out>{}</system-out></testcase>", escaped(why)),
    }
}

/// Text as XML takes it, in attributes too. Characters that XML 1.0 cannot hold become question marks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no rows it was "-0.000".
    #[test]
    fn no_case_takes_no_time() {
        assert_eq!(format!("{:.3}", seconds([].iter())), "0.000");
        let mut out = Vec::new();
        write(&[], &Summary::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("time=\"0.000\""), "{text}");
    }

    #[test]
    fn text_is_escaped_for_attributes() {
        assert_eq!(escaped("a<b> & \"c\"\u{1}\n"), "a&lt;b&gt; &amp; &quot;c&quot;? ");
    }
}
