//! What waits for the driver: datagrams and events.

use std::collections::VecDeque;

use roce_wire::cm::Message;

use crate::agent::Peer;
use crate::event::{Event, Outgoing};

/// Datagrams that may wait. A driver drains after every call, so this bounds a driver that does not.
const DATAGRAMS_MAX: usize = 4096;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    datagrams: VecDeque<Outgoing>,
    events: VecDeque<Event>,
}

impl Outbox {
    /// A message to a peer. Beyond the bound it is lost, as the network loses messages.
    pub(crate) fn send(&mut self, peer: &Peer, transaction_id: u64, message: &Message) {
        if self.datagrams.len() < DATAGRAMS_MAX {
            self.datagrams.push_back(Outgoing {
                src: peer.own,
                dst: peer.address,
                traffic_class: peer.traffic_class,
                hop_limit: peer.hop_limit,
                dest_qpn: peer.qpn,
                mad: message.to_mad(transaction_id),
            });
        }
    }

    /// At most a few for each connection, and connections are bounded.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.datagrams.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Nobody wants to hear of this connection any more.
    pub(crate) fn forget(&mut self, id: u32) {
        self.events.retain(|event| event.id != id);
    }
}
