//! How long an acknowledgement may wait for more messages to acknowledge with it.
//!
//! An acknowledgement costs a datagram, as dear as a small message. A peer that goes on sending without it (a
//! conversation of small messages) does not miss it: one for several will do. A peer that waits for its completion
//! before it sends again must not be kept waiting. Which kind it is shows only when an acknowledgement waits: the peer
//! sends on, or falls silent. So one waits now and then as a trial; while the peer goes on, all wait a little, and
//! when it fell silent, none does for a while, which grows with every failure.
#![forbid(unsafe_code)]

use crate::Time;

/// One acknowledgement for so many messages at most.
const MESSAGES_MAX: u32 = 8;
/// The longest wait, ns.
const WAIT_NS: u64 = 100_000;
/// A peer that sends nothing for so long, ns, waits for its acknowledgement.
const SILENCE_NS: u64 = 40_000;
/// Messages acknowledged at once before the first trial, and after a failure that follows successes.
const PAUSE_MIN: u32 = 32;
/// The same after failures only.
const PAUSE_MAX: u32 = 1024;
/// Successes that are remembered.
const TRUST_MAX: u32 = 8;
/// So many of them make up for a failure: the machine may have given the processor to others.
const TRUST_A_FAILURE: u32 = 4;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Messages to be acknowledged at once before the next trial.
    until_trial: u32,
    /// How many they will be after the next failure.
    pause: u32,
    /// Successes not made void by failures.
    trust: u32,
    wait: Option<Wait>,
}

/// An acknowledgement that waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    messages: u32,
    /// When the last message arrived.
    last: Time,
    /// The end, come what may.
    end: Time,
}

impl Wait {
    fn ripe(&self) -> Time {
        if self.messages >= MESSAGES_MAX {
            return self.last;
        }
        self.end.min(self.last + SILENCE_NS)
    }
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            until_trial: PAUSE_MIN,
            pause: PAUSE_MIN,
            trust: 0,
            wait: None,
        }
    }
}

impl Patience {
    /// A message arrived at `now`, and no acknowledgement waits. When its own should leave.
    pub(super) fn begins(&mut self, now: Time) -> Time {
        if self.until_trial > 0 {
            self.until_trial -= 1;
            self.wait = None;
            return now;
        }
        let wait = Wait {
            messages: 1,
            last: now,
            end: now + WAIT_NS,
        };
        self.wait = Some(wait);
        wait.ripe()
    }

    /// A further message arrived at `now` while an acknowledgement waits. When one for both should leave.
    pub(super) fn goes_on(&mut self, now: Time) -> Time {
        let Some(wait) = &mut self.wait else { return now };
        wait.messages += 1;
        wait.last = now;
        wait.ripe()
    }

    /// The acknowledgement leaves at `now`.
    pub(super) fn ends(&mut self, now: Time) {
        let Some(wait) = self.wait.take() else { return };
        if now >= wait.last + SILENCE_NS {
            if let Some(left) = self.trust.checked_sub(TRUST_A_FAILURE) {
                self.trust = left;
                return;
            }
            self.trust = 0;
            self.until_trial = self.pause;
            self.pause = (self.pause * 4).min(PAUSE_MAX);
        } else if now >= wait.ripe() {
            self.trust = (self.trust + 1).min(TRUST_MAX);
            self.pause = (self.pause / 2).max(PAUSE_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    /// Patience whose next acknowledgement waits.
    fn ready() -> Patience {
        let mut patience = Patience::default();
        for _ in 0..PAUSE_MIN {
            assert_eq!(patience.begins(at(0)), at(0));
            patience.ends(at(0));
        }
        patience
    }

    #[test]
    fn a_peer_that_goes_on_gets_one_acknowledgement_for_eight_messages() {
        let mut patience = ready();
        for round in 0..100 {
            let start = 100 * round;
            assert_eq!(patience.begins(at(start)), at(start + 40));
            for message in 1..7 {
                let now = start + 8 * message;
                assert_eq!(patience.goes_on(at(now)), at(now + 40));
            }
            assert_eq!(patience.goes_on(at(start + 56)), at(start + 56));
            patience.ends(at(start + 57));
        }
    }

    #[test]
    fn no_acknowledgement_waits_longer_than_the_longest_wait() {
        let mut patience = ready();
        patience.begins(at(0));
        for message in 1..4 {
            patience.goes_on(at(25 * message));
        }
        assert_eq!(patience.goes_on(at(90)), at(100));
    }

    #[test]
    fn a_peer_that_has_gone_on_often_may_fall_silent_now_and_then() {
        let mut patience = ready();
        for round in 0..100 {
            let start = 1000 * round;
            patience.begins(at(start));
            patience.goes_on(at(start + 30));
            let ripe = patience.goes_on(at(start + 70));
            if round % 5 == 4 {
                patience.ends(at(start + 110));
                let now = at(start + 200);
                assert!(patience.begins(now) > now, "round {round}");
            } else {
                patience.ends(ripe);
            }
        }
    }

    #[test]
    fn a_peer_that_waits_for_each_acknowledgement_is_kept_waiting_ever_more_seldom() {
        let mut patience = Patience::default();
        let mut kept_waiting = Vec::new();
        for message in 0..20_000 {
            let now = at(100 * message);
            let ripe = patience.begins(now);
            if ripe > now {
                kept_waiting.push(message);
            }
            patience.ends(ripe);
        }
        assert_eq!(kept_waiting[..4], [32, 65, 194, 707]);
        assert!(
            kept_waiting[3..].windows(2).all(|w| w[1] - w[0] == 1025),
            "{kept_waiting:?}"
        );
    }

    #[test]
    fn an_acknowledgement_that_left_early_for_another_reason_proves_nothing() {
        let mut patience = ready();
        patience.begins(at(0));
        patience.ends(at(5));
        assert_eq!(patience.begins(at(6)), at(46));
    }
}
