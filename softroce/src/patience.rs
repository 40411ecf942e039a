//! How long acknowledgements may wait for more to acknowledge, while a program polls.
//!
//! An acknowledgement costs a datagram, and a peer that goes on sending without it does not miss it: in a conversation
//! of small messages one for several halves the datagrams. A peer that does miss it, because it waits for its
//! completion before it sends again, must not wait long. Which kind of peer it is shows in what arrives meanwhile: a
//! further request, or silence. Trust is won slowly and lost at once, the more slowly the more often it was misplaced.

use softroce_engine::Time;

/// Acknowledgements leave after so long at the latest, ns, even when trust is complete.
const WAITS_NS: u64 = 25_000;
/// Requests in a row that came without the acknowledgement of the one before, for the first trust.
const FIRST_PROOFS: u32 = 8;
/// The same after trust was misplaced again and again.
const MOST_PROOFS: u32 = 1 << 16;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Requests in a row that came without the acknowledgement of the one before.
    proofs: u32,
    /// As many are needed.
    needed: u32,
    /// Since when acknowledgements wait.
    since: Option<Time>,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            proofs: 0,
            needed: FIRST_PROOFS,
            since: None,
        }
    }
}

impl Patience {
    /// A round at `now` began with acknowledgements waiting, and `goes_on` if requests came on top of them. Whether they
    /// may wait on.
    pub(crate) fn lasts(&mut self, now: Time, goes_on: bool) -> bool {
        let waited_ns = now.since(*self.since.get_or_insert(now));
        let trusts = self.proofs >= self.needed;
        if goes_on {
            self.proofs = self.proofs.saturating_add(1);
        }
        if trusts && waited_ns < WAITS_NS {
            return true;
        }
        if trusts && !goes_on {
            // The peer has waited in vain.
            self.proofs = 0;
            self.needed = (self.needed * 8).min(MOST_PROOFS);
        }
        self.since = None;
        false
    }

    /// Acknowledgements begin to wait at `now`.
    pub(crate) fn begins(&mut self, now: Time) {
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    /// The peer goes on without acknowledgements until it is trusted.
    fn trusting(needed: u32) -> Patience {
        let mut patience = Patience::default();
        for _ in 0..needed {
            assert!(!patience.lasts(at(0), true));
        }
        patience.begins(at(100));
        patience
    }

    #[test]
    fn acknowledgements_leave_with_the_next_poll_for_a_peer_that_waits_for_them() {
        let mut patience = Patience::default();
        for round in 0..1000 {
            patience.begins(at(round * 10));
            assert!(!patience.lasts(at(round * 10 + 1), false));
        }
    }

    #[test]
    fn a_peer_that_goes_on_without_them_gets_one_for_several() {
        let mut patience = trusting(FIRST_PROOFS);
        assert!(patience.lasts(at(101), false));
        assert!(patience.lasts(at(110), true));
        assert!(!patience.lasts(at(125), true));
        patience.begins(at(130));
        assert!(patience.lasts(at(131), false), "trust stays");
    }

    #[test]
    fn trust_that_was_misplaced_takes_longer_to_win_again() {
        let mut patience = trusting(FIRST_PROOFS);
        assert!(!patience.lasts(at(125), false));
        for _ in 0..FIRST_PROOFS * 8 {
            assert!(!patience.lasts(at(200), true));
        }
        patience.begins(at(300));
        assert!(patience.lasts(at(301), false));
    }
}
