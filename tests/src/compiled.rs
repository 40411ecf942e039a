//! Verbs programs in C and C++ that tests compile against the installed headers and library.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bed::needs_program;
use crate::case::Stop;
use crate::process::Program;
use crate::program::repository;
use crate::scratch::Scratch;

const LIMIT: Duration = Duration::from_secs(60);
const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Compiles `tests/programs/NAME.c` into `scratch`; where the program is.
pub fn own(scratch: &Scratch, name: &str) -> Result<PathBuf, Stop> {
    let source = repository().join("tests/programs").join(name).with_extension("c");
    compile(
        scratch,
        &source,
        "gcc",
        &["-std=gnu11", "-Wall", "-Wextra", "-Werror"],
    )
}

/// Compiles a source file with `compiler` and its options into `scratch`, linked to libibverbs.
pub fn compile(scratch: &Scratch, source: &Path, compiler: &str, options: &[&str]) -> Result<PathBuf, Stop> {
    needs_program(compiler, compiler)?;
    if !Path::new(HEADER).exists() {
        return Err(Stop::skip(format!(
            "{HEADER} is missing (package libibverbs-dev)"
        )));
    }
    let stem = source
        .file_stem()
        .ok_or_else(|| Stop::fail("a source has a name"))?;
    let program = scratch.path().join(stem);
    Program::new(scratch, [compiler])
        .args(options)
        .args(["-O1", "-g", "-o"])
        .args([&program, &source.to_path_buf()])
        .args(["-libverbs", "-lpthread"])
        .finish(LIMIT)?
        .succeeded()?;
    Ok(program)
}
