//! Signals that are sent to a C program with a device, and its leaks over a fork: `data/signals.c`, compiled against the
//! installed headers.

#[path = "support/common.rs"]
mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FAULTS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The compiled program, for one test; `None` without a compiler or the headers, which is said.
fn compile(name: &str, options: &[&str]) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        println!("skipped: libibverbs-dev is not installed");
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/signals.c");
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("signals-{name}-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-g", "-o"])
        .arg(&program)
        .args(options)
        .args([source, "-libverbs"])
        .output();
    let Ok(output) = compiled else {
        println!("skipped: there is no C compiler");
        return None;
    };
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "it does not compile:\n{complaints}");
    Some(program)
}

fn run(program: &Path, arguments: &[&str], number: u8) -> Output {
    Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", common::drop_in())
        .env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=1")
        .env("SOFTROCE_ADDRESS", common::address(number).to_string())
        .output()
        .expect("running the program")
}

/// How a program with this disposition ended, for each of the signals of faults.
fn sent(disposition: &str, number: u8) -> Vec<(i32, Output)> {
    let Some(program) = compile(disposition, &[]) else {
        return Vec::new();
    };
    let ends = FAULTS.map(|signal| (signal, run(&program, &[disposition, &signal.to_string()], number)));
    std::fs::remove_file(program).expect("the compiled program is ours");
    ends.into()
}

#[test]
fn a_sent_signal_of_a_fault_does_not_end_a_program_that_ignores_it() {
    for (signal, output) in sent("ignored", 121) {
        assert!(output.status.success(), "signal {signal}: {output:?}");
    }
}

#[test]
fn a_sent_signal_of_a_fault_ends_a_program_by_default() {
    for (signal, output) in sent("default", 122) {
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
    }
}

#[test]
fn a_sent_signal_of_a_fault_reaches_the_handler_of_the_program() {
    for (signal, output) in sent("handled", 123) {
        assert!(output.status.success(), "signal {signal}: {output:?}");
    }
}

#[test]
fn devices_listed_before_and_after_a_fork_leak_neither_in_parent_nor_child() {
    let Some(program) = compile("forked", &["-fsanitize=address"]) else {
        return;
    };
    let output = run(&program, &["forked"], 124);
    std::fs::remove_file(program).expect("the compiled program is ours");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
