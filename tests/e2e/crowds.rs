//! Very many queue pairs, and very many processes.

use e2e::case::ensure;
use e2e::{Bed, Case, Outcome};

use crate::peers::{Listener, number, report_of};

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![Case::new(
        "10,000 queue pairs connect, carry a message each and go, and cost little memory",
        crowd,
    )]
}

/// What an idle queue pair may cost, bytes: queues, tables and handles together.
const BYTES_MAX: u64 = 8 * 1024;
const TOTAL_MS_MAX: u64 = 30_000;

fn crowd() -> Outcome {
    let bed = Bed::loopback()?;
    let options = ["--qps", "10000", "--depth", "16"];
    let listener = Listener::start(&bed, "crowd", &options)?;
    let caller = listener.call(&bed, &options)?;
    for report in [report_of(caller)?, report_of(listener.process)?] {
        println!("{report}");
        let (bytes, total_ms) = (
            number(&report, "bytes_per_idle_qp")?,
            number(&report, "total_ms")?,
        );
        ensure(bytes <= BYTES_MAX && total_ms <= TOTAL_MS_MAX, || {
            format!("{bytes} bytes an idle queue pair, {total_ms} ms in all: {report}")
        })?;
        ensure(number(&report, "counters.timeouts")? == 0, || {
            format!("something was lost: {report}")
        })?;
    }
    Ok(())
}
