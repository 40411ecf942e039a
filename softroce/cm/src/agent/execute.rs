//! Does what the table of states says.

use roce_wire::cm::{Message, RejectReason, RejectedMessage};
use softroce_engine::Time;
use verbs_api::{Error, Result};

use super::asked::Wish;
use super::over::Asking;
use super::{Agent, Handshake, State};
use crate::connection::{Attempts, Connection, SERVICE_TIMEOUT};
use crate::event::{Event, Happened};
use crate::state::{Input, Send, Step, Tell, Timer, step};
use crate::timing::code_to_ns;

impl Agent {
    /// A new connection, with its first message.
    pub(super) fn start(&mut self, now: Time, mut connection: Connection, first: Message) {
        self.counters.sent += 1;
        self.outbox
            .send(&connection.peer, connection.transaction_id, &first);
        connection.last = Some(Box::new(first));
        connection.attempts.sent = 1;
        let id = connection.id;
        self.connections.insert(id, Box::new(connection));
        self.arm(now, id);
    }

    /// A command of the program's; `message` is what it may send.
    pub(super) fn command(
        &mut self,
        now: Time,
        id: u32,
        input: Input,
        message: Option<Message>,
    ) -> Result<()> {
        let state = self.state(id);
        match step(state, input) {
            Step::Refuse => Err(Error::invalid(format!(
                "the connection is not in a state for this ({state:?})"
            ))),
            Step::Ignore => Ok(()),
            Step::Do { send, tell, next } => {
                self.execute(now, id, send, message, next);
                if tell != Tell::Nothing
                    && let Some(happened) = happened(tell, None, None)
                {
                    self.tell(id, happened);
                }
                self.settle(now, id);
                Ok(())
            }
        }
    }

    /// A message of the peer's, or the clock. What it means for the state; whether it meant anything.
    pub(super) fn input(&mut self, now: Time, id: u32, input: Input, message: Option<&Message>) -> bool {
        let Step::Do { send, tell, next } = step(self.state(id), input) else {
            return false;
        };
        let connection = self.connections.get(&id);
        let handshake = connection.and_then(|connection| connection.handshake(now));
        self.execute(now, id, send, None, next);
        if let Some(happened) = happened(tell, message, handshake) {
            self.tell(id, happened);
        }
        self.settle(now, id);
        true
    }

    /// Send, and change the state.
    fn execute(&mut self, now: Time, id: u32, send: Send, command: Option<Message>, next: State) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let fresh = match send {
            Send::Nothing | Send::Again => None,
            Send::Command => command,
            Send::Mra => Some(connection.mra(SERVICE_TIMEOUT)),
            Send::Rej => Some(connection.rej(RejectReason::CONSUMER, &[], &[])),
            Send::RejTimeout => Some(connection.rej(RejectReason::TIMEOUT, &self.ca_guid.to_be_bytes(), &[])),
            Send::RejStale => {
                let mut rej = connection.rej(RejectReason::STALE_CONNECTION, &[], &[]);
                if let Message::Rej(rej) = &mut rej {
                    rej.of_message = RejectedMessage::REQ;
                }
                Some(rej)
            }
            Send::Dreq => Some(connection.dreq(&[])),
            Send::Drep => Some(connection.drep(&[])),
            Send::Apr => Some(connection.apr()),
            Send::SidrRefusal => Some(connection.sidr_refusal()),
        };
        if let Some(message) = &fresh {
            if let Message::Rep(rep) = message {
                connection.local_qpn = rep.local_qpn;
            }
            self.counters.sent += 1;
            self.outbox
                .send(&connection.peer, connection.transaction_id, message);
        } else if let (Send::Again, Some(last)) = (send, &connection.last) {
            self.counters.sent += 1;
            connection.attempts.sent = connection.attempts.sent.saturating_add(1);
            self.outbox
                .send(&connection.peer, connection.transaction_id, last);
        }
        // What answers a stray message is not what is sent again.
        if let (Some(message), true) = (fresh, !matches!(send, Send::Apr | Send::RejStale)) {
            // A plea for patience does not end what the peer waits for.
            if !matches!(message, Message::Mra(_)) {
                connection.attempts = Attempts { sent: 1, since: now };
            }
            connection.last = Some(Box::new(message));
        }
        let was = connection.state;
        if was.waits_for_program() && !next.waits_for_program() {
            self.no_longer_waits(id);
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.state = next;
        if was != next && next == State::RepReceived {
            connection.attempts.since = now;
        }
        if was != next {
            if send != Send::Again {
                connection.clock.retries_left = connection.clock.retries_max;
            }
            self.arm(now, id);
        } else if next.timer() == Timer::Retry && send == Send::Again {
            self.arm(now, id);
        }
    }

