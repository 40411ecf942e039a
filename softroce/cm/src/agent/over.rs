//! Requests that are over, as long as copies of them may still come.
//!
//! A copy is late when its request was sent again early and one of its takers was stopped meanwhile. It says nothing new:
//! it gets the answer that its request got, if that was a refusal, and else none. Were it taken for a request, the program
//! would hear of a peer that asks no more; and a queue pair that the peer has connected anew since would seem to be
//! connected once more, which ends its connection.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use roce_wire::cm::{Message, RejectReason, RejectedMessage};
use softroce_engine::Time;

use super::{Agent, Peer};

/// For so long: twice the time after which a peer usually sends a request again.
const KEPT_NS: u64 = 10_000_000_000;
/// So many; of more, those that have been over for longest are forgotten.
const KEPT_MAX: usize = 1 << 15;

/// A request as all its copies name it. Another one of the same peer's and number has another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asking {
    pub(super) asker: IpAddr,
    pub(super) remote_id: u32,
    pub(super) transaction_id: u64,
}

#[derive(Debug)]
struct End {
    at: Time,
    refusal: Option<Box<Message>>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Over {
    ends: BTreeMap<Asking, End>,
    /// Ends of the above by time, those included that a later one of the same request has replaced.
    order: VecDeque<(Time, Asking)>,
}

impl Over {
    /// The request is over; `last` was the last message about it.
    pub(super) fn note(&mut self, now: Time, asking: Asking, last: Option<Box<Message>>) {
        self.forget_old(now, KEPT_MAX - 1);
        let refusal = last.filter(|message| is_refusal(message));
        self.ends.insert(asking, End { at: now, refusal });
        self.order.push_back((now, asking));
    }

    /// Whether the request is over, and how it was refused.
    pub(super) fn find(&mut self, now: Time, asking: &Asking) -> Option<Option<&Message>> {
        self.forget_old(now, KEPT_MAX);
        self.ends.get(asking).map(|end| end.refusal.as_deref())
    }

    fn forget_old(&mut self, now: Time, most: usize) {
        while let Some((at, asking)) = self.order.front().copied()
            && (now.since(at) > KEPT_NS || self.order.len() > most)
        {
            self.order.pop_front();
            if self.ends.get(&asking).is_some_and(|end| end.at == at) {
                self.ends.remove(&asking);
            }
        }
    }
}

impl Agent {
    /// Whether a request is the copy of one that is over; then its sender gets the same refusal, if it was refused.
    /// `is_connected` tells whether its queue pair is connected by another one.
    pub(super) fn answers_late_copy(
        &mut self,
        now: Time,
        from: &Peer,
        asking: &Asking,
        is_connected: bool,
    ) -> bool {
        let Some(refusal) = self.over.find(now, asking) else {
            return false;
        };
        if may_come_again(refusal) && !is_connected {
            return false;
        }
        self.counters.duplicates += 1;
        if let Some(refusal) = refusal {
            self.counters.sent += 1;
            self.outbox.send(from, asking.transaction_id, refusal);
        }
        true
    }
}

fn is_refusal(message: &Message) -> bool {
    matches!(message, Message::Rej(rej) if rej.of_message == RejectedMessage::REQ)
}

/// Whether a refusal says that nobody listens. Such a request may be sent again on purpose, for a listener that has come
/// since.
fn may_come_again(refusal: Option<&Message>) -> bool {
    matches!(refusal, Some(Message::Rej(rej)) if rej.reason == RejectReason::INVALID_SERVICE_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(remote_id: u32) -> Asking {
        Asking {
            asker: [192, 0, 2, 1].into(),
            remote_id,
            transaction_id: 1,
        }
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut over = Over::default();
        for id in 0..KEPT_MAX as u32 + 5 {
            over.note(Time::ZERO, asking(id), None);
        }
        assert_eq!((over.ends.len(), over.order.len()), (KEPT_MAX, KEPT_MAX));
        assert!(over.find(Time::ZERO, &asking(4)).is_none());
        assert!(over.find(Time::ZERO, &asking(5)).is_some());
    }

    #[test]
    fn one_that_is_noted_again_is_kept_from_then_on() {
        let mut over = Over::default();
        over.note(Time::ZERO, asking(1), None);
        over.note(Time::ZERO + KEPT_NS, asking(1), None);
        assert!(over.find(Time::ZERO + 2 * KEPT_NS, &asking(1)).is_some());
        assert!(over.find(Time::ZERO + 2 * KEPT_NS + 1, &asking(1)).is_none());
        assert!(over.order.is_empty());
    }
}
