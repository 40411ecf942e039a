//! What holds for the repository itself: who may depend on whom, no path of anybody's machine, no dead link.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::program::repository;
use serde_json::Value;

/// Each package of the workspace, what it may always need of ours, and what only behind a feature.
///
/// `docs/architecture.md` has the reasons.
const MAY_DEPEND: &[(&str, &[&str], &[&str])] = &[
    ("roce-wire", &[], &[]),
    ("roce-analyze", &["roce-wire"], &[]),
    ("verbs-api", &[], &[]),
    ("verbs-sys", &["verbs-api"], &[]),
    ("verbs-native", &["verbs-api", "verbs-sys"], &[]),
    ("softroce-engine", &["roce-wire", "verbs-api"], &[]),
    ("softroce-faults", &["roce-wire", "verbs-api"], &[]),
    ("softroce-cm", &["roce-wire", "verbs-api", "softroce-engine"], &[]),
    (
        "softroce",
        &[
            "roce-wire",
            "verbs-api",
            "softroce-engine",
            "softroce-faults",
            "softroce-cm",
        ],
        &[],
    ),
    (
        "softroce-sim",
        &[
            "roce-wire",
            "verbs-api",
            "softroce-engine",
            "softroce-faults",
            "softroce",
        ],
        &[],
    ),
    (
        "softroce-dropin",
        &[
            "roce-wire",
            "verbs-api",
            "verbs-sys",
            "softroce",
            "softroce-log",
            "softroce-rsocket",
        ],
        &[],
    ),
    ("softroce-rsocket", &["verbs-api"], &[]),
    ("softroce-paths", &[], &[]),
    ("softroce-log", &[], &[]),
    (
        "conformance",
        &["roce-wire", "verbs-api"],
        &["roce-analyze", "softroce", "softroce-sim", "verbs-native"],
    ),
    (
        "softroce-cli",
        &[
            "roce-wire",
            "roce-analyze",
            "verbs-api",
            "verbs-native",
            "softroce",
            "softroce-sim",
            "softroce-log",
            "conformance",
            "drill",
        ],
        &[],
    ),
    (
        "drill",
        &["roce-wire", "verbs-api", "softroce", "softroce-sim"],
        &[],
    ),
    (
        "e2e",
        &[
            "roce-wire",
            "verbs-api",
            "verbs-native",
            "softroce",
            "conformance",
        ],
        &[],
    ),
];

#[test]
fn every_package_is_on_the_map_and_in_the_architecture() {
    for document in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let text = std::fs::read_to_string(repository().join(document)).expect("the document is there");
        let missing: Vec<&str> = MAY_DEPEND
            .iter()
            .map(|(name, ..)| *name)
            .filter(|name| !text.contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "{document} does not name {missing:?}");
    }
}

fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(repository())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Every file that git knows, or none where this is no git checkout.
fn tracked_files() -> Vec<PathBuf> {
    let listed = run("git", &["ls-files", "-z"]).unwrap_or_default();
    listed
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(|name| repository().join(name))
        .collect()
}

/// What cargo tells of the workspace's own packages.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = run(cargo, &["metadata", "--no-deps", "--format-version=1"]).expect("cargo metadata runs");
    let mut metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata prints JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("packages are a list, not {other}"),
    }
}

#[test]
fn packages_depend_only_on_what_the_architecture_allows() {
    let packages = packages();
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let rules: BTreeMap<&str, (&[&str], &[&str])> = MAY_DEPEND
        .iter()
        .map(|&(name, always, behind_feature)| (name, (always, behind_feature)))
        .collect();
    let known: BTreeSet<&str> = rules.keys().copied().collect();
    assert_eq!(
        ours, known,
        "every package of the workspace needs its row in MAY_DEPEND, and no other"
    );

    let mut violations = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let (always, behind_feature) = rules[name];
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Tests may use what they like.
            let wanted = dependency["name"].as_str().unwrap_or_default();
            if dependency["kind"] == "dev" || !ours.contains(wanted) {
                continue;
            }
            let optional = dependency["optional"] == true;
            let allowed = always.contains(&wanted) || (optional && behind_feature.contains(&wanted));
            if !allowed {
                violations.push(format!(
                    "{name} -> {wanted}{}",
                    if optional { " (optional)" } else { "" }
                ));
            }
        }
    }
    assert!(violations.is_empty(), "not allowed: {}", violations.join(", "));
}

