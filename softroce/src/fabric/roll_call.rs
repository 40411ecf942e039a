//! Who of the members of an address runs.
//!
//! Requests of RDMA CM name no member: the kernel gives each to any, and that one passes it on. A member that is stopped,
//! or dead with a child that holds its descriptors, would keep its share of them. So now and then each member asks all
//! others for a sign of life, over their links. Who gives none for [`SILENCE_NS`] is asleep, and gets no requests until it
//! is heard of again. The more members there are, the more seldom each asks: everybody is asked about once a second.
//!
//! Sans-I/O.

use super::slice::{Slice, SliceSet};

/// From one question to the next, for each other member.
const PAUSE_NS: u64 = 1_000_000_000;
/// A thread gets a processor in that time even where many want one.
const SILENCE_NS: u64 = 1_000_000_000;

/// What to do when the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Ask these for a sign of life.
    Ask(SliceSet),
    /// These have given none.
    Silent(SliceSet),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nobody is there to be asked.
    Alone,
    /// Until the next question.
    Resting { until_ns: u64 },
    /// For answers.
    Waiting { until_ns: u64 },
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct RollCall {
    phase: Phase,
    members: SliceSet,
    /// Who has been asked and not been heard of since.
    awaited: SliceSet,
}

impl RollCall {
    pub(super) fn new() -> Self {
        RollCall {
            phase: Phase::Alone,
            members: SliceSet::EMPTY,
            awaited: SliceSet::EMPTY,
        }
    }

    /// There is another member.
    pub(super) fn joined(&mut self, now_ns: u64, slice: Slice) {
        self.members.insert(slice);
        if self.phase == Phase::Alone {
            self.rest(now_ns);
        }
    }

    /// A member has gone.
    pub(super) fn left(&mut self, slice: Slice) {
        self.members.remove(slice);
        self.awaited.remove(slice);
        if self.members.is_empty() {
            self.phase = Phase::Alone;
        }
    }

    /// A member has said something.
    pub(super) fn heard(&mut self, slice: Slice) {
        self.awaited.remove(slice);
    }

    /// When [`timeout`](RollCall::timeout) wants to be called.
    pub(super) fn next_timeout_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Alone => None,
            Phase::Resting { until_ns } | Phase::Waiting { until_ns } => Some(until_ns),
        }
    }

    /// Whether the time has come so long ago that this member has slept itself.
    pub(super) fn has_overslept(&self, now_ns: u64) -> bool {
        self.next_timeout_ns()
            .is_some_and(|at_ns| at_ns + SILENCE_NS < now_ns)
    }

    /// The time may have come; what has been said by now has been told.
    pub(super) fn timeout(&mut self, now_ns: u64) -> Option<Call> {
        match self.phase {
            Phase::Resting { until_ns } if until_ns <= now_ns => {
                self.awaited = self.members;
                self.phase = Phase::Waiting {
                    until_ns: now_ns + SILENCE_NS,
                };
                Some(Call::Ask(self.members))
            }
            Phase::Waiting { until_ns } if until_ns <= now_ns => {
                self.rest(now_ns);
                Some(Call::Silent(std::mem::take(&mut self.awaited)))
            }
            Phase::Alone | Phase::Resting { .. } | Phase::Waiting { .. } => None,
        }
    }

    fn rest(&mut self, now_ns: u64) {
        let until_ns = now_ns + PAUSE_NS * self.members.count() as u64;
        self.phase = Phase::Resting { until_ns };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn slice(number: u8) -> Slice {
        Slice::new(number).unwrap()
    }

    fn set<const N: usize>(numbers: [u8; N]) -> SliceSet {
        numbers.map(slice).into_iter().collect()
    }

    #[test]
    fn who_is_alone_asks_nobody_and_never_wakes() {
        let mut roll_call = RollCall::new();
        assert_eq!(roll_call.next_timeout_ns(), None);
        roll_call.joined(0, slice(1));
        roll_call.left(slice(1));
        assert_eq!(roll_call.next_timeout_ns(), None);
        assert_eq!(roll_call.timeout(100 * S), None);
    }

    #[test]
    fn who_is_a_second_late_has_slept() {
        let mut roll_call = RollCall::new();
        assert!(!roll_call.has_overslept(100 * S), "nothing was due");
        roll_call.joined(0, slice(1));
        assert!(!roll_call.has_overslept(2 * S));
        assert!(roll_call.has_overslept(2 * S + 1));
        roll_call.timeout(10 * S);
        assert!(!roll_call.has_overslept(10 * S), "awake again");
    }

    #[test]
    fn who_says_nothing_for_a_second_after_a_question_is_silent() {
        let mut roll_call = RollCall::new();
        for number in [1, 2, 3] {
            roll_call.joined(0, slice(number));
        }
        assert_eq!(roll_call.timeout(S - 1), None);
        assert_eq!(roll_call.timeout(S), Some(Call::Ask(set([1, 2, 3]))));
        roll_call.heard(slice(2));
        roll_call.left(slice(3));
        // Who comes meanwhile was not asked.
        roll_call.joined(S, slice(4));
        assert_eq!(roll_call.timeout(2 * S - 1), None);
        assert_eq!(roll_call.timeout(2 * S), Some(Call::Silent(set([1]))));
        // Three others: three seconds.
        assert_eq!(roll_call.next_timeout_ns(), Some(5 * S));
        assert_eq!(roll_call.timeout(5 * S), Some(Call::Ask(set([1, 2, 4]))));
        for number in [1, 2, 4] {
            roll_call.heard(slice(number));
        }
        assert_eq!(roll_call.timeout(6 * S), Some(Call::Silent(SliceSet::EMPTY)));
    }
}
