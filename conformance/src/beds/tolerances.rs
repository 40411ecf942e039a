//! Documented deviations of devices that are not ours: one file for each kind of device, in `conformance/tolerances`.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use verbs_api::Context;

/// All files, as they are part of the build.
const FILES: &[&str] = &[
    include_str!("../../tolerances/rxe-6.1.toml"),
    include_str!("../../tolerances/rxe-6.12.toml"),
    include_str!("../../tolerances/siw.toml"),
];

/// The deviations of one kind of device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerances {
    /// Its name, for people.
    pub device: String,
    /// What `ibv_query_device` says of it.
    pub vendor_id: u32,
    /// The kernel's release begins with it; empty for every kernel.
    #[serde(default)]
    pub kernel: String,
    /// The deviations.
    #[serde(default)]
    pub tolerance: Vec<Tolerance>,
}

/// One deviation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// The case in which it shows.
    pub case: String,
    /// The requirement that is not met.
    pub requirement: String,
    /// Exactly what the case reports, with status, opcode and numbers; `*` stands for what differs from run to run.
    pub seen: String,
    /// The log or capture that shows it.
    pub shown_by: String,
    /// Why it is tolerated.
    pub why: String,
}

/// Every file.
pub fn all() -> &'static [Arc<Tolerances>] {
    static ALL: LazyLock<Vec<Arc<Tolerances>>> = LazyLock::new(|| {
        FILES
            .iter()
            .map(|file| Arc::new(toml::from_str(file).expect("a test reads the files of tolerances")))
            .collect()
    });
    &ALL
}

impl Tolerances {
    /// Those of this device on this kernel, if there is a file.
    pub(super) fn of<C: Context>(context: &C) -> Option<Arc<Tolerances>> {
        let vendor_id = context.query_device().ok()?.vendor_id;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        all()
            .iter()
            .find(|each| each.vendor_id == vendor_id && is_release(&each.kernel, &kernel))
            .cloned()
    }

    /// Why the case `id` may report `seen`.
    pub(super) fn documented(&self, id: &str, seen: &str) -> Option<String> {
        let found = self.of_case(id).find(|each| matches(&each.seen, seen))?;
        Some(found.why.clone())
    }

    /// What is documented of the case `id`, when it reports something else.
    pub(super) fn otherwise(&self, id: &str) -> Option<String> {
        self.of_case(id).map(|each| each.seen.clone()).next()
    }

    /// The deviations of one case.
    pub fn of_case<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Tolerance> {
        self.tolerance.iter().filter(move |each| each.case == id)
    }
}

/// Whether the kernel's `release` is of the series `series`: 6.1 is not 6.12.
fn is_release(series: &str, release: &str) -> bool {
    match release.strip_prefix(series) {
        Some(rest) => series.is_empty() || !rest.starts_with(|next: char| next.is_ascii_digit()),
        None => false,
    }
}

/// Whether `text` is what `pattern` says, `*` being any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_nothing_else_does() {
        assert!(matches("seen RemOpErr", "seen RemOpErr"));
        assert!(!matches("seen RemOpErr", "seen RemOpErrs"));
        assert!(matches("key * of *, seen 3", "key 0x12 of 0x34, seen 3"));
        assert!(!matches("key * of *, seen 3", "key 0x12 of 0x34, seen 4"));
        assert!(!matches("a*b", "a"));
    }

    #[test]
    fn a_series_of_kernels_is_not_another_that_begins_alike() {
        assert!(is_release("6.1", "6.1.0-57-amd64\n"));
        assert!(!is_release("6.1", "6.12.1"));
        assert!(is_release("6.12", "6.12.1"));
        assert!(is_release("", "6.5"));
    }
}
