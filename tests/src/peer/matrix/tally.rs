//! Counters before and after a case, and what of the difference is trouble.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// What the kernel shows of a device's first port; nothing where it shows none.
pub fn hardware_counters(device: &str) -> Counters {
    let folder = Path::new("/sys/class/infiniband")
        .join(device)
        .join("ports/1/hw_counters");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let counters = files.filter_map(|file| {
        let count = std::fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
        Some((file.file_name().into_string().ok()?, count))
    });
    // How often the kernel refreshes them is among them.
    counters.filter(|(name, _)| name != "lifespan").collect()
}

/// What every conversation counts.
const ORDINARY: [&str; 8] = [
    "sent_pkts",
    "rcvd_pkts",
    "sent_bytes",
    "rcvd_bytes",
    "ack_deferred",
    "rdma_sends",
    "rdma_recvs",
    "link_downed",
];

/// What a case makes the counters show on one end, by counter.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected {
    /// Exactly once.
    pub once: &'static [&'static str],
    /// At least once.
    pub some: &'static [&'static str],
    /// Any number, also none.
    pub any: &'static [&'static str],
}

/// The counters that have risen and tell of trouble, with how much.
pub fn troubles(before: &Counters, after: &Counters) -> Counters {
    after
        .iter()
        .filter(|(name, _)| !ORDINARY.contains(&name.as_str()))
        .map(|(name, now)| {
            (
                name.clone(),
                now.saturating_sub(before.get(name).copied().unwrap_or(0)),
            )
        })
        .filter(|(_, risen)| *risen > 0)
        .collect()
}

/// Whether these troubles are what was expected.
pub fn check(troubles: &Counters, expected: Expected) -> Result<()> {
    let risen = |name: &str| troubles.get(name).copied().unwrap_or(0);
    for name in expected.once {
        ensure!(
            risen(name) == 1,
            "{name} rose by {}, not by 1; in all: {troubles:?}",
            risen(name)
        );
    }
    for name in expected.some {
        ensure!(risen(name) > 0, "{name} did not rise; in all: {troubles:?}");
    }
    let known = [expected.once, expected.some, expected.any].concat();
    for (name, by) in troubles {
        ensure!(
            known.contains(&name.as_str()),
            "{name} rose by {by}; in all: {troubles:?}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Counters, Expected, check, troubles};

    fn counters(pairs: &[(&str, u64)]) -> Counters {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn traffic_is_no_trouble_and_a_retransmission_is() {
        let before = counters(&[("sent_pkts", 5), ("timeouts", 2)]);
        let after = counters(&[("sent_pkts", 9), ("timeouts", 3)]);
        let found = troubles(&before, &after);
        assert_eq!(found, counters(&[("timeouts", 1)]));
        assert!(check(&found, Expected::default()).is_err());
    }

    #[test]
    fn what_a_case_made_itself_must_be_there_and_nothing_else() {
        let expected = Expected {
            once: &["rcvd_seq_err"],
            some: &["retransmitted_bytes"],
            any: &["completer_retry_err"],
        };
        let good = counters(&[("rcvd_seq_err", 1), ("retransmitted_bytes", 3077)]);
        assert!(check(&good, expected).is_ok());
        let twice = counters(&[("rcvd_seq_err", 2), ("retransmitted_bytes", 3077)]);
        assert!(check(&twice, expected).is_err());
        let missing = counters(&[("rcvd_seq_err", 1)]);
        assert!(check(&missing, expected).is_err());
        let more = counters(&[("rcvd_seq_err", 1), ("retransmitted_bytes", 1), ("timeouts", 1)]);
        assert!(check(&more, expected).is_err());
    }
}
