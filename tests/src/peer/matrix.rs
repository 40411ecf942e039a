//! The interop matrix: every operation of RC, UC and UD between two ends of any two providers, sizes around the path
//! MTU, both as requester and as responder; then what networks and peers do wrong: losses, receivers that are not ready,
//! requests that must be refused.
//!
//! Both ends walk through the same plan (`plan`). Each case has fresh queue pairs and ends with a verdict of both ends,
//! so that one that fails spoils no other. Data are compared byte by byte, the bytes around them too; counters must show
//! nothing but the trouble that the case made itself.

mod area;
mod atomics;
mod bench;
mod datagrams;
mod link;
mod plan;
mod refusals;
mod talk;
mod tally;
mod transfers;
mod troubles;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use verbs_api::{Mtu, Provider};

use crate::peer::{Line, Role};

pub use bench::{Instruments, Kind};
pub use tally::{Counters, hardware_counters};

use bench::Bench;
use plan::Case;
use talk::Verdict;

/// What the two ends agree on before they begin; the listener's word counts.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The path MTU.
    pub mtu: Mtu,
    /// ACK timeout exponent; an emulated machine needs 20 (4.3 s).
    pub timeout: u8,
    /// Only cases with this in their name.
    pub only: Option<String>,
}

/// Walks through the plan. Prints a line for each case; returns how many ended how.
///
/// # Errors
/// At the end, if a case failed; at once, if the ends cannot talk.
pub fn converse<P: Provider>(
    provider: &P,
    device: Option<&str>,
    line: &mut Line,
    role: Role,
    setting: &Setting,
    instruments: &Instruments<'_>,
) -> Result<Value> {
    let mut bench = Bench::open(provider, device, line, role, setting, instruments)?;
    let only = bench.only.clone();
    let wanted = |case: &Case| {
        only.as_ref()
            .is_none_or(|part| case.to_string().contains(part.as_str()))
    };
    let mut verdicts = Vec::new();
    for case in plan::all().into_iter().filter(wanted) {
        let outcome = plan::run(case, &mut bench);
        let verdict = bench.talk.settle(outcome)?;
        println!("{case:<58} {verdict}");
        verdicts.push((case, verdict));
    }
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|(_, verdict)| is(verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let summary = json!({
        "cases": verdicts.len(),
        "passed": count(|verdict| matches!(verdict, Verdict::Passed)),
        "deviations": count(|verdict| matches!(verdict, Verdict::Deviation(_))),
        "unsupported": count(|verdict| matches!(verdict, Verdict::Unsupported(_))),
        "skipped": count(|verdict| matches!(verdict, Verdict::Skipped(_))),
    });
    ensure!(!verdicts.is_empty(), "no case has that in its name");
    ensure!(failed == 0, "{failed} cases failed; {summary}");
    Ok(summary)
}
