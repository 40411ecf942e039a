//! The program to run: where it is, and what keeps the dynamic linker from preloading anything into it.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

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
