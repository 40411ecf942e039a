//! One-line mutations of the engine (`mutations/mutations.toml`): errors put in on purpose, to see that some test
//! finds them.

use serde::Deserialize;

/// A text in a file, and what replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// What the engine does wrong then.
    pub name: String,
    /// Which file, from the root of the repository.
    pub file: String,
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

impl Mutation {
    /// The file's text with the mutation in it. The text to replace must be one line that stands there exactly once.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let count = text.matches(&self.from).count();
        if self.from.contains('\n') || self.to.contains('\n') {
            return Err(format!("mutation {:?} is more than one line", self.name));
        }
        if self.from == self.to {
            return Err(format!("mutation {:?} changes nothing", self.name));
        }
        if count != 1 {
            return Err(format!(
                "mutation {:?}: {:?} stands {count} times in {}, must be once; adapt the mutation to the code",
                self.name, self.from, self.file
            ));
        }
        Ok(text.replacen(&self.from, &self.to, 1))
    }
}
