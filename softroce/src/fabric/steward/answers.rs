//! Answers to a round of probes.

use super::super::slice::{SLICE_COUNT, Slice};

/// What the answers to probes tell about the program of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It lets probes find their positions.
    Attached,
    /// There is none.
    Missing,
    /// Nobody has answered: there is none, and a stopped member swallows the probes, or all are slow.
    Unknown,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Answers {
    /// The lowest position by which each slice answered.
    lowest: [Option<u8>; SLICE_COUNT],
    /// Which positions were answered for.
    answered: [bool; SLICE_COUNT],
}

impl Answers {
    pub(super) const NONE: Answers = Answers {
        lowest: [None; SLICE_COUNT],
        answered: [false; SLICE_COUNT],
    };

    /// The probe for `position` reached `slice`.
    pub(super) fn note(&mut self, position: u8, slice: Slice) {
        let lowest = &mut self.lowest[slice.index()];
        // A probe beyond the last socket goes anywhere, so the lowest position is the true one.
        *lowest = Some(lowest.map_or(position, |known| known.min(position)));
        self.answered[usize::from(position)] = true;
    }

    /// Where a member says that it sits.
    pub(super) fn of(&self, slice: Slice) -> Option<u8> {
        self.lowest[slice.index()]
    }

    /// Without a program the kernel sends all probes, which differ in nothing that it hashes, to one socket.
    pub(super) fn rule(&self, positions: u8, others: Others) -> Rule {
        let answerers = self.lowest.iter().flatten().count();
        let are_all_answered = self.answered[..usize::from(positions)]
            .iter()
            .all(|answered| *answered);
        match (answerers, others) {
            (0, _) => Rule::Unknown,
            (1, Others::Some) if are_all_answered => Rule::Missing,
            _ => Rule::Attached,
        }
    }
}

/// Whether there are other members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    None,
    Some,
}
