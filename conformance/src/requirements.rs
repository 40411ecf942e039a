//! The requirements: our own numbered sentences on what an RDMA device must do.

use serde::Deserialize;

/// How sure we are of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Its clause is quoted in a source that can be read in public.
    Quoted,
    /// Public implementations, manuals or books agree on it.
    Agreed,
    /// From general knowledge of the specification; to be checked against its text.
    Assumed,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Its id, such as `RNR-1`.
    pub id: String,
    /// What must be, in our own words.
    pub text: String,
    /// The clause of the specification that it comes from, where known.
    #[serde(default)]
    pub clause: String,
    /// What we have it from.
    pub source: String,
    /// How sure we are.
    pub certainty: Certainty,
    /// Why no case shows it, where none does.
    #[serde(default)]
    pub exception: Option<String>,
}

#[derive(Deserialize)]
struct File {
    requirement: Vec<Requirement>,
}

/// All requirements, in the order of their file.
///
/// # Panics
/// Never: the file is part of the build, and a test reads it.
pub fn all() -> Vec<Requirement> {
    let file: File = toml::from_str(include_str!("../../docs/spec/requirements.toml"))
        .expect("docs/spec/requirements.toml is well-formed; a test reads it");
    file.requirement
}
