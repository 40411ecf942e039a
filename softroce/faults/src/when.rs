//! Which of the things that a rule matches it hits.

use crate::{Numbers, Random};

/// Of everything that matches, what is hit. All conditions must hold; the default hits everything.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    /// These matches, counted from 1.
    pub nth: Numbers,
    /// Of the matches, each this-many-eth: 10 is the 10th, the 20th, and so on.
    pub every: u64,
    /// With this probability, 0 to 1.
    pub probability: f64,
    /// Not before this time, ns since the rules were loaded. What is outside the time is not counted as a match.
    pub from_ns: u64,
    /// Not at or after this time, ns.
    pub until_ns: u64,
    /// So often at most.
    pub hits_max: u64,
}

impl Default for When {
    fn default() -> Self {
        When {
            nth: Numbers::ANY,
            every: 1,
            probability: 1.0,
            from_ns: 0,
            until_ns: u64::MAX,
            hits_max: u64::MAX,
        }
    }
}

impl When {
    /// The nth match alone, counted from 1.
    pub fn nth(number: u64) -> When {
        When {
            nth: Numbers::one(number),
            ..When::default()
        }
    }

    /// With this probability, 0 to 1.
    pub fn chance(probability: f64) -> When {
        When {
            probability,
            ..When::default()
        }
    }
}

/// A rule's counts and chance.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) matched: u64,
    pub(crate) hits: u64,
    random: Random,
}

impl Progress {
    /// For the rule of this number, which has chances of its own.
    pub(crate) fn new(seed: u64, rule: u64) -> Self {
        let mut seeds = Random::new(seed ^ rule.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Progress {
            matched: 0,
            hits: 0,
            random: Random::new(seeds.next_u64()),
        }
    }

    /// Something has matched, `age_ns` after the rules were loaded: whether it is hit.
    pub(crate) fn hits(&mut self, when: &When, age_ns: u64) -> bool {
        if !(when.from_ns..when.until_ns).contains(&age_ns) {
            return false;
        }
        self.matched += 1;
        // Drawn for every match, so that a change of another condition leaves the draws as they were.
        let drawn = when.probability >= 1.0 || self.random.fraction() < when.probability;
        let is_hit = drawn
            && self.matched.is_multiple_of(when.every.max(1))
            && when.nth.contains(self.matched)
            && self.hits < when.hits_max;
        self.hits += u64::from(is_hit);
        is_hit
    }

    /// A number below `bound`, of the rule's own chance.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(when: &When, count: u64) -> Vec<u64> {
        let mut progress = Progress::new(1, 0);
        (1..=count).filter(|_| progress.hits(when, 5)).collect()
    }

    #[test]
    fn the_nth_every_nth_and_at_most_so_many_are_hit() {
        let when = |nth: &str, every, hits_max| When {
            nth: Numbers::from_text(nth).unwrap(),
            every,
            hits_max,
            ..When::default()
        };
        assert_eq!(hit(&when("2,4-5", 1, 99), 9), [2, 4, 5]);
        assert_eq!(hit(&when("0-", 3, 99), 9), [3, 6, 9]);
        assert_eq!(hit(&when("0-", 1, 2), 9), [1, 2]);
    }

    #[test]
    fn a_match_outside_the_time_is_none() {
        let when = When {
            from_ns: 10,
            until_ns: 20,
            ..When::default()
        };
        let mut progress = Progress::new(1, 0);
        let hits: Vec<bool> = [9, 10, 19, 20].map(|age| progress.hits(&when, age)).into();
        assert_eq!(hits, [false, true, true, false]);
        assert_eq!((progress.matched, progress.hits), (2, 2));
    }

    #[test]
    fn chances_are_about_what_they_say_and_differ_from_rule_to_rule() {
        let count = |rule| {
            let mut progress = Progress::new(7, rule);
            let when = When::chance(0.01);
            let hits: Vec<u64> = (0..100_000).filter(|_| progress.hits(&when, 0)).collect();
            hits
        };
        assert!((900..1_100).contains(&count(0).len()), "{}", count(0).len());
        assert_ne!(count(0), count(1));
    }
}
