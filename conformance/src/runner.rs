//! Running one case: on its own thread, with a limit of time, and with panics as failures.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::outcome::{Failure, Verdict};
use crate::scene::Scene;
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
            let result = catch_unwind(AssertUnwindSafe(|| judge(open, &case, on_failure.as_deref())));
            let result =
                result.unwrap_or_else(|panic| (Verdict::Fail(format!("panic: {}", message(&*panic))), None));
            // Nobody listens any more when the limit is over.
            let _ = sender.send(result);
        });
    let (verdict, capture) = match spawned {
        Err(error) => (
            Verdict::Fail(format!("the system gives no thread: {error}")),
            None,
        ),
        Ok(_) => receiver.recv_timeout(limit).unwrap_or_else(|_| {
            (
                Verdict::Fail(format!(
                    "hangs: no verdict after {limit:?}; a call blocks, or the case loops"
                )),
                None,
            )
        }),
    };
    Outcome {
        verdict,
        elapsed: start.elapsed(),
        capture,
    }
}

fn judge<B: Testbed>(
    open: impl FnOnce() -> Result<B, Failure>,
    case: &Case<B>,
    on_failure: Option<&Path>,
) -> (Verdict, Option<PathBuf>) {
    let bed = match open() {
        Ok(bed) => bed,
        Err(failure) => return (Verdict::Fail(failure.to_string()), None),
    };
    if let Some(lacking) = case.missing(&bed) {
        return (Verdict::Skipped(lacking.to_owned()), None);
    }
    let mut scene = Scene::new(bed, case.id);
    let result = (case.run)(&mut scene).and_then(|()| match scene.bed.leftovers() {
        None => Ok(()),
        Some(objects) => Err(Failure::new(format!(
            "all objects of the case are destroyed, but these exist: {objects}"
        ))),
    });
    match result {
        Ok(()) if scene.deviations().is_empty() => (Verdict::Pass, None),
        Ok(()) => (Verdict::Deviation(scene.deviations().join("; ")), None),
        Err(failure) => {
            let saved = on_failure.filter(|path| matches!(scene.bed.save_capture(path), Some(Ok(()))));
            let verdict = scene.bed.verdict(case.id, case.requirements, &failure);
            (verdict, saved.map(Path::to_owned))
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
