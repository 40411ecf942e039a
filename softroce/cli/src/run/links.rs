//! The drop-in, and the private directory of links through which programs find it under the library's names.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::private;

const DROP_IN: &str = "libsoftroce_dropin.so";
/// Shows the devices in `/sys` and `/dev`.
const PATHS: &str = "libsoftroce_paths.so";
/// The names that programs open: those of the libraries, with and without their version.
const LINKS: [&str; 4] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
];

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
    let directory = private::directory()?.join(format!(
        "{:016x}",
        fingerprint(drop_in.as_os_str().as_encoded_bytes())
    ));
    private::make(&directory)?;
    for name in LINKS {
        link(drop_in, &directory.join(name))?;
    }
    Ok(directory)
}

/// The path of an object as the list `LD_PRELOAD` can say it: its own, or else that of a link in `links`.
pub(super) fn sayable(object: PathBuf, links: &Path) -> Result<PathBuf> {
    if private::separator_in(&object).is_none() {
        return Ok(object);
    }
    let name = object.file_name().context("an object without a name")?;
    let place = links.join(name);
    link(&object, &place)?;
    Ok(place)
}

/// Make `place` a link to `target`.
fn link(target: &Path, place: &Path) -> Result<()> {
    if fs::read_link(place).is_ok_and(|found| found == target) {
        return Ok(());
    }
    // Made aside and moved: another run may be looking.
    let aside = place.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&aside);
    symlink(target, &aside)
        .and_then(|()| fs::rename(&aside, place))
        .with_context(|| format!("making {}", place.display()))
}

/// FNV-1a: tells the drop-ins of several builds apart.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_object_whose_path_no_list_can_say_is_preloaded_through_a_link() {
        let plain = PathBuf::from("/opt/softroce/libsoftroce_dropin.so");
        assert_eq!(sayable(plain.clone(), Path::new("/nowhere")).unwrap(), plain);
        let links = link_directory(Path::new("/opt/a b/libsoftroce_dropin.so")).unwrap();
        for odd in ["/opt/a b/libsoftroce_paths.so", "/opt/a:b/libsoftroce_paths.so"] {
            let said = sayable(odd.into(), &links).unwrap();
            assert_eq!(said, links.join("libsoftroce_paths.so"));
            assert_eq!(fs::read_link(said).unwrap(), Path::new(odd));
        }
        let _ = fs::remove_dir_all(links);
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
