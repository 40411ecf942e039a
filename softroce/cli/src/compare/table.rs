//! The result of a comparison, for people and for machines.

use std::fmt;

use serde::Serialize;

/// One figure over all rounds.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub unit: &'static str,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// All figures of a run.
#[derive(Debug)]
pub struct Table {
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
    pub rounds: usize,
    pub pinned: bool,
}

/// How a ratio is judged.
#[derive(Clone, Copy, Debug, Serialize)]
enum Mark {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Debug, Serialize)]
struct Ratio {
    name: &'static str,
    against: &'static str,
    ratio: f64,
    mark: Mark,
    met: bool,
}

/// What is compared with what: softroce's figure, the other's, and the mark.
const RATIOS: &[(&str, &str, Mark)] = &[
    ("softroce SEND 8 B", "raw UDP spinning", Mark::AtMost(1.5)),
    (
        "softroce WRITE 8 B, polled",
        "raw UDP spinning",
        Mark::AtMost(1.5),
    ),
    ("softroce UC SEND 8 B", "raw UDP spinning", Mark::AtMost(1.5)),
    ("softroce UD SEND 8 B", "raw UDP spinning", Mark::AtMost(1.4)),
    (
        "softroce WRITE 8 B, memory-poll",
        "raw UDP blocking",
        Mark::AtMost(1.1),
    ),
    ("softroce SEND 1 MiB", "raw UDP GSO stream", Mark::AtLeast(0.6)),
    ("softroce WRITE 1 MiB", "raw UDP GSO stream", Mark::AtLeast(0.6)),
    ("ib_send_lat 8 B", "softroce SEND 8 B", Mark::AtMost(1.1)),
    (
        "ib_send_lat 8 B",
        "softroce SEND 8 B, each completed",
        Mark::AtMost(1.1),
    ),
    (
        "ib_write_lat 8 B",
        "softroce WRITE 8 B, memory-poll",
        Mark::AtMost(1.1),
    ),
    ("ib_write_bw 64 KiB", "softroce WRITE 64 KiB", Mark::AtLeast(0.9)),
    ("ib_write_bw 1 MiB", "softroce WRITE 1 MiB", Mark::AtLeast(0.9)),
    ("softroce SEND 64 B", "raw UDP 64 B staged", Mark::AtLeast(0.08)),
    ("softroce WRITE 64 B", "raw UDP 64 B staged", Mark::AtLeast(0.08)),
    ("softroce WRITE 4 KiB", "UCX tcp put 4 KiB", Mark::AtLeast(1.0)),
    (
        "softroce WRITE 4 KiB",
        "libfabric udp+rxd SEND 4 KiB",
        Mark::AtLeast(1.0),
    ),
    ("softroce SEND 8 B", "UCX tcp tag 8 B", Mark::AtMost(1.0)),
    (
        "softroce SEND 8 B",
        "libfabric udp+rxd SEND 64 B",
        Mark::AtMost(1.0),
    ),
    (
        "softroce SEND 1 MiB",
        "libfabric udp+rxd SEND 1 MiB",
        Mark::AtLeast(1.0),
    ),
];

impl Table {
    fn median(&self, name: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.median)
    }

    fn ratios(&self) -> impl Iterator<Item = Ratio> + '_ {
        RATIOS.iter().filter_map(|&(name, against, mark)| {
            let ratio = self.median(name)? / self.median(against)?;
            let met = match mark {
                Mark::AtMost(most) => ratio <= most,
                Mark::AtLeast(least) => ratio >= least,
            };
            Some(Ratio {
                name,
                against,
                ratio,
                mark,
                met,
            })
        })
    }

    /// For machines.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "rounds": self.rounds,
            "pinned": self.pinned,
            "figures": self.rows,
            "ratios": self.ratios().collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pinned = if self.pinned {
            "pinned to two CPUs"
        } else {
            "not pinned"
        };
        writeln!(
            f,
            "Medians of {} rounds, {pinned}; times are half round trips (p50).\n",
            self.rounds
        )?;
        writeln!(
            f,
            "{:<38} {:>12} {:>12} {:>12}  unit",
            "what", "median", "min", "max"
        )?;
        for row in &self.rows {
            let digits = if row.median >= 1000.0 { 0 } else { 2 };
            let Row {
                name,
                unit,
                median,
                min,
                max,
            } = row;
            writeln!(
                f,
                "{name:<38} {median:>12.digits$} {min:>12.digits$} {max:>12.digits$}  {unit}"
            )?;
        }
        writeln!(f, "\n{:<34} {:<30} {:>7}  mark", "ratio", "against", "")?;
        for Ratio {
            name,
            against,
            ratio,
            mark,
            met,
        } in self.ratios()
        {
            let mark = match mark {
                Mark::AtMost(most) => format!("at most {most}"),
                Mark::AtLeast(least) => format!("at least {least}"),
            };
            let met = if met { "met" } else { "MISSED" };
            writeln!(f, "{name:<34} {against:<30} {ratio:>7.2}  {mark}: {met}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
