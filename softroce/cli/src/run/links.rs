//! The drop-in, and the private directory of links through which programs find it under the library's names.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const DROP_IN: &str = "libsoftroce_dropin.so";
/// Shows the devices in `/sys` and `/dev`.
const PATHS: &str = "libsoftroce_paths.so";
/// The names that programs open: those of the library, with and without its version.
const LINKS: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];

/// The shared object that makes unmodified programs use softroce.
pub fn find_drop_in() -> Result<PathBuf> {
    find_object(DROP_IN)
}

/// The shared object that shows the devices in `/sys` and `/dev`.
pub(super) fn find_paths() -> Result<PathBuf> {
    find_object(PATHS)
}

/// Where a shared object of ours lies: beside this program as cargo builds it, or where it is installed, `lib/softroce`
/// next to this program's `bin`. A link to this program is followed first.
pub(super) fn find_object(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program lies")?;
    let directory = own.parent().context("this program has no directory")?;
    let places = [directory.join(name), directory.join("../lib/softroce").join(name)];
    for place in &places {
        if let Ok(path) = place.canonicalize() {
            return Ok(path);
        }
    }
    bail!(
        "{name} is neither in {} nor in {}: `contrib/install.sh` installs both, which `cargo install` does not; \
         in a checkout `cargo build` makes both (with --release when this program was built so)",
        directory.display(),
        directory.join("../lib/softroce").display()
    );
}

/// A directory of ours that holds links to the drop-in under the library's names. It stays: it is the same for each run
/// of one drop-in.
pub(super) fn link_directory(drop_in: &Path) -> Result<PathBuf> {
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
pub(super) fn private_directory() -> Result<PathBuf> {
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
pub(super) fn make_private(directory: &Path) -> Result<()> {
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
