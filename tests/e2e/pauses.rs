//! Eight pairs that notice every pause, while one of their neighbours dies, stops, or dies with a child.

use std::time::Duration;

use e2e::case::ensure;
use e2e::peer::Path;
use e2e::{Bed, Case, Outcome, Running, Stop};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::peers::{Listener, number, printed_field, report_of};

const PAIRS: usize = 8;
/// How long the neighbours talk: the disturbance and its consequences lie well within.
const SECONDS: &str = "4";
/// The longest pause that a neighbour's death may cause, beyond what the machine itself delays sleepers.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The victim's peer gives up after four attempts of 67 to 268 ms.
const VICTIM: Path = Path {
    timeout: 14,
    retry_cnt: 3,
    rd_atomic: 4,
};

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "eight pairs on one address notice no pause while one more is killed",
            || disturbed(|victim| victim.signal(Signal::SIGKILL), &[]),
        ),
        Case::new(
            "eight pairs on one address notice no pause while one more is killed and its child lives",
            || {
                disturbed(
                    |victim| {
                        let child = printed_field(victim, "child")?;
                        victim.signal(Signal::SIGKILL)?;
                        ensure(is_alive(&child), || format!("the child {child} should live on"))
                    },
                    &["--fork"],
                )
            },
        ),
        Case::new(
            "eight pairs on one address notice no pause while one more is stopped and continued",
            stopped,
        ),
    ]
}

fn is_alive(pid: &Value) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// Starts the neighbours' pairs; the callers measure.
fn neighbours(bed: &Bed) -> Result<Vec<(Listener, Running)>, Stop> {
    let start = || {
        let listener = Listener::start(bed, "pulse", &[])?;
        let caller = listener.call(bed, &["--seconds", SECONDS])?;
        Ok((listener, caller))
    };
    (0..PAIRS).map(|_| start()).collect()
}

fn victims(bed: &Bed, options: &[&str]) -> Result<(Listener, Running), Stop> {
    let (timeout, retry_cnt) = (VICTIM.timeout.to_string(), VICTIM.retry_cnt.to_string());
    let path = ["--timeout", &timeout, "--retry-cnt", &retry_cnt];
    let listener = Listener::start(bed, "pulse", &[options, &path].concat())?;
    let caller = listener.call(bed, &[&path[..], &["--seconds", "60"]].concat())?;
    Ok((listener, caller))
}

fn disturbed(disturb: impl FnOnce(&Running) -> Outcome, options: &[&str]) -> Outcome {
    let bed = Bed::loopback()?;
    let (victim, its_peer) = victims(&bed, options)?;
    let neighbours = neighbours(&bed)?;
    std::thread::sleep(Duration::from_millis(500));
    disturb(&victim.process)?;
    let report = report_of(its_peer)?;
    gave_up_in_time(&report)?;
    // The address is still of use to those who come later.
    let late = Listener::start(&bed, "pulse", &[])?;
    report_of(late.call(&bed, &[])?)?;
    undisturbed(neighbours)
}

/// The peer of a dead process tries as often as it was told, each time for one to four ACK timeouts.
fn gave_up_in_time(report: &Value) -> Outcome {
    ensure(report["error"] == "RetryExcErr", || {
        format!("the victim's peer should end with RetryExcErr: {report}")
    })?;
    let attempts = u32::from(VICTIM.retry_cnt) + 1;
    let (earliest, latest) = (
        attempts * VICTIM.ack_timeout(),
        4 * attempts * VICTIM.ack_timeout(),
    );
    let took = Duration::from_micros(number(report, "error_after_us")?);
    let late_machine = Duration::from_micros(number(report, "oversleep_us")?);
    // The last message may have been acknowledged before the death, or the wait be for its answer alone.
    ensure(
        took >= earliest && took <= latest + late_machine + PAUSE_MAX,
        || format!("it gave up after {took:?}; {earliest:?} to {latest:?} are its retry budget: {report}"),
    )
}

/// A message forth and back needs four threads to be woken, two of each end.
const WAKE_UPS_PER_END: u32 = 2;

fn undisturbed(neighbours: Vec<(Listener, Running)>) -> Outcome {
    for (listener, caller) in neighbours {
        let report = report_of(caller)?;
        ensure(report["error"].is_null(), || {
            format!("a neighbour saw an error: {report}")
        })?;
        let answerer = report_of(listener.process)?;
        let longest = Duration::from_micros(number(&report, "longest_us")?);
        let late = number(&report, "oversleep_us")? + number(&answerer, "oversleep_us")?;
        let machine = WAKE_UPS_PER_END * Duration::from_micros(late);
        ensure(longest <= PAUSE_MAX + machine, || {
            format!(
                "a neighbour waited {longest:?}, the machine delays sleepers by up to {machine:?}: {report} {answerer}"
            )
        })?;
    }
    Ok(())
}

fn stopped() -> Outcome {
    let bed = Bed::loopback()?;
    let (victim, its_peer) = victims(&bed, &[])?;
    let neighbours = neighbours(&bed)?;
    std::thread::sleep(Duration::from_millis(500));
    victim.process.signal(Signal::SIGSTOP)?;
    std::thread::sleep(Duration::from_millis(1_000));
    let late = Listener::start(&bed, "pulse", &[])?;
    report_of(late.call(&bed, &[])?)?;
    victim.process.signal(Signal::SIGCONT)?;
    undisturbed(neighbours)?;
    drop(its_peer);
    Ok(())
}
