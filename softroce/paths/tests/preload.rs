//! The shared object in a program that knows nothing of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions of the C library that it stands in front of. An older glibc reaches `stat` and its like by `__xstat`,
/// a hardened program `open` by `__open_2`, `getcwd` by `__getcwd_chk`, and so on.
const IN_FRONT: &str = "
    __fxstatat
    __fxstatat64
    __getcwd_chk
    __lxstat
    __lxstat64
    __open64_2
    __open_2
    __openat64_2
    __openat_2
    __readlink_chk
    __readlinkat_chk
    __realpath_chk
    __xstat
    __xstat64
    access
    canonicalize_file_name
    chdir
    closedir
    eaccess
    euidaccess
    faccessat
    fdopendir
    fopen
    fopen64
    freopen
    freopen64
    fstatat
    fstatat64
    get_current_dir_name
    getcwd
    getxattr
    glob
    glob64
    inotify_add_watch
    lgetxattr
    listxattr
    llistxattr
    lstat
    lstat64
    open
    open64
    openat
    openat64
    opendir
    readdir
    readdir64
    readlink
    readlinkat
    realpath
    rewinddir
    scandir
    scandir64
    scandirat
    scandirat64
    stat
    stat64
    statfs
    statfs64
    statvfs
    statvfs64
    statx
";

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

#[test]
fn only_functions_of_the_c_library_that_take_paths_are_exported() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(shared_object())
        .output()
        .expect("nm is part of binutils, as the linker is");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let exported: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(exported, IN_FRONT.split_whitespace().collect());
}
