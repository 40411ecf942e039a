//! What only privileged programs may do, as with the kernel's drivers.

use std::time::Duration;

use e2e::bed::{NOBODY, needs_root};
use e2e::case::ensure;
use e2e::{Bed, Case, Outcome, compiled, softroce};

const LIMIT: Duration = Duration::from_secs(30);
const EPERM: i32 = 1;

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("an unprivileged program may not set a controlled q key", || {
            controlled_qkey(NOBODY, EPERM)
        }),
        Case::new("a privileged program may set a controlled q key", || {
            needs_root("run a privileged program")?;
            controlled_qkey(0, 0)
        }),
    ]
}

fn controlled_qkey(user: u32, expected: i32) -> Outcome {
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "controlled_qkey")?;
    let finished = bed
        .program_as(&bed.here, user, [softroce()?])
        .args(["run", "--"])
        .args([program])
        .finish(LIMIT)?;
    ensure(finished.code() == Some(expected), || {
        format!("the status should be {expected}: {finished}")
    })
}
