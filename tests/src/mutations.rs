//! One-line mutations of the engine (`mutations/mutations.toml`): errors put in on purpose, to see that some test
//! finds them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A text in the engine's sources, and what replaces it. The text names no file, so that code may move.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// What the engine does wrong then.
    pub name: String,
    /// The text that is replaced.
    pub from: String,
    /// What replaces it.
    pub to: String,
}

#[derive(Deserialize)]
struct File {
    mutation: Vec<Mutation>,
}

/// All mutations.
pub fn all() -> Result<Vec<Mutation>, String> {
    let file: File = toml::from_str(include_str!("../mutations/mutations.toml"))
        .map_err(|error| format!("tests/mutations/mutations.toml: {error}"))?;
    Ok(file.mutation)
}

/// The engine's sources, its tests left out: path and text.
pub fn engine_sources(tree: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let mut sources = Vec::new();
    let mut folders = vec![tree.join("softroce/engine/src")];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in listed {
            let path = entry
                .map_err(|error| format!("{}: {error}", folder.display()))?
                .path();
            let is_source = path.extension().is_some_and(|end| end == "rs");
            if path.is_dir() {
                folders.push(path);
            } else if is_source && path.file_name().is_some_and(|name| name != "tests.rs") {
                let text =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                sources.push((path, text));
            }
        }
    }
    Ok(sources)
}

impl Mutation {
    /// The file that the mutation is in, and its text with the mutation.
    pub fn apply(&self, sources: &[(PathBuf, String)]) -> Result<(PathBuf, String), String> {
        let Mutation { name, from, to } = self;
        if from.contains('\n') || to.contains('\n') {
            return Err(format!("mutation {name:?} is more than one line"));
        }
        if from == to {
            return Err(format!("mutation {name:?} changes nothing"));
        }
        let count: usize = sources.iter().map(|(_, text)| text.matches(from).count()).sum();
        match sources.iter().find(|(_, text)| text.contains(from)) {
            Some((path, text)) if count == 1 => Ok((path.clone(), text.replacen(from, to, 1))),
            _ => Err(format!(
                "mutation {name:?}: {from:?} stands {count} times in the engine, must be once; adapt the mutation to the code"
            )),
        }
    }
}
