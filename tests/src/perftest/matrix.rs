//! The combinations: a set's tools over its connection types with its options, through its interfaces.

use std::fmt::{self, Display};

use serde::Deserialize;

/// How perftest posts sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// `ibv_post_send`.
    Old,
    /// The request builder, `ibv_wr_start` and so on.
    New,
}

impl Display for Interface {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Interface::Old => "old",
            Interface::New => "new",
        })
    }
}

/// One way to call a tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Combination {
    /// What the set that it belongs to is about.
    pub title: String,
    /// `ib_send_lat` and so on.
    pub tool: String,
    /// The word after `-c`.
    pub connection: String,
    /// Further options, separated by blanks.
    pub options: String,
    /// How sends are posted.
    pub interface: Interface,
}

impl Combination {
    /// Whether its options have this word.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(' ').any(|word| word == option)
    }

    /// Whether it runs for a time rather than for a number of messages.
    pub fn is_timed(&self) -> bool {
        self.has("-D")
    }

    /// The words of the command line that are the same wherever it runs.
    pub fn words(&self) -> Vec<&str> {
        let mut words = vec![self.tool.as_str(), "-c", &self.connection];
        words.extend(self.options.split_ascii_whitespace());
        words
    }
}

impl Display for Combination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.interface, self.words().join(" "))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    title: String,
    tools: Vec<String>,
    connections: Vec<String>,
    options: Vec<String>,
    interfaces: Vec<Interface>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    set: Vec<Set>,
}

/// All combinations, in the order of `data/perftest/matrix.toml`.
pub fn matrix() -> Result<Vec<Combination>, String> {
    let file: File = toml::from_str(include_str!("../../data/perftest/matrix.toml"))
        .map_err(|error| format!("tests/data/perftest/matrix.toml: {error}"))?;
    let mut combinations = Vec::new();
    for set in &file.set {
        for tool in &set.tools {
            for connection in &set.connections {
                for options in &set.options {
                    combinations.extend(set.interfaces.iter().map(|&interface| Combination {
                        title: set.title.clone(),
                        tool: format!("ib_{tool}"),
                        connection: connection.clone(),
                        options: options.clone(),
                        interface,
                    }));
                }
            }
        }
    }
    Ok(combinations)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::matrix;

    #[test]
    fn no_combination_stands_in_the_matrix_twice() {
        let combinations = matrix().expect("the matrix is well-formed");
        let different: HashSet<String> = combinations.iter().map(ToString::to_string).collect();
        assert_eq!(different.len(), combinations.len());
        assert!(combinations.len() > 400);
    }
}
