//! The catalogue: what the suite tries, entry by entry, and which cases do.

use serde::Deserialize;

/// What an entry is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MadeWith {
    /// Verbs on both ends.
    Verbs,
    /// One end is played packet by packet.
    Raw,
    /// Verbs on both ends, faults between them.
    Faults,
    /// A half with verbs, and a half packet by packet.
    Both,
}

/// An entry of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueEntry {
    /// Its id, such as `H6`. The cases of the entry are called `H6`, `H6-UNBIND` and so on.
    pub id: String,
    /// Stimulus and what must happen, in short.
    pub text: String,
    /// What it is made with.
    pub made_with: MadeWith,
    /// 1 is a must.
    pub priority: u8,
    /// Cases of other entries that show it.
    #[serde(default)]
    pub also: Vec<String>,
    /// Why no case shows it, where none does.
    #[serde(default)]
    pub without: Option<String>,
}

impl CatalogueEntry {
    /// Whether the case `id` shows this entry.
    pub fn is_shown_by(&self, id: &str) -> bool {
        entry_of(id) == self.id || self.also.iter().any(|other| other == id)
    }
}

/// The entry that a case belongs to: its id up to the first hyphen.
pub fn entry_of(case_id: &str) -> &str {
    case_id.split('-').next().unwrap_or(case_id)
}

#[derive(Deserialize)]
struct File {
    entry: Vec<CatalogueEntry>,
}

/// All entries, in the order of their file.
///
/// # Panics
/// Never: the file is part of the build, and a test reads it.
pub fn all() -> Vec<CatalogueEntry> {
    let file: File = toml::from_str(include_str!("../../docs/spec/catalogue.toml"))
        .expect("docs/spec/catalogue.toml is well-formed; a test reads it");
    file.entry
}
