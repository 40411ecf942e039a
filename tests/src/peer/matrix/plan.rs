//! The cases in their order, the same for both ends.

use std::fmt;

use anyhow::Result;
use verbs_api::{Provider, QpType};

use super::atomics::{self, Atomic};
use super::bench::Bench;
use super::datagrams::{self, Datagram};
use super::link::Terms;
use super::refusals::{self, Fault};
use super::talk::Ending;
use super::transfers::{self, Operation};
use super::troubles::{self, Lost};
use crate::peer::Role;

/// What is played, and who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    story: Story,
    requester: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    Reliable(Operation),
    Atomic(Atomic),
    /// The packet numbers wrap within the messages.
    Wrap(Operation),
    BothWays,
    Unreliable(Operation),
    Datagram(Datagram),
    NotReady,
    Lost(Lost),
    Refused(Fault),
}

/// The caller's and the listener's first messages of more than two packets pass the highest packet number.
const BEFORE_THE_WRAP: u32 = 0xff_ff98;

/// The plan.
pub fn all() -> Vec<Case> {
    let mut stories: Vec<Story> = Operation::ALL.map(Story::Reliable).into();
    stories.extend(Atomic::ALL.map(Story::Atomic));
    stories.extend([Operation::Send, Operation::Write, Operation::Read].map(Story::Wrap));
    stories.push(Story::BothWays);
    stories.extend([Operation::Send, Operation::Write].map(Story::Unreliable));
    stories.extend(Datagram::ALL.map(Story::Datagram));
    stories.push(Story::NotReady);
    stories.extend(Lost::ALL.map(Story::Lost));
    stories.extend(Fault::all().into_iter().map(Story::Refused));
    let both = [Role::Listener, Role::Caller];
    stories
        .into_iter()
        .flat_map(|story| both.map(|requester| Case { story, requester }))
        // Where both ask at once, once is enough.
        .filter(|case| case.story != Story::BothWays || case.requester == Role::Listener)
        .collect()
}

/// Plays this end's part of a case.
pub fn run<P: Provider>(case: Case, bench: &mut Bench<'_, P>) -> Result<Ending> {
    let asks = case.requester;
    match case.story {
        Story::Reliable(operation) => transfers::run(bench, QpType::Rc, operation, asks, Terms::default()),
        Story::Unreliable(operation) => transfers::run(bench, QpType::Uc, operation, asks, Terms::default()),
        Story::Wrap(operation) => {
            let terms = Terms {
                psn: BEFORE_THE_WRAP,
                ..Terms::default()
            };
            transfers::run(bench, QpType::Rc, operation, asks, terms)
        }
        Story::Atomic(atomic) => atomics::run(bench, atomic, asks),
        Story::BothWays => transfers::both_ways(bench),
        Story::Datagram(datagram) => datagrams::run(bench, datagram, asks),
        Story::NotReady => troubles::not_ready(bench, asks),
        Story::Lost(lost) => troubles::lost(bench, lost, asks),
        Story::Refused(fault) => refusals::run(bench, fault, asks),
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.story {
            Story::Reliable(operation) => format!("RC {}", operation.name()),
            Story::Atomic(atomic) => format!("RC {}", atomic.name()),
            Story::Wrap(operation) => format!("RC {}, packet numbers wrap", operation.name()),
            Story::BothWays => "RC SEND, WRITE, READ both ways".to_owned(),
            Story::Unreliable(operation) => format!("UC {}", operation.name()),
            Story::Datagram(datagram) => format!("UD {}", datagram.name()),
            Story::NotReady => "RNR, then a receive".to_owned(),
            Story::Lost(lost) => lost.name().to_owned(),
            Story::Refused(fault) => fault.name(),
        };
        let asks = match (self.story, self.requester) {
            (Story::BothWays, _) => "both",
            (_, Role::Listener) => "listener",
            (_, Role::Caller) => "caller",
        };
        f.pad(&format!("{what} | {asks}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{BEFORE_THE_WRAP, all};

    #[test]
    fn names_of_cases_tell_them_apart() {
        let names: HashSet<_> = all().iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn both_ends_packet_numbers_wrap_within_a_large_message() {
        let packets_of_the_smallest_large_message = (1 << 20) / 4096;
        for first in [BEFORE_THE_WRAP, (BEFORE_THE_WRAP + 100) & 0xff_ffff] {
            assert!(first + packets_of_the_smallest_large_message > 0xff_ffff);
        }
    }
}
