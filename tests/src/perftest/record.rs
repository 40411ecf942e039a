//! What came of each combination, kept as lines of three fields that tabs separate: combination, verdict, what was said.

use std::collections::HashMap;

use super::matrix::Combination;
use super::pair::Verdict;

/// Verdicts by combination.
#[derive(Debug, Default)]
pub struct Record {
    verdicts: HashMap<String, Verdict>,
}

impl Record {
    /// Reads the lines that [`Record::line`] made.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut verdicts = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.splitn(3, '\t');
            let (Some(combination), Some(word)) = (fields.next(), fields.next()) else {
                return Err(format!("a line without a verdict: {line}"));
            };
            let message = fields.next().unwrap_or_default().to_owned();
            let verdict = match word {
                "passes" => Verdict::Passes,
                "refuses" => Verdict::Refuses(message),
                "fails" => Verdict::Fails(message),
                other => return Err(format!("`{other}` is no verdict: {line}")),
            };
            verdicts.insert(combination.to_owned(), verdict);
        }
        Ok(Record { verdicts })
    }

    /// A line for what came of this combination.
    pub fn line(combination: &Combination, verdict: &Verdict) -> String {
        format!("{combination}\t{}\t{}", verdict.word(), verdict.message())
    }

    /// What came of it, if it was run.
    pub fn of(&self, combination: &Combination) -> Option<&Verdict> {
        self.verdicts.get(&combination.to_string())
    }
}
