//! `softroce run -- PROGRAM`: an unmodified verbs program on softroce.
//!
//! The program is started with the drop-in preloaded: it has the soname `libibverbs.so.1`, so that the dynamic linker
//! takes it for the library that the program asks for. Programs that open the library by name while they run find it
//! through a private directory of links that is put in front of `LD_LIBRARY_PATH`.
//!
//! This process becomes the program: signals, terminal and exit status are the program's own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

/// Run an unmodified verbs program on softroce.
#[derive(Args, Debug)]
pub struct Run {
    /// Addresses of the devices, separated by commas: softroce0 on the first (default 127.0.0.1).
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    device_address: Vec<IpAddr>,

    /// Write every packet of the program to this pcapng file.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// The exit status for a program that is not there, as in shells.
const NOT_FOUND: u8 = 127;
/// The exit status for a program that cannot be run.
const NOT_RUNNABLE: u8 = 126;

const DROP_IN: &str = "libsoftroce_dropin.so";
/// The names that programs open: those of the library, with and without its version.
const LINKS: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];

impl Run {
    /// Become the program; returns only when that fails.
    pub fn run(self) -> Result<ExitCode> {
        let (name, arguments) = self.program.split_first().context("no program was named")?;
        let Some(path) = find_program(name) else {
            eprintln!(
                "softroce: there is no program {} in PATH or at this place",
                name.display()
            );
            return Ok(ExitCode::from(NOT_FOUND));
        };
        if let Some(reason) = obstacle(&path)? {
            eprintln!("softroce: {} cannot run on softroce: {reason}", path.display());
            return Ok(ExitCode::from(NOT_RUNNABLE));
        }
        let drop_in = find_drop_in()?;
        let links = link_directory(&drop_in)?;

        let mut command = Command::new(&path);
        command.arg0(name).args(arguments);
        command.env("LD_PRELOAD", prepend(drop_in.as_os_str(), "LD_PRELOAD"));
        command.env("LD_LIBRARY_PATH", prepend(links.as_os_str(), "LD_LIBRARY_PATH"));
        if !self.device_address.is_empty() {
            let list: Vec<String> = self.device_address.iter().map(IpAddr::to_string).collect();
            command.env("SOFTROCE_ADDRESS", list.join(","));
        }
        if let Some(file) = &self.capture {
            command.env("SOFTROCE_CAPTURE", writable(file)?);
        }
        let error = command.exec();
        eprintln!("softroce: {} cannot be run: {error}", path.display());
        Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
            NOT_FOUND
        } else {
            NOT_RUNNABLE
        }))
    }
}

/// `value` in front of what the variable holds.
fn prepend(value: &OsStr, variable: &str) -> OsString {
    let mut list = value.to_owned();
    if let Some(before) = std::env::var_os(variable).filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

/// The absolute path of a capture file, which can be written to.
fn writable(file: &Path) -> Result<PathBuf> {
    // A named pipe is opened once only, by the program: its reader takes a second opening for the end.
    if file.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(file.canonicalize()?);
    }
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("the capture {} cannot be written", file.display()))?;
    Ok(file.canonicalize()?)
}

/// As a shell finds it: at its path when the name has a slash, else in `PATH`.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return path.exists().then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// The drop-in lies beside this program, or in the `lib` directory next to its `bin`.
fn find_drop_in() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program lies")?;
    let directory = own.parent().context("this program has no directory")?;
    let places = [directory.join(DROP_IN), directory.join("../lib").join(DROP_IN)];
    for place in &places {
        if let Ok(path) = place.canonicalize() {
            return Ok(path);
        }
    }
    bail!(
        "{DROP_IN} is not in {}: build it with `cargo build -p softroce-dropin` (with --release when this program was)",
        directory.display()
    );
}

/// Why the dynamic linker would not preload anything into the program.
fn obstacle(path: &Path) -> Result<Option<String>> {
    let meta = path
        .metadata()
        .with_context(|| format!("looking at {}", path.display()))?;
    if !meta.is_file() {
        return Ok(Some("it is no file".into()));
    }
    let mode = meta.permissions().mode();
    if mode & 0o111 == 0 {
        return Ok(Some("it is not executable".into()));
    }
    let becomes_other = mode & 0o4000 != 0 && meta.uid() != nix::unistd::getuid().as_raw()
        || mode & 0o2000 != 0 && meta.gid() != nix::unistd::getgid().as_raw();
    if becomes_other {
        return Ok(Some(
            "it is a set-user-ID or set-group-ID program, into which nothing is preloaded; run a copy without that bit"
                .into(),
        ));
    }
    let mut head = Vec::new();
    let opened = fs::File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    // Executable, but not readable: the kernel may still run it, and we cannot tell.
    Ok(opened.ok().and_then(|_| elf_obstacle(&head)))
}

