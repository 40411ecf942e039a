//! What a run keeps while it lives: a private directory in which the processes of the program leave what explains a
//! failure, and can be asked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::private;

/// The directory, removed when dropped.
pub(super) struct Session {
    directory: PathBuf,
}

const PREFIX: &str = "run-";

impl Session {
    pub(super) fn open() -> Result<Session> {
        let parent = private::directory()?;
        sweep(&parent);
        let directory = parent.join(format!("{PREFIX}{}", std::process::id()));
        private::make(&directory)?;
        Ok(Session { directory })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The directories of this user's runs that are under way, this one's too.
pub fn all() -> Vec<PathBuf> {
    private::existing()
        .iter()
        .flat_map(|parent| under(parent))
        .collect()
}

fn under(parent: &Path) -> Vec<PathBuf> {
    fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| run_of(path).is_some())
        .collect()
}

/// Remove what runs that were killed have left.
fn sweep(parent: &Path) {
    for path in under(parent) {
        let is_over = run_of(&path).is_some_and(|run| !Path::new("/proc").join(run).exists());
        if is_over && Path::new("/proc/self").exists() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn run_of(path: &Path) -> Option<&str> {
    let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    number.parse::<u32>().ok().map(|_| number)
}
