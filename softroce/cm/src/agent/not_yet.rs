//! A peer at which nobody listens *yet*.
//!
//! Programs that tell each other by other means to connect (`perftest -R`, qperf) count on the milliseconds that a card and
//! the kernel's manager need before a request leaves: their listener is made meanwhile. Here a request leaves at once. So
//! one that is answered "no such service" is sent again a few times, as a lost one would be, before the program hears of
//! it. The peer keeps nothing of a request that it refuses so, and to it the repetition is a first one.

use roce_wire::cm::{Message, RejectReason, SidrStatus};
use softroce_engine::Time;

use super::{Agent, State, early};

/// Times that a request is sent again, and how long after each refusal: 0.2 s in all.
pub(crate) const TRIES: u8 = 10;
const PAUSE_NS: u64 = 20_000_000;

impl Agent {
    /// Whether `answer` says that nobody listens, and it was not said too often: then the request will be sent again.
    pub(super) fn asks_again(&mut self, now: Time, id: u32, answer: &Message) -> bool {
        let is_unheard = match answer {
            Message::Rej(rej) => rej.reason == RejectReason::INVALID_SERVICE_ID,
            Message::SidrRep(rep) => rep.status == SidrStatus::UNSUPPORTED,
            _ => false,
        };
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let is_asking = matches!(connection.state, State::ReqSent | State::SidrReqSent);
        if !is_unheard || !is_asking {
            return false;
        }
        let clock = &mut connection.clock;
        let again_at = now + PAUSE_NS;
        if clock.due.is_some_and(|due| due <= again_at) {
            // The same answer once more, by the network or by somebody's ill will: it says nothing new before the request
            // is out again.
            return true;
        }
        if clock.unheard_left == 0 {
            return false;
        }
        clock.unheard_left -= 1;
        // This repetition is none of those for what is lost.
        clock.retries_left = clock.retries_left.saturating_add(1);
        clock.early_left = early::REPEATS;
        self.set_due(now, id, Some(again_at));
        true
    }
}