/// Program headers lie near the start of a program.
const HEAD_BYTES: u64 = 16 * 1024;

/// What in the head of an ELF file keeps it from being preloaded into. Scripts and others have no obstacle here: their
/// interpreter is what counts.
fn elf_obstacle(head: &[u8]) -> Option<String> {
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) != Some(&2) {
        return Some("it is a 32-bit program, and the drop-in is 64-bit".into());
    }
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        let little_endian = head.get(5) == Some(&1);
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if little_endian {
            field.iter().rev().fold(0, fold)
        } else {
            field.iter().fold(0, fold)
        })
    };
    let (offset, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for i in 0..count {
        let at = usize::try_from(offset.checked_add(i * size)?).ok()?;
        if number(at, 4)? == u64::from(PT_INTERP) {
            return None;
        }
    }
    Some(
        "it is statically linked, and nothing is preloaded into it; link it dynamically to libibverbs".into(),
    )
}

/// A directory of ours that holds links to the drop-in under the library's names. It stays: it is the same for each run
/// of one drop-in.
fn link_directory(drop_in: &Path) -> Result<PathBuf> {
    let parent = private_directory()?;
    let directory = parent.join(format!(
        "{:016x}",
        fingerprint(drop_in.as_os_str().as_encoded_bytes())
    ));
    make_private(&directory)?;
    for name in LINKS {
        let link = directory.join(name);
        if fs::read_link(&link).is_ok_and(|target| target == drop_in) {
            continue;
        }
        // Made aside and moved: another run may be looking.
        let aside = directory.join(format!("{name}.{}", std::process::id()));
        let _ = fs::remove_file(&aside);
        symlink(drop_in, &aside)
            .and_then(|()| fs::rename(&aside, &link))
            .with_context(|| format!("making {}", link.display()))?;
    }
    Ok(directory)
}

/// In the user's runtime directory, or else in the directory for temporary files.
fn private_directory() -> Result<PathBuf> {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        let directory = runtime.join("softroce");
        if make_private(&directory).is_ok() {
            return Ok(directory);
        }
    }
    let directory = std::env::temp_dir().join(format!("softroce-{}", nix::unistd::getuid()));
    make_private(&directory)?;
    Ok(directory)
}

/// Make a directory that nobody else may write to; one that is there already must be such.
fn make_private(directory: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("making {}", directory.display())),
    }
    let meta = fs::symlink_metadata(directory)?;
    if !meta.is_dir()
        || meta.uid() != nix::unistd::getuid().as_raw()
        || meta.permissions().mode() & 0o022 != 0
    {
        bail!(
            "{} is not a directory that this user alone may write to; remove it",
            directory.display()
        );
    }
    Ok(())
}

/// FNV-1a: tells the drop-ins of several builds apart.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a 64-bit little-endian program whose only program header has this type.
    fn elf(class: u8, header_type: u32) -> Vec<u8> {
        let mut head = vec![0; 64 + 56];
        head[..4].copy_from_slice(b"\x7fELF");
        (head[4], head[5]) = (class, 1);
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        head[64..68].copy_from_slice(&header_type.to_le_bytes());
        head
    }

    #[test]
    fn statically_linked_and_32_bit_programs_are_told_apart_from_dynamic_ones() {
        assert_eq!(elf_obstacle(&elf(2, 3)), None);
        assert!(elf_obstacle(&elf(2, 1)).unwrap().contains("statically linked"));
        assert!(elf_obstacle(&elf(1, 3)).unwrap().contains("32-bit"));
        assert_eq!(elf_obstacle(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn a_damaged_head_is_no_obstacle_and_no_panic() {
        let whole = elf(2, 3);
        for length in 5..whole.len() {
            let _ = elf_obstacle(&whole[..length]);
        }
        let mut wild = whole;
        wild[32..40].fill(0xff);
        assert_eq!(elf_obstacle(&wild), None);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find_program(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find_program(OsStr::new("/bin/sh")), Some("/bin/sh".into()));
        assert_eq!(find_program(OsStr::new("no-such-program-here")), None);
        assert_eq!(find_program(OsStr::new("/no/such/program")), None);
    }

    #[test]
    fn this_test_itself_could_run_on_softroce() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()).unwrap(), None);
    }

    #[test]
    fn the_directory_of_links_is_private_and_leads_to_the_drop_in() {
        let target = std::env::current_exe().unwrap();
        let directory = link_directory(&target).unwrap();
        assert_eq!(fs::read_link(directory.join("libibverbs.so.1")).unwrap(), target);
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o077, 0);
        // Once more, with everything there.
        assert_eq!(link_directory(&target).unwrap(), directory);
        let _ = fs::remove_dir_all(directory);
    }
}
