//! Incast into one process, and targets that make no call.

use std::time::Duration;

use e2e::case::ensure;
use e2e::{Bed, Case, Outcome, Running, Stop};
use serde_json::Value;

use crate::peers::{Listener, number, printed_field, report_of};

const SOURCES: usize = 8;
const QPS: &str = "8";
/// Clock ticks of processor time a second, as `/proc/PID/stat` counts.
const TICKS_PER_SECOND: f64 = 100.0;
const IDLE: Duration = Duration::from_secs(3);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "eight processes of eight queue pairs into one lose next to nothing",
            incast,
        ),
        Case::new(
            "a target that registered memory and sleeps serves ten thousand reads and writes",
            || {
                let bed = Bed::loopback()?;
                let target = Listener::start(&bed, "passive", &[])?;
                let visitor = target.call(&bed, &["--count", "10000"])?;
                ensure(number(&report_of(visitor)?, "served")? == 10_000, || {
                    "not all were served".into()
                })?;
                report_of(target.process).map(drop)
            },
        ),
        Case::new(
            "two idle processes with a connection use no measurable processor time",
            idle,
        ),
        Case::new(
            "aligned words never tear against a spinning reader and writer",
            words,
        ),
    ]
}

fn incast() -> Outcome {
    let bed = Bed::loopback()?;
    let target = Listener::start(&bed, "incast", &["--sources", &SOURCES.to_string(), "--qps", QPS])?;
    let call = || target.call(&bed, &["--qps", QPS]);
    let sources = (0..SOURCES)
        .map(|_| call())
        .collect::<Result<Vec<Running>, Stop>>()?;
    let mut reports = sources
        .into_iter()
        .map(report_of)
        .collect::<Result<Vec<Value>, Stop>>()?;
    reports.push(report_of(target.process)?);
    let total = |name: &str| -> Result<u64, Stop> {
        reports
            .iter()
            .map(|report| number(report, &format!("counters.{name}")))
            .sum()
    };
    let (sent, again) = (total("sent_bytes")?, total("retransmitted_bytes")?);
    let (timeouts, probes) = (total("timeouts")?, total("probes")?);
    let shown = || {
        format!("{again} of {sent} bytes were sent again, {timeouts} recoveries by timeout, {probes} probes")
    };
    ensure(sent > 512 * 1024 * 1024, || {
        format!("only {sent} bytes were sent")
    })?;
    ensure(again * 100 <= sent && timeouts == 0, shown)
}

fn idle() -> Outcome {
    let bed = Bed::loopback()?;
    let target = Listener::start(&bed, "passive", &[])?;
    let seconds = (IDLE.as_secs() + 2).to_string();
    let visitor = target.call(&bed, &["--count", "100", "--idle-seconds", &seconds])?;
    printed_field(&visitor, "idle")?;
    std::thread::sleep(Duration::from_millis(500));
    for process in [&target.process, &visitor] {
        let before = ticks(process)?;
        std::thread::sleep(IDLE / 2);
        let used = (ticks(process)? - before) as f64 / TICKS_PER_SECOND / (IDLE / 2).as_secs_f64();
        ensure(used <= 0.01, || {
            format!("an idle process uses {:.1} % of a processor", 100.0 * used)
        })?;
    }
    report_of(visitor)?;
    report_of(target.process).map(drop)
}

/// Processor time of all threads of a process so far, in ticks.
fn ticks(process: &Running) -> Result<u64, Stop> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()))?;
    // The second field is the name in parentheses, which may hold spaces; user and system time follow as 14 and 15.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = after_name
        .split_ascii_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let time = fields
        .get(11)
        .zip(fields.get(12))
        .map(|(user, system)| user + system);
    time.ok_or_else(|| Stop::Fail(format!("an unusual /proc/PID/stat: {stat}")))
}

fn words() -> Outcome {
    let count = if std::env::var_os("SOFTROCE_LONG_TESTS").is_some() {
        "10000000"
    } else {
        "300000"
    };
    let bed = Bed::loopback()?;
    let target = Listener::start(&bed, "words", &[])?;
    let requester = report_of(target.call(&bed, &["--count", count])?)?;
    let spinner = report_of(target.process)?;
    let torn = number(&requester, "torn")? + number(&spinner, "torn")?;
    ensure(torn == 0, || {
        format!("{torn} words were torn: {requester} {spinner}")
    })?;
    ensure(number(&spinner, "changes_seen")? > 0, || {
        format!("the target saw no word change: {spinner}")
    })
}
