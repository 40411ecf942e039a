//! The programs under test: built once, or taken from `SOFTROCE_BIN`, and readable by the unprivileged user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::case::Stop;
use crate::scratch::Scratch;

/// The shared objects that `softroce run` preloads lie beside the command.
const PRELOADED: [&str; 2] = ["libsoftroce_dropin.so", "libsoftroce_paths.so"];

/// Where copies for the unprivileged user are, if any were needed, and what else is kept for several cases.
static STAGED: Mutex<Vec<Scratch>> = Mutex::new(Vec::new());

/// The path of the `softroce` command.
///
/// `SOFTROCE_BIN` names one that is built already; else cargo builds it in the profile of these tests.
pub fn softroce() -> Result<&'static Path, Stop> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let built = match std::env::var_os("SOFTROCE_BIN") {
            Some(path) => {
                fs::canonicalize(&path).map_err(|error| format!("SOFTROCE_BIN={path:?}: {error}"))?
            }
            None => build(
                &[
                    "-p",
                    "softroce-cli",
                    "-p",
                    "softroce-dropin",
                    "-p",
                    "softroce-paths",
                ],
                "softroce",
            )?,
        };
        readable_by_all(&built)
    });
    found.as_deref().map_err(Stop::fail)
}

/// Keeps a directory until [`remove_copies`]: what several cases use is made once.
pub fn keep(scratch: Scratch) -> Result<(), Stop> {
    STAGED.lock().map_err(Stop::fail)?.push(scratch);
    Ok(())
}

/// Removes the copies and what is kept; for the end of `main`, where no test runs any more.
pub fn remove_copies() {
    if let Ok(mut staged) = STAGED.lock() {
        staged.clear();
    }
}

/// Builds packages with cargo, and returns the path of the executable `name`.
fn build(packages: &[&str], name: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let profile: &[&str] = if cfg!(debug_assertions) {
        &[]
    } else {
        &["--release"]
    };
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--message-format=json"])
        .args(packages)
        .args(profile)
        .current_dir(repository())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo build failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .find(|path| path.file_name().is_some_and(|file| file == name))
        .ok_or_else(|| format!("cargo built no executable named {name}"))
}

/// The top of the repository.
pub fn repository() -> &'static Path {
    // This package is a folder of the repository's top level.
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("/"))
}

/// `program` itself where everybody can read it, else a copy (a home directory is often closed to others).
pub fn readable_by_all(program: &Path) -> Result<PathBuf, String> {
    if !crate::bed::is_root() || is_open_to_all(program) {
        return Ok(program.to_owned());
    }
    let scratch = Scratch::new().map_err(|error| error.to_string())?;
    let name = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let copy = scratch.file(&name);
    copy_open(program, &copy)?;
    for name in PRELOADED {
        let object = program.with_file_name(name);
        if object.exists() {
            copy_open(&object, &scratch.file(name))?;
        }
    }
    STAGED.lock().map_err(|error| error.to_string())?.push(scratch);
    Ok(copy)
}

fn copy_open(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to)
        .and_then(|_| fs::set_permissions(to, Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn is_open_to_all(program: &Path) -> bool {
    let allows = |path: &Path, bits: u32| {
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & bits == bits)
    };
    allows(program, 0o005)
        && program
            .ancestors()
            .skip(1)
            .all(|directory| allows(directory, 0o001))
}
