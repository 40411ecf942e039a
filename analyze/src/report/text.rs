//! The report for people.

use std::fmt;

use crate::finding::Finding;
use crate::half::micros;
use crate::histogram::Histogram;
use crate::report::{CmMessage, ConnectionReport, DirectionReport, Report, Verdict};

/// Connections without findings that are told in words.
const PLAIN_MAX: usize = 32;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames: {} RoCEv2", self.frames, self.roce)?;
        for (count, what) in [
            (self.copies, "of them second copies, as received"),
            (self.wrong_icrc, "with a wrong ICRC"),
            (self.malformed, "malformed"),
            (self.cut_headers, "cut within their headers"),
            (self.joined, "joined by the interface"),
            (self.notifications, "congestion notifications"),
            (self.other, "of other protocols"),
            (self.not_judged, "of more connections than are judged"),
            (self.dropped, "lost by the capture"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        writeln!(f)?;
        if let Some(damage) = &self.damage {
            writeln!(f, "the capture is damaged, what follows was not read: {damage}")?;
        }
        for sender in &self.senders {
            for finding in &sender.findings {
                writeln!(f, "\n{}", sender.address)?;
                write_finding(f, finding)?;
            }
        }
        let mut plain = 0;
        for connection in &self.connections {
            let is_plain = connection.verdict == Verdict::Conforms;
            plain += usize::from(is_plain);
            if !is_plain || plain <= PLAIN_MAX {
                write!(f, "\n{connection}")?;
            }
        }
        if plain > PLAIN_MAX {
            writeln!(f, "\n{} more connections without findings", plain - PLAIN_MAX)?;
        }
        writeln!(
            f,
            "\n{} findings; {} connections conform, {} deviate, {} without a verdict",
            self.findings().count(),
            self.count(Verdict::Conforms),
            self.count(Verdict::Deviates),
            self.count(Verdict::None)
        )
    }
}

fn write_finding(f: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
    let frames: Vec<String> = finding.frames.iter().map(u64::to_string).collect();
    write!(
        f,
        "  {} by {}, frame {}",
        finding.requirement,
        finding.by,
        frames.join(", ")
    )?;
    if finding.count > 1 {
        write!(f, " ({} times)", finding.count)?;
    }
    writeln!(
        f,
        "\n    expected {}\n    seen     {}",
        finding.expected, finding.seen
    )
}

impl fmt::Display for ConnectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [forth, _] = &self.directions;
        let verdict = match self.verdict {
            Verdict::Conforms => "no finding",
            Verdict::Deviates => "DEVIATES",
            Verdict::None => "no verdict",
        };
        write!(
            f,
            "#{} {} {} - {}",
            self.number,
            self.service.name(),
            forth.from,
            forth.to
        )?;
        if let Some(mtu) = self.path_mtu {
            write!(f, ", path MTU {mtu}")?;
        }
        writeln!(f, ": {verdict}")?;
        for reason in &self.incomplete {
            writeln!(f, "  incomplete: {reason}")?;
        }
        if self.withheld > 0 {
            writeln!(
                f,
                "  {} kinds of findings withheld, since packets are missing",
                self.withheld
            )?;
        }
        if self.icrc_unknown > 0 {
            writeln!(
                f,
                "  ICRC and payload of {} cut packets not checked",
                self.icrc_unknown
            )?;
        }
        for CmMessage { frame, message } in &self.messages {
            writeln!(f, "  frame {frame}: {message}")?;
        }
        for direction in &self.directions {
            write_direction(f, direction)?;
        }
        for finding in &self.findings {
            write_finding(f, finding)?;
        }
        Ok(())
    }
}

fn write_direction(f: &mut fmt::Formatter<'_>, direction: &DirectionReport) -> fmt::Result {
    let counts = &direction.counts;
    if counts.requests + counts.answers == 0 {
        return Ok(());
    }
    write!(
        f,
        "  from {}: {} request packets, {} messages, {} answers",
        direction.from, counts.requests, counts.messages, counts.answers
    )?;
    for (count, what) in [
        (counts.repeats, "sent again"),
        (counts.missing_requests, "missing at first"),
        (counts.missing_answers, "gaps in answers"),
        (counts.acks_out_of_order, "acknowledgements out of order"),
        (counts.sequence_naks, "sequence NAKs"),
        (counts.rnr_naks, "RNR NAKs"),
        (counts.fatal_naks, "fatal NAKs"),
        (counts.wrong_icrc, "with a wrong ICRC"),
        (counts.marked_lost, "marked as lost"),
        (counts.congestion_marks, "marked with congestion"),
        (counts.notifications, "congestion notifications"),
    ] {
        if count > 0 {
            write!(f, ", {count} {what}")?;
        }
    }
    writeln!(f)?;
    for (histogram, what) in [
        (&counts.answers_after, "answer after"),
        (&counts.nak_generation, "sequence NAK after"),
        (&counts.nak_reactions, "NAK heeded after"),
        (&counts.rnr_waits, "RNR NAK heeded after"),
        (&counts.retransmissions, "sent again unasked after"),
        (&counts.notification_gaps, "between notifications"),
    ] {
        write_histogram(f, histogram, what)?;
    }
    Ok(())
}

/// Least, middle, most, and a bar for each step that holds something.
fn write_histogram(f: &mut fmt::Formatter<'_>, histogram: &Histogram, what: &str) -> fmt::Result {
    let (Some(min), Some(median), Some(max)) =
        (histogram.min_ns(), histogram.median_ns(), histogram.max_ns())
    else {
        return Ok(());
    };
    writeln!(
        f,
        "    {what:24} {} times, {} to {}, median below {}",
        histogram.count(),
        micros(min),
        micros(max),
        micros(median)
    )?;
    if histogram.steps().nth(1).is_none() {
        return Ok(());
    }
    const BAR: u64 = 40;
    let most = histogram.steps().map(|(_, count)| count).max().unwrap_or(1);
    for (below, count) in histogram.steps() {
        let len = (u128::from(count) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        writeln!(
            f,
            "    {:>24} {count:>9} {}",
            format!("< {}", micros(below)),
            "#".repeat(len)
        )?;
    }
    Ok(())
}
