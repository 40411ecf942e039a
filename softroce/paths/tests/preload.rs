//! The shared object in a program that knows nothing of it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// As `cargo test` builds it, beside this test.
fn shared_object() -> PathBuf {
    let own = std::env::current_exe().expect("this test has a path");
    let file = own.with_file_name("libsoftroce_paths.so");
    assert!(file.exists(), "cargo builds it for the tests of its package");
    file
}

/// What `cat FILE` prints with the shared object and a tree at `root`.
fn cat(root: &Path, file: &str) -> String {
    let done = Command::new("cat")
        .arg(file)
        .env("LD_PRELOAD", shared_object())
        .env("SOFTROCE_PATHS", root)
        .output()
        .expect("cat is everywhere");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn files_of_devices_are_read_from_the_tree_and_others_from_where_they_are() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tree");
    let state = root.join("sys/class/infiniband/softroce0/ports/1");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("state"), "4: ACTIVE\n").unwrap();
    assert_eq!(
        cat(&root, "/sys/class/infiniband/softroce0/ports/1/state"),
        "4: ACTIVE\n"
    );
    let other = root.join("other");
    std::fs::write(&other, "as it is\n").unwrap();
    assert_eq!(cat(&root, other.to_str().unwrap()), "as it is\n");
}
