//! The private directory of a user, in which runs keep what they make.
//!
//! It is the first one that will do of: the user's runtime directory, the directory for temporary files, and those that
//! every machine has. One will do if it can be written to, and if programs can be told of it: it is named in
//! `LD_LIBRARY_PATH`, which has no quotes, and sockets lie in it, whose paths are short.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The directory's path has at most so many bytes: a socket's path has 107, its name below here up to 40.
const PATH_MAX: usize = 67;
/// What a run needs at least: the files of a tree are small.
const ROOM_BYTES: usize = 64 * 1024;

/// The one that will do.
pub(super) fn directory() -> Result<PathBuf> {
    let mut first = None;
    for candidate in candidates() {
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            // What is wrong with the one that the user has chosen is most worth telling.
            Err(error) => first = first.or(Some(error)),
        }
    }
    let found = first.unwrap_or_else(|| anyhow::anyhow!("there is no directory for temporary files"));
    Err(found.context("no place for the files of a run; let TMPDIR name a directory that can be written to"))
}

/// Those that are there, for who looks for runs.
pub(super) fn existing() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for candidate in candidates() {
        if candidate.is_dir() && !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

fn candidates() -> Vec<PathBuf> {
    let own = format!("softroce-{}", nix::unistd::getuid());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|runtime| PathBuf::from(runtime).join("softroce"));
    let temporary = [
        std::env::temp_dir(),
        "/tmp".into(),
        "/var/tmp".into(),
        "/dev/shm".into(),
    ];
    runtime
        .into_iter()
        .chain(temporary.map(|directory| directory.join(&own)))
        // Programs may change their working directory.
        .filter_map(|path| std::path::absolute(path).ok())
        .collect()
}

fn check(directory: &Path) -> Result<()> {
    if let Some(separator) = separator_in(directory) {
        bail!(
            "{} has {separator:?} in its path, which LD_LIBRARY_PATH cannot say",
            directory.display()
        );
    }
    if directory.as_os_str().len() > PATH_MAX {
        bail!(
            "the path {} is longer than {PATH_MAX} bytes, too long for sockets below it",
            directory.display()
        );
    }
    make(directory)?;
    let probe = directory.join(format!("room-{}", std::process::id()));
    let written = fs::write(&probe, vec![0; ROOM_BYTES]);
    let _ = fs::remove_file(&probe);
    written.with_context(|| format!("writing to {}", directory.display()))
}

/// What the dynamic linker takes for the end of an entry, or for the name of something else, in any of its lists.
pub(super) fn separator_in(path: &Path) -> Option<char> {
    let separators = [':', ';', ' ', '\t', '\n', '$'];
    let text = path.to_string_lossy();
    text.chars().find(|letter| separators.contains(letter))
}

/// Make a directory that nobody else may write to; one that is there already must be such.
pub(super) fn make(directory: &Path) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_dynamic_linker_would_read_otherwise_is_told() {
        for (path, found) in [
            ("/tmp/a", None),
            ("/tmp/a b", Some(' ')),
            ("/tmp/a:b", Some(':')),
            ("/tmp/$LIB", Some('$')),
        ] {
            assert_eq!(separator_in(Path::new(path)), found, "{path}");
        }
    }

    #[test]
    fn a_directory_will_do_only_if_it_is_private_and_its_path_can_be_said() {
        let base = std::env::temp_dir().join(format!("private-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let good = base.join("good");
        check(&good).unwrap();
        assert_eq!(good.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&good, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(check(&good).unwrap_err().to_string().contains("this user alone"));
        assert!(check(&base.join("a b")).unwrap_err().to_string().contains("' '"));
        assert!(
            check(&base.join("x".repeat(PATH_MAX)))
                .unwrap_err()
                .to_string()
                .contains("too long")
        );
        assert!(check(Path::new("/proc/softroce")).is_err());
        fs::remove_dir_all(base).unwrap();
    }
}
