//! The program to run: where it is, and what keeps the dynamic linker from preloading anything into it.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::read::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadCache};

/// As a shell finds it: at its path when the name has a slash, else in `PATH`.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
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

/// Why the dynamic linker would not preload anything into the program.
pub(super) fn obstacle(path: &Path) -> Result<Option<String>> {
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
    if has_capabilities(path) {
        return Ok(Some(
            "it has file capabilities, and nothing is preloaded into such a program; run a copy without them (a plain cp leaves them out)"
                .into(),
        ));
    }
    let mut head = Vec::new();
    let opened = fs::File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    if opened.is_err() {
        // Executable, but not readable: the kernel may still run it, and we cannot tell.
        return Ok(None);
    }
    if let Some(interpreter) = interpreter(&head) {
        // An interpreter that is itself a script would be the kernel's to refuse.
        let reason = binary_obstacle(&interpreter);
        return Ok(reason.map(|reason| format!("of its interpreter {}: {reason}", interpreter.display())));
    }
    Ok(elf_obstacle(&head).or_else(|| own_library(path)))
}

/// What keeps the interpreter of a script from being preloaded into.
fn binary_obstacle(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    match interpreter(&head) {
        Some(_) => None,
        None => elf_obstacle(&head),
    }
}

/// What the first line of a script names, exactly: a carriage return at its end is part of the name for the kernel, too.
pub(super) fn interpreter_of(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let text = String::from_utf8_lossy(line);
    let name = text.trim_start_matches([' ', '\t']).split([' ', '\t']).next()?;
    Some(name.to_owned())
}

/// The program that runs a script, by its first line; behind `env` it is looked for in `PATH`.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split_whitespace();
    let path = PathBuf::from(words.next()?);
    if path.file_name() != Some(OsStr::new("env")) {
        return Some(path);
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    find(OsStr::new(name))
}

/// Whether the kernel gives a program rights of its own, which makes the dynamic linker ignore our variables. As root
/// nobody gains any.
#[allow(unsafe_code)]
fn has_capabilities(path: &Path) -> bool {
    if nix::unistd::geteuid().is_root() {
        return false;
    }
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: both names end with a zero byte, and nothing is written: a size of 0 only asks for the length.
    unsafe { nix::libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Another libibverbs that the program may open while it runs, since its own path (DT_RPATH) comes before ours. Only a
/// library without its version in its name is looked for there: the other is loaded already when the program starts.
pub(super) fn rival(path: &Path) -> Option<PathBuf> {
    const DT_RPATH: u64 = 15;
    const DT_RUNPATH: u64 = 29;
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let elf = object::File::parse(&cache).ok()?;
    let dynamic = elf.section_by_name(".dynamic")?.data().ok()?;
    let texts = elf.section_by_name(".dynstr")?.data().ok()?;
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    let value = |wanted: u64| {
        let found = dynamic
            .chunks_exact(16)
            .find(|entry| word(&entry[..8]) == wanted)?;
        let text = texts.get(usize::try_from(word(&found[8..])).ok()?..)?;
        std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()
    };
    if value(DT_RUNPATH).is_some() {
        return None;
    }
    let origin = path.parent()?.to_str()?;
    value(DT_RPATH)?
        .split(':')
        .map(|entry| {
            Path::new(&entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)).join("libibverbs.so")
        })
        .find(|library| library.exists())
}

/// A libibverbs that is linked into the program itself: nothing can take its place.
fn own_library(path: &Path) -> Option<String> {
    const KNOWN: &[u8] = b"ibv_get_device_list";
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let elf = object::File::parse(&cache).ok()?;
    let is_own = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .any(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(KNOWN));
    is_own.then(|| {
        "libibverbs is linked into it statically, and nothing can take its place; link it to the shared library".into()
    })
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
    fn the_interpreter_of_a_script_is_found() {
        assert_eq!(interpreter(b"#!/bin/sh -e\nexit\n"), Some("/bin/sh".into()));
        assert_eq!(
            interpreter(b"#! /usr/bin/env -S A=b sh\n"),
            find(OsStr::new("sh"))
        );
        assert_eq!(interpreter(b"#!"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn a_program_that_only_uses_libibverbs_has_none_of_its_own() {
        assert_eq!(own_library(Path::new("/bin/sh")), None);
        assert_eq!(own_library(Path::new("/no/such/program")), None);
        assert_eq!(
            own_library(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))),
            None
        );
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(OsStr::new("/bin/sh")), Some("/bin/sh".into()));
        assert_eq!(find(OsStr::new("no-such-program-here")), None);
        assert_eq!(find(OsStr::new("/no/such/program")), None);
    }

    #[test]
    fn this_test_itself_could_run_on_softroce() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()).unwrap(), None);
    }
}
