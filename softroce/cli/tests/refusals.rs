//! Command lines that ask for what cannot be, and outputs that cannot be written: each is told, with its name.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Wrong use, or no verdict.
const WRONG_USE: i32 = 2;
const FAILURE: i32 = 1;

fn softroce(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("running softroce")
}

/// It must end with this status, and name each of `named` on standard error.
fn refuses(words: &str, status: i32, named: &[&str]) {
    let output = softroce(words);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{words}: {complaint}");
    for name in named {
        assert!(complaint.contains(name), "{words}: no {name:?} in: {complaint}");
    }
}

/// They were taken and ignored, and something else ran than was asked for.
#[test]
fn options_that_would_be_ignored_are_refused() {
    for (words, named) in [
        ("--bed sim --device rxe0", ["--device", "sim"]),
        ("--device rxe0", ["--device", "sim, udp"]),
        ("--bed udp --gid-index 3", ["--gid-index", "udp"]),
        ("--bed sim --interface extended", ["--interface", "sim"]),
        ("--bed sim --interface lists", ["--interface", "sim"]),
        ("--bed sim --library /x.so", ["--library", "sim"]),
        ("--bed sim --patience 3", ["--patience", "sim"]),
        (
            "--bed sim --device a --device b --wire c,d",
            ["--device", "native"],
        ),
        ("--bed dropin --device softroce0", ["--device", "dropin"]),
        ("--bed dropin --library /x.so", ["--library", "dropin"]),
        ("--bed dropin --seed 3", ["--seed", "sim, udp"]),
        ("--bed native --capture x.pcapng", ["--capture", "native"]),
        ("--bed native --wire a,b", ["--wire", "--device"]),
        (
            "--bed native --device a --device b --device c",
            ["3 devices", "two"],
        ),
        ("--bed sim --provider libibverbs", ["--provider", "--bed"]),
        ("--list --capture x.pcapng", ["--list", "--capture"]),
        ("--list --format junit", ["junit", "pretty"]),
    ] {
        refuses(&format!("conformance {words}"), WRONG_USE, &named);
    }
    for (words, named) in [
        ("drill x.drill --from 127.0.0.9", ["--from", "--target"]),
        ("drill x.drill --target h --seed 3", ["--seed", "--target"]),
        (
            "drill x.drill --device-address 127.0.0.9",
            ["--device-address", "--serve"],
        ),
        ("drill x.drill --serve 127.0.0.1", ["FILE", "--serve"]),
        ("drill --serve 127.0.0.1 --verbose", ["--verbose", "--serve"]),
        ("drill --serve 127.0.0.1 --json", ["--json", "--serve"]),
        ("drill x.drill --gid-index 3", ["--libibverbs", "--serve"]),
        ("sim --runs 2 --capture x.pcapng", ["--capture", "--plan"]),
        ("sim --seed 1 --runs 2 --capture x", ["--capture", "--seed"]),
        ("sim --plan x --findings y", ["--plan", "--findings"]),
    ] {
        refuses(words, WRONG_USE, &named);
    }
}

#[test]
fn zeros_that_make_no_sense_are_refused() {
    for (words, option) in [
        ("conformance --bed dropin --patience 0", "--patience"),
        ("drill --serve 127.0.0.1 --scripts-served 0", "--scripts-served"),
        ("ladder x --from 0", "--from"),
        ("ladder x --to 0", "--to"),
        ("perf send lat --iters 0", "--iters"),
        ("perf send lat --port 0", "--port"),
        ("perf compare --rounds 0", "--rounds"),
        ("pingpong --iters 0", "--iters"),
        ("run --devices 0 -- true", "--devices"),
        ("run --timeout 0 -- true", "--timeout"),
        ("sim --runs 0", "--runs"),
        ("sim --minutes 0", "--minutes"),
        ("sim --minutes 1e17", "--minutes"),
    ] {
        refuses(words, WRONG_USE, &[option]);
    }
    for (words, option) in [
        ("perf send bw --qps 0", "--qps"),
        ("perf send bw --size 0", "--size"),
        ("ladder x --from 5 --to 4", "--from"),
    ] {
        refuses(words, FAILURE, &[option]);
    }
}

/// "No space left on device" said not where.
#[test]
fn an_output_that_cannot_be_written_is_named() {
    if !Path::new("/dev/full").exists() {
        println!("skipped: there is no /dev/full");
        return;
    }
    let folder = std::env::temp_dir().join(format!("softroce-refusals-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let capture = folder.join("some.pcapng");
    let shown = capture.display();
    let made = softroce(&format!(
        "conformance --bed sim --filter D1 --capture {shown} -o /dev/null"
    ));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let words = [
        (
            "conformance --bed sim --filter D1 -o /dev/full".to_owned(),
            WRONG_USE,
        ),
        ("conformance --list -o /dev/full".to_owned(), WRONG_USE),
        (
            "conformance --bed sim --filter D1 --capture /dev/full".to_owned(),
            WRONG_USE,
        ),
        (format!("ladder {shown} -o /dev/full"), FAILURE),
        ("sim --seed 1 --capture /dev/full".to_owned(), WRONG_USE),
    ];
    for (words, status) in words {
        refuses(&words, status, &["/dev/full", "No space left"]);
    }
    for (words, status) in [
        ("devices --device-address 127.83.12.8".to_owned(), FAILURE),
        (format!("decode {shown}"), FAILURE),
        (format!("analyze {shown}"), WRONG_USE),
        (format!("analyze --json {shown}"), WRONG_USE),
        (format!("ladder {shown}"), FAILURE),
        ("conformance --list".to_owned(), WRONG_USE),
        ("sim --seed 1".to_owned(), WRONG_USE),
        ("drill --json no-such.drill".to_owned(), WRONG_USE),
    ] {
        let full = std::fs::File::create("/dev/full").expect("it can be opened");
        let output = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(words.split_whitespace())
            .stdout(full)
            .output()
            .expect("running softroce");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words}: {complaint}");
        assert!(
            complaint.contains("standard output cannot be written"),
            "{words}: {complaint}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// A script that reads JSON found nothing at all.
#[test]
fn json_is_there_also_when_no_program_runs() {
    for command in ["faults show", "faults clear", "port down"] {
        let nobody = format!("{command} --json --run {}", u32::MAX);
        let output = softroce(&nobody);
        assert_eq!(output.status.code(), Some(FAILURE), "{nobody}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&nobody);
        assert_eq!(value, serde_json::json!({ "told": [], "silent": [] }));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains("no program of this user"), "{complaint}");
    }
}
