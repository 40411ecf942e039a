//! The tree of files that stands for `/sys` and `/dev`, made on disk.
//!
//! Its name tells what is in it, so that runs with the same devices share one and it never changes under a program.
//! It is made aside and moved into its place as a whole; one whose files a cleaner of old files has taken is made anew.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use softroce::DeviceDescription;

use super::private;
use super::system_files::{Content, Entry, files};

/// The root of a tree that shows these devices.
pub(super) fn tree(devices: &[DeviceDescription]) -> Result<PathBuf> {
    let mut entries = files(devices);
    entries.extend(neighbours("sys"));
    entries.extend(neighbours("sys/class"));
    let parent = private::directory()?;
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    let root = parent.join(format!("tree-{:016x}", hasher.finish()));
    if is_whole(&root, &entries) {
        return Ok(root);
    }
    let aside = root.with_extension(format!("new-{}", std::process::id()));
    let made = make(&aside, &entries)
        .and_then(|()| put(&aside, &root))
        .with_context(|| format!("making {}", root.display()));
    let _ = fs::remove_dir_all(&aside);
    made.map(|()| root)
}

/// What lies beside our files in the system's own `directory`, as links: paths that climb out of the tree find it.
fn neighbours(directory: &str) -> Vec<Entry> {
    let Ok(listed) = fs::read_dir(Path::new("/").join(directory)) else {
        return Vec::new();
    };
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let others = names.filter(|name| !name.starts_with("infiniband") && name != "class" && name != "devices");
    let mut entries: Vec<Entry> = others
        .map(|name| Entry {
            path: format!("{directory}/{name}"),
            content: Content::Link(format!("/{directory}/{name}")),
        })
        .collect();
    entries.sort();
    entries
}

fn is_whole(root: &Path, entries: &[Entry]) -> bool {
    entries.iter().all(|entry| {
        let path = root.join(&entry.path);
        match &entry.content {
            Content::Link(target) => fs::read_link(path).is_ok_and(|found| found == Path::new(target)),
            Content::Counter => {
                fs::read_to_string(path).is_ok_and(|found| found.trim().parse::<u64>().is_ok())
            }
            Content::Text(text) => {
                fs::read_to_string(path).is_ok_and(|found| found.strip_suffix('\n') == Some(text))
            }
        }
    })
}

fn make(root: &Path, entries: &[Entry]) -> io::Result<()> {
    // Of a process with our number that was killed in the middle.
    let _ = fs::remove_dir_all(root);
    for entry in entries {
        let path = root.join(&entry.path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        match &entry.content {
            Content::Link(target) => symlink(target, path)?,
            Content::Text(text) => fs::write(path, format!("{text}\n"))?,
            Content::Counter => fs::write(path, "0\n")?,
        }
    }
    Ok(())
}

/// Move a tree into its place.
fn put(made: &Path, root: &Path) -> io::Result<()> {
    match fs::rename(made, root) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
            ) =>
        {
            // A damaged one, or that of a run that was faster: ours is as good as that.
            let old = root.with_extension(format!("old-{}", std::process::id()));
            fs::rename(root, &old)?;
            let moved = fs::rename(made, root);
            let _ = fs::remove_dir_all(old);
            match moved {
                Err(error) if root.is_dir() => {
                    tracing::debug!("another run has put its tree in place: {error}");
                    Ok(())
                }
                moved => moved,
            }
        }
        moved => moved,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::os::unix::fs::PermissionsExt;

    use softroce::{Options, Softroce};

    use super::*;

    fn described(last: u8) -> Vec<DeviceDescription> {
        let options = Options {
            addresses: vec![IpAddr::from([127, 90, std::process::id() as u8, last])],
            ..Options::default()
        };
        Softroce::new(options).unwrap().describe().unwrap()
    }

    #[test]
    fn a_tree_is_private_and_its_links_lead_to_files() {
        let root = tree(&described(1)).unwrap();
        let mode = root.parent().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        let class = root.join("sys/class");
        let read = |path: &str| fs::read_to_string(class.join(path)).unwrap();
        assert_eq!(read("infiniband/softroce0/device/numa_node"), "-1\n");
        assert_eq!(read("infiniband_verbs/uverbs0/ibdev"), "softroce0\n");
        assert_eq!(
            read("infiniband/softroce0/subsystem/softroce0/node_type"),
            "1: CA\n"
        );
        assert!(class.join("infiniband/softroce0/device/net/lo/ifindex").exists());
        assert!(class.join("infiniband/../net/lo/ifindex").exists());
        let _ = fs::remove_dir_all(root);
    }

    #[test]
    fn other_devices_have_another_tree_and_a_damaged_one_is_made_anew() {
        let (first, second) = (tree(&described(2)).unwrap(), tree(&described(3)).unwrap());
        assert_ne!(first, second);
        let file = first.join("sys/class/infiniband_mad/abi_version");
        fs::remove_file(&file).unwrap();
        assert_eq!(tree(&described(2)).unwrap(), first);
        assert_eq!(fs::read_to_string(file).unwrap(), "5\n");
        for root in [first, second] {
            let _ = fs::remove_dir_all(root);
        }
    }
}
