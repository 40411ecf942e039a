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

/// This user's runs that are under way, this one too: the process numbers of `softroce run`, and the directories.
pub fn all() -> Vec<(u32, PathBuf)> {
    private::existing()
        .iter()
        .flat_map(|parent| under(parent))
        .collect()
}

fn under(parent: &Path) -> Vec<(u32, PathBuf)> {
    fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter_map(|path| Some((run_of(&path)?, path)))
        .collect()
}

/// Remove what runs that were killed have left.
fn sweep(parent: &Path) {
    for (run, path) in under(parent) {
        let is_over = !Path::new("/proc").join(run.to_string()).exists();
        if is_over && Path::new("/proc/self").exists() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn run_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}
