//! A request that has reached nobody who runs.
//!
//! Requests name a service and no process: on an address that several share, any of them gets it and passes it on. One
//! that is stopped keeps it. Between processes of one machine nothing else is lost, and nobody is disturbed; so there a
//! request without an answer is sent again soon, each time to another process by chance. These repetitions are none of
//! those that the protocol counts, and move none of its times. Who has the request, and whose program takes its time,
//! says so when it comes once more: with an MRA that asks for no more time than the peer has anyway.

use softroce_engine::Time;

use super::{Agent, Reach, State};
use crate::connection::Connection;

/// Early repetitions of a request, and the time between two: 1 s in all. With three of five processes stopped, one
/// request in a million needs more.
pub(crate) const REPEATS: u8 = 20;
const PAUSE_NS: u64 = 50_000_000;
/// Code of the time that an MRA asks for: the shortest.
const NO_MORE_TIME: u8 = 0;

impl Connection {
    /// When the clock next runs out, from now on.
    pub(crate) fn next_deadline(&self, now: Time) -> Option<Time> {
        let is_asking = matches!(self.state, State::ReqSent | State::SidrReqSent);
        let repeats = is_asking && self.peer.reach == Reach::Machine && self.clock.early_left > 0;
        let due = self.clock.due?;
        Some(if repeats { due.min(now + PAUSE_NS) } else { due })
    }
}

impl Agent {
    /// Whether the clock has run out for an early repetition alone, which is then sent.
    pub(super) fn repeats_early(&mut self, now: Time, id: u32) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        if connection.clock.due.is_none_or(|due| due <= now) {
            return false;
        }
        connection.clock.early_left = connection.clock.early_left.saturating_sub(1);
        if let Some(request) = &connection.last {
            self.counters.sent += 1;
            connection.attempts.sent = connection.attempts.sent.saturating_add(1);
            self.outbox
                .send(&connection.peer, connection.transaction_id, request);
        }
        let deadline = connection.next_deadline(now);
        self.set_deadline(id, deadline);
        true
    }

    /// Whether a request that comes once more has come before its sender can take it for lost; then the sender hears that
    /// it is here.
    pub(super) fn confirms_early(&mut self, now: Time, id: u32) -> bool {
        let Some(connection) = self.connections.get(&id) else {
            return false;
        };
        let is_early = connection.clock.due.is_some_and(|due| now < due);
        if connection.state != State::ReqReceived || !is_early {
            return false;
        }
        self.counters.sent += 1;
        self.outbox.send(
            &connection.peer,
            connection.transaction_id,
            &connection.mra(NO_MORE_TIME),
        );
        true
    }
}
