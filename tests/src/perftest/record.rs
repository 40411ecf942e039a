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

/// Why `here`, what came of a combination on softroce, is wrong: it differs from what is `expected` of softroce, or
/// kernel rxe does better or refuses in other words.
pub fn disagreement(on_rxe: Option<&Verdict>, expected: Option<&Verdict>, here: &Verdict) -> Option<String> {
    match (on_rxe, here) {
        (None, _) => return Some("it is missing in the record of rxe".to_owned()),
        (_, Verdict::Fails(_)) => return Some(here.to_string()),
        (Some(Verdict::Passes), Verdict::Refuses(_)) => {
            return Some(format!("rxe accepts it, and softroce {here}"));
        }
        (Some(Verdict::Refuses(there)), Verdict::Refuses(message)) if kind(there) != kind(message) => {
            return Some(format!(
                "rxe refuses it with `{there}`, softroce with `{message}`"
            ));
        }
        _ => {}
    }
    match expected {
        None => Some("it is missing in the record of softroce".to_owned()),
        Some(expected) if expected.word() != here.word() => {
            Some(format!("softroce {here}; so far it {}", expected.word()))
        }
        Some(_) => None,
    }
}

/// What a message says, without its numbers.
fn kind(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Record, disagreement};
    use crate::perftest::{Verdict, matrix};

    #[test]
    fn a_record_gives_back_what_was_put_in() {
        let combinations = matrix().expect("the matrix is well-formed");
        let verdicts = [
            Verdict::Passes,
            Verdict::Refuses("Unable to create QP.".to_owned()),
            Verdict::Fails("the client hangs".to_owned()),
        ];
        let lines: Vec<String> = combinations
            .iter()
            .zip(&verdicts)
            .map(|(combination, verdict)| Record::line(combination, verdict))
            .collect();
        let record = Record::parse(&lines.join("\n")).expect("well-formed");
        for (combination, verdict) in combinations.iter().zip(&verdicts) {
            assert_eq!(record.of(combination), Some(verdict));
        }
        assert_eq!(record.of(&combinations[3]), None);
    }

    #[test]
    fn softroce_may_accept_more_than_rxe_but_neither_less_nor_refuse_in_other_words() {
        let refuses = |message: &str| Verdict::Refuses(message.to_owned());
        let agrees = |rxe: &Verdict, here: &Verdict| disagreement(Some(rxe), Some(here), here).is_none();
        assert!(agrees(&refuses("no"), &Verdict::Passes));
        assert!(agrees(&refuses("0 to 912"), &refuses("0 to 400")));
        assert!(!agrees(&refuses("no"), &refuses("other")));
        assert!(!agrees(&Verdict::Passes, &refuses("no")));
        assert!(!agrees(
            &Verdict::Fails("hangs".to_owned()),
            &Verdict::Fails("hangs".to_owned())
        ));
        assert!(disagreement(None, Some(&Verdict::Passes), &Verdict::Passes).is_some());
        assert!(disagreement(Some(&refuses("no")), Some(&Verdict::Passes), &refuses("no")).is_some());
    }
}