    /// One request less at its listener.
    pub(super) fn no_longer_waits(&mut self, id: u32) {
        let service = self
            .connections
            .get_mut(&id)
            .and_then(|connection| connection.listener.take());
        if let Some(listener) = service.and_then(|service| self.listeners.get_mut(&service)) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// What is gone leaves the tables.
    fn settle(&mut self, now: Time, id: u32) {
        if self.state(id) != State::Closed {
            return;
        }
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if let Some(deadline) = connection.clock.deadline {
            self.timers.remove(&(deadline, id));
        }
        let asking = Asking {
            asker: connection.peer.address,
            remote_id: connection.remote_id,
            transaction_id: connection.transaction_id,
        };
        let wish = self.asked.forget(asking.asker, asking.remote_id, id);
        let (guid, qpn) = (connection.remote_ca_guid, connection.remote_qpn.value());
        let remote_qp = (connection.peer.address, guid, qpn);
        if self.remote_qps.get(&remote_qp) == Some(&id) {
            self.remote_qps.remove(&remote_qp);
        }
        if wish == Some(Wish::Connection) {
            self.over.note(now, asking, connection.last);
        }
    }

    /// Set the clock for the state.
    pub(super) fn arm(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let clock = &mut connection.clock;
        let after_ns = match connection.state.timer() {
            Timer::Off => None,
            Timer::Retry => Some(clock.interval_ns),
            Timer::Patience => Some(clock.patience_ns),
            // An answer about datagrams is kept while the question may be repeated.
            Timer::Wait if connection.state == State::SidrAnswered => Some(3 * clock.interval_ns),
            Timer::Wait => Some(clock.timewait_ns),
        };
        self.set_due(now, id, after_ns.map(|after_ns| now + after_ns.max(1)));
    }

    /// When the time of the state is over.
    pub(super) fn set_due(&mut self, now: Time, id: u32, due: Option<Time>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.clock.due = due;
        let deadline = connection.next_deadline(now);
        self.set_deadline(id, deadline);
    }

    /// When the clock next runs out.
    pub(super) fn set_deadline(&mut self, id: u32, deadline: Option<Time>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut connection.clock.deadline, deadline);
        if let Some(before) = before {
            self.timers.remove(&(before, id));
        }
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, id));
        }
    }

    /// The clock of a connection has run out.
    pub(super) fn time_out(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.clock.deadline = None;
        if self.repeats_early(now, id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let input = match connection.state.timer() {
            Timer::Off => return,
            Timer::Wait => Input::Elapsed,
            Timer::Retry | Timer::Patience if connection.clock.retries_left > 0 => {
                connection.clock.retries_left -= 1;
                self.counters.retries += 1;
                Input::Overdue
            }
            Timer::Retry | Timer::Patience => Input::Exhausted,
        };
        self.input(now, id, input, None);
    }

    /// The peer has asked for so much patience.
    pub(super) fn have_patience(&mut self, id: u32, service_timeout: u8) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let clock = &mut connection.clock;
            clock.patience_ns = code_to_ns(service_timeout) + clock.interval_ns;
        }
    }

    fn tell(&mut self, id: u32, happened: Happened) {
        let owner = self.connections.get(&id).and_then(|connection| connection.owner);
        if let Some(owner) = owner {
            self.outbox.tell(Event { id, owner, happened });
        }
    }
}

/// The event for the owner.
fn happened(tell: Tell, message: Option<&Message>, handshake: Option<Handshake>) -> Option<Happened> {
    match tell {
        Tell::Nothing => None,
        Tell::Replied => match message {
            Some(Message::Rep(rep)) => Some(Happened::Replied(Box::new(*rep))),
            _ => None,
        },
        Tell::Established => Some(Happened::Established(match message {
            Some(Message::Rtu(rtu)) => rtu.private_data.to_vec(),
            _ => Vec::new(),
        })),
        Tell::Rejected => match message {
            Some(Message::Rej(rej)) => Some(Happened::Rejected {
                of_message: rej.of_message,
                reason: rej.reason,
                private_data: rej.private_data.to_vec(),
            }),
            _ => None,
        },
        Tell::Unreachable => handshake.map(Happened::Unreachable),
        Tell::Disconnected => Some(Happened::Disconnected(match message {
            Some(Message::Dreq(dreq)) => dreq.private_data.to_vec(),
            Some(Message::Drep(drep)) => drep.private_data.to_vec(),
            _ => Vec::new(),
        })),
        Tell::TimewaitExit => Some(Happened::TimewaitExit),
        Tell::Resolved => match message {
            Some(Message::SidrRep(rep)) => Some(Happened::Resolved(Box::new(*rep))),
            _ => None,
        },
    }
}
