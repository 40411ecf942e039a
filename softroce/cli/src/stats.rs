//! Figures over many samples.

use serde::Serialize;

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distribution {
    pub min_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub mean_us: f64,
}

impl Distribution {
    /// From samples in nanoseconds, each divided by `divisor` (2 for half round trips). `None` without samples.
    pub fn from_nanos(samples: &mut [u64], divisor: f64) -> Option<Self> {
        samples.sort_unstable();
        let us = |nanos: u64| nanos as f64 / divisor / 1000.0;
        let at = |share: f64| us(samples[((samples.len() - 1) as f64 * share).round() as usize]);
        let sum: u64 = samples.iter().sum();
        let (&first, &last) = (samples.first()?, samples.last()?);
        Some(Distribution {
            min_us: us(first),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(last),
            mean_us: us(sum) / samples.len() as f64,
        })
    }
}

/// The median of a few figures; 0 without any.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_distribution_divides_and_converts_its_samples() {
        let d = Distribution::from_nanos(&mut [4000, 2000, 6000], 2.0).unwrap();
        assert_eq!((d.min_us, d.p50_us, d.max_us, d.mean_us), (1.0, 2.0, 3.0, 2.0));
        assert!(Distribution::from_nanos(&mut [], 1.0).is_none());
    }
}
