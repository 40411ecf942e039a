//! The shared object has every name that libibverbs and librdmacm have, under the same versions, and what else it has is listed here.

#[path = "support/common.rs"]
mod common;

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::process::Command;

/// Of rdma-core 44: name, version node, `default` or `hidden`, …
const LISTS: [&str; 2] = [
    include_str!("data/libibverbs.so.1.exports.txt"),
    include_str!("data/librdmacm.so.1.exports.txt"),
];

/// The lines of both lists, in their fields. The nodes themselves are listed, too: they are left out.
fn exports() -> impl Iterator<Item = Vec<&'static str>> {
    LISTS
        .iter()
        .flat_map(|list| list.lines())
        .map(|line| line.split('\t').collect::<Vec<&str>>())
        .filter(|fields| fields[0] != fields[1])
}

/// What is exported beyond that, each with its reason. Private names under other nodes: [`OTHER_PRIVATE_NODES`].
const BEYOND: &[(&str, &str)] = &[
    ("ibv_query_port_speed@@IBVERBS_1.16", "new in rdma-core 62"),
    ("rdma_query_addrinfo@@RDMACM_1.4", "newer than rdma-core 44"),
    ("rdma_resolve_addrinfo@@RDMACM_1.4", "newer than rdma-core 44"),
    ("rdma_write_cm_event@@RDMACM_1.4", "newer than rdma-core 44"),
    ("softroce_dropin", "by which the library is known as ours"),
    (
        "_exit",
        "a process that leaves acknowledges first what it received",
    ),
    ("_Exit", "the same function under its other name"),
];

/// What the node of private functions is called in releases other than 44, for the vendor libraries of then.
const OTHER_PRIVATE_NODES: &[&str] = &[
    "IBVERBS_PRIVATE_25",
    "IBVERBS_PRIVATE_33",
    "IBVERBS_PRIVATE_57",
    "IBVERBS_PRIVATE_59",
    "IBVERBS_PRIVATE_64",
    "IBVERBS_PRIVATE_65",
];

struct Library(*mut c_void);

impl Library {
    fn open() -> Library {
        let path =
            CString::new(common::drop_in().into_os_string().into_encoded_bytes()).expect("no zero byte");
        // SAFETY: a C string; the library's initialisers do nothing.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} does not load");
        Library(handle)
    }

    fn has(&self, name: &str, version: Option<&str>) -> bool {
        let name = CString::new(name).expect("no zero byte");
        let version = version.map(|version| CString::new(version).expect("no zero byte"));
        // SAFETY: an open library and C strings.
        let symbol = unsafe {
            match &version {
                Some(version) => libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()),
                None => libc::dlsym(self.0, name.as_ptr()),
            }
        };
        !symbol.is_null()
    }
}

#[test]
fn every_name_of_both_libraries_is_there_under_its_version() {
    let library = Library::open();
    let mut missing = BTreeSet::new();
    for fields in exports() {
        let (name, version) = (fields[0], fields[1]);
        if !library.has(name, Some(version)) {
            missing.insert(format!("{name}@{version}"));
        }
        if fields[2] == "default" && !library.has(name, None) {
            missing.insert(name.to_owned());
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn names_of_later_releases_are_there_and_private_ones_under_all_private_versions() {
    let library = Library::open();
    // Debian 11's ibv_devinfo takes a name from node 33.
    for version in ["IBVERBS_PRIVATE_25", "IBVERBS_PRIVATE_33"] {
        assert!(library.has("ibv_query_gid_type", Some(version)), "{version}");
    }
    for version in [
        "IBVERBS_PRIVATE_57",
        "IBVERBS_PRIVATE_59",
        "IBVERBS_PRIVATE_64",
        "IBVERBS_PRIVATE_65",
    ] {
        assert!(
            library.has("verbs_register_driver_34", Some(version)),
            "{version}"
        );
    }
    assert!(
        library.has("ibv_query_port_speed", Some("IBVERBS_1.16")),
        "rdma-core 62"
    );
    assert!(!library.has("ibv_open_device", Some("IBVERBS_9.9")));
}

/// All that must be exported: `name@@NODE` by default, `name@NODE` for programs that were linked long ago.
fn expected() -> BTreeSet<String> {
    let mut expected: BTreeSet<String> = BEYOND.iter().map(|(symbol, _)| (*symbol).to_owned()).collect();
    for fields in exports() {
        let (name, version, visibility, kind) = (fields[0], fields[1], fields[2], fields[4]);
        let at = match visibility {
            "default" => "@@",
            "hidden" => "@",
            other => panic!("{name} is {other}"),
        };
        expected.insert(format!("{name}{at}{version}"));
        // Of the one private variable, a program's copy can have one version only.
        if version == "IBVERBS_PRIVATE_34" && kind.ends_with("DF") {
            expected.extend(OTHER_PRIVATE_NODES.iter().map(|node| format!("{name}@{node}")));
        }
    }
    expected
}

#[test]
fn nothing_else_is_exported_and_defaults_are_those_of_libibverbs() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(common::drop_in())
        .output()
        .expect("nm is part of binutils, as the linker is");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect();
    let expected = expected();
    let difference = |all: &BTreeSet<String>, but: &BTreeSet<String>| -> Vec<String> {
        all.difference(but).cloned().collect()
    };
    assert_eq!(
        difference(&exported, &expected),
        [""; 0],
        "exported, and no one knows why"
    );
    assert_eq!(difference(&expected, &exported), [""; 0], "not exported");
}