#[test]
fn no_file_names_the_folder_that_this_checkout_lies_in() {
    let Some(git) = run(
        "git",
        &["rev-parse", "--path-format=absolute", "--git-common-dir"],
    ) else {
        return;
    };
    // The main checkout's parent, also when this is a linked worktree of it.
    let parents = [
        repository().parent(),
        Path::new(git.trim()).parent().and_then(Path::parent),
    ];
    let common = [
        "/", "/home", "/root", "/tmp", "/usr/src", "/opt", "/srv", "/builds",
    ];
    let mut needles: Vec<String> = parents
        .into_iter()
        .flatten()
        .map(|parent| parent.display().to_string())
        .filter(|parent| !common.contains(&parent.as_str()))
        .map(|parent| format!("{parent}/"))
        .collect();
    // Nor what lies beside it: a link out of the repository works on no other machine.
    needles.push(["..", "shared", ""].join("/"));
    for file in tracked_files() {
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for needle in &needles {
            assert!(
                !text.contains(needle.as_str()),
                "{} names {needle}",
                file.display()
            );
        }
    }
}

#[test]
fn no_file_has_the_marks_of_a_merge_that_nobody_finished() {
    let marks = ['<', '>'].map(|mark| format!("{} ", String::from(mark).repeat(7)));
    for file in tracked_files() {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let found = text
            .lines()
            .position(|line| marks.iter().any(|mark| line.starts_with(mark.as_str())));
        assert_eq!(found, None, "{} has a mark, lines counted from 0", file.display());
    }
}

#[test]
fn every_relative_link_in_a_document_leads_somewhere() {
    let mut dead = Vec::new();
    for document in tracked_files() {
        if document.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&document).expect("a document is UTF-8");
        let folder = document.parent().unwrap_or(repository());
        for target in link_targets(&text) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !folder.join(path).exists() {
                dead.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// The targets of `[text](target)` in Markdown.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

#[test]
fn no_file_of_code_is_longer_than_its_reader_can_hold() {
    const LINES_MAX: usize = 500;
    let mut long = Vec::new();
    for file in tracked_files() {
        let name = file.display().to_string();
        let is_test = name.contains("/tests/") || name.ends_with("/tests.rs") || name.contains("/fuzz/");
        if file.extension().is_none_or(|extension| extension != "rs") || is_test {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source file is UTF-8");
        let lines = text
            .lines()
            .take_while(|line| !line.starts_with("#[cfg(test)]"))
            .count();
        if lines > LINES_MAX {
            long.push(format!("{name}: {lines}"));
        }
    }
    assert!(
        long.is_empty(),
        "files of over {LINES_MAX} lines before their tests:\n{}",
        long.join("\n")
    );
}

/// A file that nobody names is compiled nowhere, and its tests never run.
#[test]
fn every_source_file_is_part_of_a_program() {
    let packages = packages();
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter_map(|target| target["src_path"].as_str());
    // Each with the folder of its modules.
    let mut unread: Vec<(PathBuf, PathBuf)> = targets
        .map(PathBuf::from)
        .map(|root| (root.clone(), folder_of(&root).to_owned()))
        .collect();
    let mut parts = BTreeSet::new();
    while let Some((file, folder)) = unread.pop() {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        unread.extend(modules_of(&text, &file, &folder));
        parts.insert(file.canonicalize().expect("a file that was read"));
    }
    let strays: Vec<String> = tracked_files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs") && file.exists())
        // Workspaces of their own, and programs that end-to-end cases compile.
        .filter(|file| {
            !["fuzz", "contrib", "programs"]
                .iter()
                .any(|part| file.iter().any(|name| name == *part))
        })
        .filter(|file| !parts.contains(&file.canonicalize().expect("it exists")))
        .map(|file| file.display().to_string())
        .collect();
    assert!(strays.is_empty(), "no `mod` names these:\n{}", strays.join("\n"));
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(repository())
}

/// The files that the modules named in `text` may lie in, each with the folder of its own modules.
fn modules_of<'a>(
    text: &'a str,
    file: &'a Path,
    folder: &'a Path,
) -> impl Iterator<Item = (PathBuf, PathBuf)> + 'a {
    let mut path = None;
    text.lines().map(str::trim).filter_map(move |line| {
        if let Some(named) = line
            .strip_prefix("#[path = \"")
            .and_then(|rest| rest.strip_suffix("\"]"))
        {
            path = Some(folder_of(file).join(named));
            return None;
        }
        let (_, module) = line
            .split_once("mod ")
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))?;
        let module = module.strip_suffix(';')?;
        Some(match path.take() {
            Some(path) => (path.clone(), folder_of(&path).to_owned()),
            None => (folder.join(format!("{module}.rs")), folder.join(module)),
        })
    })
}
