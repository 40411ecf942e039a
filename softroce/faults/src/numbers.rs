//! Sets of numbers, as rules name them: single ones and ranges.

use std::fmt;

/// Ranges of numbers, both ends included. The empty set stands for "any number".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(Vec<(u64, u64)>);

impl Numbers {
    /// Any number.
    pub const ANY: Numbers = Numbers(Vec::new());

    /// This one.
    pub fn one(number: u64) -> Numbers {
        Numbers(vec![(number, number)])
    }

    /// From `first` to `last`, both included.
    pub fn range(first: u64, last: u64) -> Numbers {
        Numbers(vec![(first, last)])
    }

    /// `other`'s, too.
    #[must_use]
    pub fn and(mut self, other: Numbers) -> Numbers {
        self.0.extend(other.0);
        self
    }

    /// Whether every number will do.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is one of them.
    pub fn contains(&self, number: u64) -> bool {
        self.is_any()
            || self
                .0
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// The smallest and the largest; `None` for any.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let first = self.0.iter().map(|(first, _)| *first).min()?;
        let last = self.0.iter().map(|(_, last)| *last).max()?;
        Some((first, last))
    }

    /// From text: "3", "0x10", "3-5", "3-" (and all above), "-5" (and all below), several with commas. `None` when it is
    /// none of these.
    pub fn from_text(text: &str) -> Option<Numbers> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            let range = match part.split_once('-') {
                None => {
                    let number = number(part)?;
                    (number, number)
                }
                Some(("", "")) => return None,
                Some(("", last)) => (0, number(last.trim())?),
                Some((first, "")) => (number(first.trim())?, u64::MAX),
                Some((first, last)) => (number(first.trim())?, number(last.trim())?),
            };
            if range.0 > range.1 {
                return None;
            }
            ranges.push(range);
        }
        Some(Numbers(ranges))
    }
}

impl From<u64> for Numbers {
    fn from(number: u64) -> Self {
        Numbers::one(number)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            match (*first, *last) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, u64::MAX) => write!(f, "{comma}{first}-")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// Decimal, or hexadecimal behind 0x.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_both_ends_and_open_ones() {
        let numbers = Numbers::from_text("3, 7-9,0x20-").unwrap();
        for (number, is_in) in [
            (2, false),
            (3, true),
            (4, false),
            (7, true),
            (9, true),
            (10, false),
            (32, true),
        ] {
            assert_eq!(numbers.contains(number), is_in, "{number}");
        }
        assert!(Numbers::from_text("-4").unwrap().contains(0));
        assert_eq!(numbers.to_string(), "3,7-9,32-");
    }

    #[test]
    fn what_is_no_range_is_none() {
        for text in ["", "-", "a", "5-3", "1,,2", "+3", "0xg", "99999999999999999999"] {
            assert_eq!(Numbers::from_text(text), None, "{text:?}");
        }
    }
}
