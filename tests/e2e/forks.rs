//! Programs that fork, under `softroce run`: parents and children talk, and nobody is disturbed.

use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::{Bed, Case, Outcome, Stop, compiled, program, softroce};

const LIMIT: Duration = Duration::from_secs(60);

/// Each is a case of `tests/programs/forks.c`, and what it shows.
const FORKS: [(&str, &str); 12] = [
    ("before-open", "a program that forks first talks with its child"),
    (
        "after-open",
        "a program that forks with a device open talks with its child",
    ),
    ("mid-traffic", "forks in the middle of traffic disturb nobody"),
    (
        "fork-init",
        "a program that asks for fork support may fork in the middle of traffic",
    ),
    (
        "inherited",
        "what a child inherits answers errors at once and its use disturbs nobody",
    ),
    (
        "grandchild",
        "a process and its child and its grandchild talk with each other",
    ),
    (
        "exec",
        "a program that is executed in the middle of traffic inherits nothing and talks",
    ),
    (
        "spawn",
        "programs started by system and posix spawn and vfork disturb no traffic",
    ),
    (
        "daemon",
        "a program that becomes a daemon goes on with a device of its own",
    ),
    (
        "leaves-at-once",
        "a child that ends by _exit right after a message has acknowledged it",
    ),
    (
        "vfork-leaves",
        "a child of vfork that closes all files and ends owes nothing for its parent",
    ),
    (
        "mid-control",
        "forks in the middle of other threads' control verbs leave usable children",
    ),
];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = FORKS
        .iter()
        .map(|(word, sentence)| Case::new(sentence, move || forks(word)))
        .collect();
    cases.push(Case::new(
        "a forked child ends without a leak under address sanitizer",
        leaks,
    ));
    cases.push(Case::new(
        "children of python's multiprocessing talk with their parent and each other",
        python,
    ));
    cases
}

fn forks(case: &str) -> Outcome {
    let bed = Bed::loopback()?;
    let forks = compiled::own(&bed.scratch, "forks")?;
    bed.program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args([forks])
        .args([case])
        .finish(LIMIT)?
        .succeeded()
}

/// What only a thread of its parent held looks lost in a child: the library's own thread must hold nothing.
fn leaks() -> Outcome {
    let bed = Bed::loopback()?;
    let source = program::repository().join("tests/programs/forks.c");
    let forks = compiled::compile(
        &bed.scratch,
        &source,
        "gcc",
        &["-std=gnu11", "-fsanitize=address"],
    )?;
    // Not "fork-init", in which a thread allocates while others fork: the AddressSanitizer of GCC 12 does not take its
    // allocator's lock for a fork, so that a child whose parent was inside inherits it held, and waits for it for ever
    // (in `calloc` and in the leak check). Its peer then runs out of retries. Without a sanitizer the case runs above.
    for case in ["after-open", "inherited", "grandchild"] {
        let finished = bed
            .program(&bed.here, [softroce()?])
            .args(["run", "--"])
            .args([&forks])
            .args([case])
            .finish(LIMIT)?;
        finished.succeeded()?;
        ensure(!finished.stderr.contains("LeakSanitizer"), || {
            finished.to_string()
        })?;
    }
    Ok(())
}

fn python() -> Outcome {
    needs_program("python3", "python3")?;
    let bed = Bed::loopback()?;
    let has_pyverbs = bed
        .program(&bed.here, ["/usr/bin/python3", "-c", "import pyverbs"])
        .finish(LIMIT)?;
    if has_pyverbs.code() != Some(0) {
        return Err(Stop::skip("pyverbs is not installed (package python3-pyverbs)"));
    }
    let script = bed.scratch.file("processes.py");
    std::fs::copy(program::repository().join("tests/programs/processes.py"), &script)?;
    let finished = bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--", "/usr/bin/python3"])
        .args([script])
        .finish(LIMIT)?;
    finished.succeeded()?;
    ensure(finished.stdout.lines().count() == 3, || finished.to_string())
}
