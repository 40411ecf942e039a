//! A C program that walks every verb with right and wrong arguments, compiled against Debian's headers: it ends well,
//! and neither sanitizers nor valgrind find anything, without a suppression.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::program::repository;
use e2e::{Bed, Case, Finished, Outcome, Program, Stop, softroce};

const LIMIT: Duration = Duration::from_secs(120);
const HEADER: &str = "/usr/include/infiniband/verbs.h";
const EXPORTS: &str = "softroce/dropin/tests/data/libibverbs.so.1.exports.txt";
const SOURCES: &str = "tests/walk";

/// Memory that a program unmaps while it is registered: a mistake of the program that valgrind rightly reports.
const REPORTED_BY_VALGRIND: &str = "unmapped-memory";

/// Inline functions of the header that the walk does not name, with the reason.
const NOT_NAMED: &[(&str, &str)] = &[
    ("__ibv_get_device_list", "ibv_get_device_list leads there"),
    ("___ibv_query_port", "ibv_query_port leads there"),
    ("__ibv_reg_mr", "ibv_reg_mr leads there"),
    ("__ibv_reg_mr_iova", "ibv_reg_mr_iova leads there"),
];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("every verb takes right and wrong arguments", || walk(&[], &[])),
        Case::new(
            "every verb takes right and wrong arguments under address sanitizer",
            || walk(&["-fsanitize=address"], &[]),
        ),
        Case::new(
            "every verb takes right and wrong arguments under thread sanitizer",
            || walk(&["-fsanitize=thread"], &[]),
        ),
        Case::new(
            "every verb takes right and wrong arguments under valgrind",
            || {
                needs_program("valgrind", "valgrind")?;
                let bed = Bed::loopback()?;
                let walked = valgrind(&bed, &["--without", REPORTED_BY_VALGRIND])?;
                ensure(walked.stderr.contains("ERROR SUMMARY: 0 errors"), || {
                    format!("valgrind found something: {walked}")
                })?;
                walked.succeeded()
            },
        ),
        Case::new(
            "unmapped memory ends the request and not the program under valgrind",
            || {
                needs_program("valgrind", "valgrind")?;
                let walked = valgrind(&Bed::loopback()?, &[REPORTED_BY_VALGRIND])?;
                ensure(walked.stdout.contains("1 stretches walked"), || {
                    format!("the program should reach its end: {walked}")
                })
            },
        ),
        Case::new(
            "every exported symbol and inline function is walked",
            nothing_left_out,
        ),
    ]
}

/// The program, compiled with these options.
fn compile(bed: &Bed, options: &[&str]) -> Result<PathBuf, Stop> {
    needs_program("gcc", "gcc")?;
    if !Path::new(HEADER).exists() {
        return Err(Stop::skip(
            "there is no infiniband/verbs.h (package libibverbs-dev)",
        ));
    }
    let program = bed.scratch.file("walk");
    let mut sources: Vec<OsString> = Vec::new();
    for file in fs::read_dir(repository().join(SOURCES))? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path.into());
        }
    }
    let strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"];
    Program::new(&bed.scratch, ["gcc"])
        .args(strict)
        .args(options)
        .args(sources)
        .args(["-libverbs", "-lpthread", "-ldl", "-o"])
        .args([&program])
        .finish(LIMIT)?
        .succeeded()?;
    Ok(program)
}

/// The program under `softroce run`, behind `before`.
fn walker(bed: &Bed, before: &[&str], program: &Path, arguments: &[&str]) -> Result<Finished, Stop> {
    let exports = bed.scratch.file("exports.txt");
    fs::copy(repository().join(EXPORTS), &exports)?;
    bed.program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args(before)
        .args([program])
        .args(arguments)
        .variable("WALK_EXPORTS", exports)
        .finish(LIMIT)
}

fn walk(options: &[&str], arguments: &[&str]) -> Outcome {
    let bed = Bed::loopback()?;
    let program = compile(&bed, options)?;
    let walked = walker(&bed, &[], &program, arguments)?;
    walked.succeeded()?;
    // What sanitizers find is told there, whatever the status.
    ensure(walked.stderr.is_empty(), || {
        format!("nothing should be reported: {walked}")
    })
}

fn valgrind(bed: &Bed, arguments: &[&str]) -> Result<Finished, Stop> {
    let before = ["valgrind", "--leak-check=full", "--error-exitcode=9"];
    walker(bed, &before, &compile(bed, &[])?, arguments)
}

/// Names that are called: followed by an opening parenthesis, perhaps after a closing one.
fn called_in(text: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut called = BTreeSet::new();
    for (at, _) in text.match_indices('(') {
        let before = text[..at].strip_suffix(')').unwrap_or(&text[..at]);
        let start = before.rfind(|c| !is_word(c)).map_or(0, |end| end + 1);
        called.insert(&before[start..]);
    }
    called
}

/// The inline functions of a header: the last word before the first parenthesis behind `static inline`.
fn inline_functions(header: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for declaration in header.split("static inline").skip(1) {
        let head = declaration.split('(').next().unwrap_or_default();
        let name = head.split(|c: char| c.is_whitespace() || c == '*').next_back();
        found.extend(name.filter(|name| !name.is_empty()));
    }
    found
}

/// What is called through a list while the program runs: old and private names.
fn is_called_by_list(visibility: &str, version: &str) -> bool {
    visibility == "hidden" || version.starts_with("IBVERBS_PRIVATE")
}

fn nothing_left_out() -> Outcome {
    let header = fs::read_to_string(HEADER)
        .map_err(|_| Stop::skip("there is no infiniband/verbs.h (package libibverbs-dev)"))?;
    let exports = fs::read_to_string(repository().join(EXPORTS))?;
    let mut wanted = inline_functions(&header);
    ensure(wanted.len() > 80, || {
        format!("the header has more inline functions than {wanted:?}")
    })?;
    for line in exports.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, version, visibility, ..] = fields[..] else {
            return Err(Stop::Fail(format!("a line that is none: {line}")));
        };
        // The nodes themselves are listed, too.
        if name != version && !is_called_by_list(visibility, version) {
            wanted.insert(name);
        }
    }
    let mut text = String::new();
    for file in fs::read_dir(repository().join(SOURCES))? {
        text += &fs::read_to_string(file?.path())?;
    }
    let called = called_in(&text);
    let reasons: BTreeSet<&str> = NOT_NAMED.iter().map(|(name, _)| *name).collect();
    let left_out: Vec<&str> = wanted
        .iter()
        .filter(|name| !called.contains(*name) && !reasons.contains(*name))
        .copied()
        .collect();
    ensure(left_out.is_empty(), || format!("not walked: {left_out:?}"))?;
    let needless: Vec<&&str> = reasons.iter().filter(|name| called.contains(*name)).collect();
    ensure(needless.is_empty(), || format!("named after all: {needless:?}"))
}
