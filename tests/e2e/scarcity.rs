//! Programs and runs that lack something: memory, descriptors, threads, a place for files, somebody who reads.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use e2e::case::ensure;
use e2e::{Bed, Case, Outcome, Stop, compiled, softroce};

const LIMIT: Duration = Duration::from_secs(60);

/// Each is a case of `tests/programs/limits.c`, and what it shows.
const LACKS: [(&str, &str); 4] = [
    (
        "memory",
        "verbs for which there is no memory are refused and the program goes on",
    ),
    (
        "descriptors",
        "verbs for which there is no descriptor are refused and the program goes on",
    ),
    (
        "threads",
        "a device for which there is no thread is refused with the number of the error",
    ),
    (
        "closed",
        "a program that closes all descriptors pays no processor time for it",
    ),
];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = LACKS
        .iter()
        .map(|(word, sentence)| Case::new(sentence, move || lacks(word)))
        .collect();
    cases.extend([
        Case::new(
            "errors arrive by number where their words cannot be written",
            unheard_words,
        ),
        Case::new(
            "a run from a folder whose name has a blank or a colon preloads its objects",
            odd_folder,
        ),
        Case::new(
            "a run whose folder for temporary files will not do takes another one",
            no_temporary_files,
        ),
        Case::new("a script whose interpreter is missing is told so", no_interpreter),
    ]);
    cases
}

fn lacks(case: &str) -> Outcome {
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "limits")?;
    bed.program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args([program])
        .args([case])
        .finish(LIMIT)?
        .succeeded()
}

/// A full disk under standard error once ended the program by a panic.
fn unheard_words() -> Outcome {
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "limits")?;
    bed.program(&bed.here, [softroce()?])
        .args(["run", "--", "sh", "-c", "exec 2>/dev/full; exec \"$0\" words"])
        .args([program])
        .finish(LIMIT)?
        .succeeded()?;
    let silent = format!(
        "exec 2>/dev/full; exec {} run -- no-such-program",
        softroce()?.display()
    );
    let finished = bed
        .program(&bed.here, ["sh", "-c"])
        .args([silent])
        .finish(LIMIT)?;
    ensure(finished.code() == Some(127), || finished.to_string())
}

/// Neither `LD_PRELOAD` nor `LD_LIBRARY_PATH` can say such names.
fn odd_folder() -> Outcome {
    for name in ["with blank", "with:colon"] {
        let bed = Bed::loopback()?;
        let folder = bed.scratch.file(name);
        let command = copy_of_softroce(&folder)?;
        for temporary in [bed.scratch.path().to_owned(), folder] {
            let finished = bed
                .program(&bed.here, [&command])
                .args([
                    "run",
                    "--",
                    "sh",
                    "-c",
                    "ls /sys/class/infiniband && grep -c dropin /proc/self/maps",
                ])
                .variable("TMPDIR", temporary)
                .finish(LIMIT)?;
            finished.succeeded()?;
            ensure(
                finished.stderr.is_empty() && finished.stdout.starts_with("softroce0\n"),
                || finished.to_string(),
            )?;
        }
    }
    Ok(())
}

/// The command and its objects in a folder of their own.
fn copy_of_softroce(folder: &std::path::Path) -> Result<PathBuf, Stop> {
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
    let command = softroce()?;
    let built = command
        .parent()
        .ok_or_else(|| Stop::fail("a command lies in a folder"))?;
    for name in ["softroce", "libsoftroce_dropin.so", "libsoftroce_paths.so"] {
        fs::copy(built.join(name), folder.join(name))?;
    }
    Ok(folder.join("softroce"))
}

fn no_temporary_files() -> Outcome {
    let bed = Bed::loopback()?;
    let long = bed.scratch.file(&"long".repeat(20));
    fs::create_dir(&long)?;
    fs::set_permissions(&long, fs::Permissions::from_mode(0o777))?;
    for folder in [PathBuf::from("/no/such/folder"), PathBuf::from("/proc"), long] {
        let finished = bed
            .program(&bed.here, [softroce()?])
            .args([
                "run",
                "--timeout",
                "0.5",
                "--",
                "sh",
                "-c",
                "ibv_devices >&2; sleep 60",
            ])
            .variable("TMPDIR", folder)
            .variable("XDG_RUNTIME_DIR", "")
            .finish(LIMIT)?;
        ensure(
            finished.code() == Some(124) && finished.stderr.contains("softroce0"),
            || finished.to_string(),
        )?;
    }
    Ok(())
}

fn no_interpreter() -> Outcome {
    let bed = Bed::loopback()?;
    for (line, told) in [
        ("#!/no/such/shell -e", "\"/no/such/shell\""),
        ("#!/bin/sh\r", "\"/bin/sh\\r\""),
    ] {
        let script = bed.scratch.file("script");
        fs::write(&script, format!("{line}\ntrue\n"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let finished = bed
            .program(&bed.here, [softroce()?])
            .args(["run", "--"])
            .args([script])
            .finish(LIMIT)?;
        ensure(
            finished.code() == Some(127) && finished.stderr.contains(told),
            || finished.to_string(),
        )?;
    }
    Ok(())
}
