//! The same engine behind the C ABI: perftest's tools, unmodified, through the drop-in.

use anyhow::{Context as _, Result};

use super::Contest;
use super::process::{Pair, is_installed, own};

/// A tool's figure, and the row of ours that it is compared with.
struct Tool {
    name: &'static str,
    beside: &'static str,
    program: &'static str,
    size: u32,
    iters: u32,
    column: Column,
}

#[derive(Clone, Copy)]
enum Column {
    /// Typical half round trip, us.
    Typical,
    /// Average, Gbit/s.
    Average,
}

const TOOLS: [Tool; 4] = [
    Tool {
        name: "ib_send_lat 8 B",
        beside: "softroce SEND 8 B",
        program: "ib_send_lat",
        size: 8,
        iters: 40_000,
        column: Column::Typical,
    },
    Tool {
        name: "ib_write_lat 8 B",
        beside: "softroce WRITE 8 B, memory-poll",
        program: "ib_write_lat",
        size: 8,
        iters: 40_000,
        column: Column::Typical,
    },
    Tool {
        name: "ib_write_bw 64 KiB",
        beside: "softroce WRITE 64 KiB",
        program: "ib_write_bw",
        size: 1 << 16,
        iters: 40_000,
        column: Column::Average,
    },
    Tool {
        name: "ib_write_bw 1 MiB",
        beside: "softroce WRITE 1 MiB",
        program: "ib_write_bw",
        size: 1 << 20,
        iters: 4_000,
        column: Column::Average,
    },
];

/// Add each tool's contest behind the one that it is compared with, if they are installed; else note it.
pub fn add(contests: &mut Vec<Contest>, notes: &mut Vec<String>, quick: bool) {
    for tool in &TOOLS {
        if !is_installed(tool.program) {
            notes.push(format!(
                "{} is not installed (Debian package perftest): left out",
                tool.program
            ));
            continue;
        }
        let beside = contests
            .iter()
            .position(|contest| contest.rows.iter().any(|(name, _)| *name == tool.beside));
        let iters = if quick { tool.iters / 4 } else { tool.iters };
        let contest = Contest {
            rows: vec![(
                tool.name,
                match tool.column {
                    Column::Typical => "us",
                    Column::Average => "Gbit/s",
                },
            )],
            run: Box::new(move |pair: &Pair| run(pair, tool, iters)),
        };
        contests.insert(beside.map_or(contests.len(), |at| at + 1), contest);
    }
}

fn run(pair: &Pair, tool: &Tool, iters: u32) -> Result<Vec<f64>> {
    let (port, size, iters) = (
        pair.next_port().to_string(),
        tool.size.to_string(),
        iters.to_string(),
    );
    let command = || {
        let mut command = own();
        command
            .args(["run", "--", tool.program, "-F", "-p", &port])
            .args(["-s", &size, "-n", &iters]);
        if matches!(tool.column, Column::Average) {
            command.arg("--report_gbits");
        }
        command
    };
    let text = pair.run(&mut command(), command().arg("127.0.0.1"))?;
    figure(&text, tool.column).map(|figure| vec![figure])
}

/// The figure from the table that a tool prints below its head, which begins with `#bytes`.
fn figure(text: &str, column: Column) -> Result<f64> {
    let mut lines = text.lines().skip_while(|line| !line.trim().starts_with("#bytes"));
    let line = lines.nth(1).with_context(|| format!("no table in {text:?}"))?;
    // bytes, iterations, then: shortest, longest, typical; or: peak, average.
    let at = match column {
        Column::Typical => 4,
        Column::Average => 3,
    };
    line.split_whitespace()
        .nth(at)
        .and_then(|field| field.parse().ok())
        .with_context(|| format!("no column {at} in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_below_the_head() {
        let latency = " some text\n #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n 8 1000 4.6 98.45 5.47 6.14\n";
        assert_eq!(figure(latency, Column::Typical).unwrap(), 5.47);
        let bandwidth = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      1000             18.36              17.02 \t\t   0.032463\n";
        assert_eq!(figure(bandwidth, Column::Average).unwrap(), 17.02);
        assert!(figure("Unable to init the socket connection", Column::Average).is_err());
    }
}
