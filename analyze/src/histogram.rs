//! Latencies as a histogram with steps of a factor of two.

use serde::Serialize;

/// The first step ends at 1 µs, the last is without end.
const STEPS: usize = 32;
const FIRST_NS: u64 = 1000;

/// How often which time was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    steps: [u64; STEPS],
    count: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// Takes a time in.
    pub fn add(&mut self, ns: u64) {
        let step = (ns / FIRST_NS).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.steps[step.min(STEPS - 1)] += 1;
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The shortest, if there is one.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The longest, if there is one.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The upper end of the step in which the middle one lies, and no more than the longest.
    pub fn median_ns(&self) -> Option<u64> {
        let mut below = 0;
        self.steps().find_map(|(upper_ns, count)| {
            below += count;
            (2 * below >= self.count && self.count > 0).then_some(upper_ns.min(self.max_ns))
        })
    }

    /// Each step that holds something: its upper end (the lower one is half of it, or 0) and how many.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let steps = self.steps.iter().enumerate();
        steps
            .filter(|(_, count)| **count > 0)
            .map(|(step, count)| (FIRST_NS << step, *count))
    }
}

#[derive(Serialize)]
struct Step {
    below_ns: u64,
    count: u64,
}

#[derive(Serialize)]
struct Shown {
    count: u64,
    min_ns: Option<u64>,
    median_ns: Option<u64>,
    max_ns: Option<u64>,
    steps: Vec<Step>,
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let steps = self.steps().map(|(below_ns, count)| Step { below_ns, count });
        Shown {
            count: self.count,
            min_ns: self.min_ns(),
            median_ns: self.median_ns(),
            max_ns: self.max_ns(),
            steps: steps.collect(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn times_fall_into_steps_of_a_factor_of_two() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.median_ns(), histogram.min_ns()), (None, None));
        for ns in [0, 999, 1000, 1999, 2000, u64::MAX] {
            histogram.add(ns);
        }
        let steps: Vec<_> = histogram.steps().collect();
        assert_eq!(steps, [(1000, 2), (2000, 2), (4000, 1), (1000 << 31, 1)]);
        assert_eq!(histogram.median_ns(), Some(2000));
        assert_eq!(
            (histogram.min_ns(), histogram.max_ns()),
            (Some(0), Some(u64::MAX))
        );
    }
}
