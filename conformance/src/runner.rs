//! Running one case: on its own thread, with a limit of time, and with panics as failures.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::outcome::{Failure, Verdict};
use crate::scene::{Completed, Scene};
use crate::testbed::Testbed;

/// A case that takes longer hangs, on a bed that is not slow.
pub const LIMIT: Duration = Duration::from_secs(120);

/// What running a case gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Real time that it took.
    pub elapsed: Duration,
    /// The packets of a failed case.
    pub capture: Option<PathBuf>,
    /// Completions that it has seen, where it failed or deviated.
    pub completions: Vec<Completed>,
}

/// Run `case` on the bed that `open` gives.
///
/// A case that blocks for `limit` counts as failed; its thread is left behind, since nothing can end it.
pub fn run_case<B: Testbed + 'static>(
    open: impl FnOnce() -> Result<B, Failure> + Send + 'static,
    case: Case<B>,
    on_failure: Option<&Path>,
    limit: Duration,
) -> Outcome {
    let start = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let on_failure = on_failure.map(Path::to_owned);
    let spawned = std::thread::Builder::new()
        .name(format!("case {}", case.id))
        .spawn(move || {
            let judged = catch_unwind(AssertUnwindSafe(|| judge(open, &case, on_failure.as_deref())));
            let judged = judged.unwrap_or_else(|panic| Judged::without_packets(panicked(&*panic)));
            // Nobody listens any more when the limit is over.
            let _ = sender.send(judged);
        });
    let Judged {
        verdict,
        capture,
        completions,
    } = match spawned {
        Err(error) => Judged::without_packets(Verdict::Fail(format!("the system gives no thread: {error}"))),
        Ok(_) => receiver.recv_timeout(limit).unwrap_or_else(|_| {
            Judged::without_packets(Verdict::Fail(format!(
                "hangs: no verdict after {limit:?}; a call blocks, or the case loops"
            )))
        }),
    };
    Outcome {
        verdict,
        elapsed: start.elapsed(),
        capture,
        completions,
    }
}

/// A verdict with what shows it.
struct Judged {
    verdict: Verdict,
    capture: Option<PathBuf>,
    completions: Vec<Completed>,
}

impl Judged {
    fn without_packets(verdict: Verdict) -> Self {
        Judged {
            verdict,
            capture: None,
            completions: Vec::new(),
        }
    }
}

fn judge<B: Testbed>(
    open: impl FnOnce() -> Result<B, Failure>,
    case: &Case<B>,
    on_failure: Option<&Path>,
) -> Judged {
    let bed = match open() {
        Ok(bed) => bed,
        Err(failure) => return Judged::without_packets(Verdict::Fail(failure.to_string())),
    };
    if let Some(lacking) = case.missing(&bed) {
        return Judged::without_packets(Verdict::Skipped(lacking.to_owned()));
    }
    let mut scene = Scene::new(bed, case.id);
    // Within, so that a case that panics leaves its packets, too.
    let result = catch_unwind(AssertUnwindSafe(|| (case.run)(&mut scene)));
    let verdict = match result.map(|result| result.and_then(|()| nothing_left(&scene))) {
        Ok(Ok(())) if scene.deviations().is_empty() => return Judged::without_packets(Verdict::Pass),
        Ok(Ok(())) => Verdict::Deviation(scene.deviations().join("; ")),
        Ok(Err(failure)) => scene.bed.verdict(case.id, case.requirements, &failure),
        Err(panic) => panicked(&*panic),
    };
    let saved = on_failure.filter(|path| matches!(scene.bed.save_capture(path), Some(Ok(()))));
    Judged {
        verdict,
        capture: saved.map(Path::to_owned),
        completions: scene.take_completions(),
    }
}

fn nothing_left<B: Testbed>(scene: &Scene<B>) -> Result<(), Failure> {
    match scene.bed.leftovers() {
        None => Ok(()),
        Some(objects) => Err(Failure::new(format!(
            "all objects of the case are destroyed, but these exist: {objects}"
        ))),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Verdict {
    Verdict::Fail(format!("panic: {}", message(panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
