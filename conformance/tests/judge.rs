//! The judge of small changes of the engine (`.ci/mutants.sh`): every case on the simulator, until one fails.
//!
//! It ends at the first case that fails, which is named, and has nothing but the simulator in it, since it is built and
//! run anew for each change. A case that the simulator suddenly lacks something for has failed as well.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use conformance::beds::{BedOptions, SimBed, seed_of};
use conformance::{Verdict, cases, run_case};

/// A changed engine may wait for ever. All cases together take a few seconds.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    // A changed engine panics much, and the verdict says so.
    std::panic::set_hook(Box::new(|_| {}));
    let all = cases::all::<SimBed>().len();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let work = || {
        while failed.lock().is_ok_and(|failed| failed.is_none()) {
            let case = cases::all::<SimBed>()
                .into_iter()
                .nth(next.fetch_add(1, Ordering::Relaxed));
            let Some(case) = case else { break };
            let (id, title) = (case.id, case.title);
            let options = BedOptions {
                seed: seed_of(1, id),
                ..BedOptions::default()
            };
            match run_case(move || SimBed::open(&options), case, None, LIMIT).verdict {
                Verdict::Pass => {}
                verdict => {
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Some(format!("{id} {title}: {verdict:?}"));
                    }
                }
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    match failed.into_inner() {
        Ok(None) => {
            println!("{all} cases passed");
            ExitCode::SUCCESS
        }
        Ok(Some(failure)) => {
            println!("noticed by {failure}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}
