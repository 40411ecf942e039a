//! What is not as the protocol wants it.

use serde::Serialize;

use crate::report::End;

/// What a finding rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One packet, whatever others the capture lacks.
    Packet,
    /// A sequence of packets: not told where the capture is incomplete.
    Sequence,
}

/// Something that the protocol does not permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The requirement, as in `docs/spec/requirements.toml`.
    pub requirement: &'static str,
    /// Who has done it.
    pub by: End,
    /// The frames that show it, the decisive one last.
    pub frames: Vec<u64>,
    /// What was expected.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// How often this requirement was found broken by this end on this connection; the frames are of the first time.
    pub count: u64,
    /// What it rests on.
    pub scope: Scope,
}

/// Findings on one connection: the first of each kind in words, the others counted.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
}

/// Different sentences that are kept for one requirement and end.
const KINDS_MAX: usize = 4;

impl Findings {
    pub(crate) fn add(
        &mut self,
        (requirement, scope): (&'static str, Scope),
        by: End,
        frames: &[u64],
        expected: &str,
        seen: String,
    ) {
        let mut same = self
            .all
            .iter_mut()
            .filter(|finding| finding.requirement == requirement && finding.by == by);
        let mut kinds = 0;
        let mut last = None;
        for finding in &mut same {
            kinds += 1;
            if finding.expected == expected {
                finding.count += 1;
                return;
            }
            last = Some(finding);
        }
        if let (true, Some(last)) = (kinds >= KINDS_MAX, last) {
            last.count += 1;
            return;
        }
        self.all.push(Finding {
            requirement,
            by,
            frames: frames.iter().copied().filter(|frame| *frame > 0).collect(),
            expected: expected.to_owned(),
            seen,
            count: 1,
            scope,
        });
    }

    pub(crate) fn into_inner(self) -> Vec<Finding> {
        self.all
    }
}
