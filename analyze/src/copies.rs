//! Captures that hold a packet twice: once as it was sent, and once as it was received.

use std::collections::{HashMap, VecDeque};

use roce_wire::pcap::Direction;

use crate::reading::Sighting;

/// Packets that wait for their copy.
const WAITING_MAX: usize = 1 << 16;

/// Tells copies from packets that were sent again. Only where the capture says which way each packet went.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// How many of each were sent and have not been received, or (negative) the other way round.
    waiting: HashMap<u64, i32>,
    order: VecDeque<u64>,
}

impl Copies {
    /// Whether the other copy of this packet has been there. The two may come in either order, since a receiver can be
    /// faster than its peer's note of having sent.
    pub(crate) fn is_copy(&mut self, sighting: &Sighting<'_>) -> bool {
        let step = match sighting.direction {
            Some(Direction::Outbound) => 1,
            Some(Direction::Inbound) => -1,
            None => return false,
        };
        let waiting = self.waiting.entry(sighting.identity).or_insert(0);
        let is_copy = *waiting * step < 0;
        *waiting = waiting.saturating_add(step);
        if *waiting == 0 {
            self.waiting.remove(&sighting.identity);
        }
        if !is_copy {
            self.order.push_back(sighting.identity);
            if self.order.len() > WAITING_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.waiting.remove(&oldest);
            }
        }
        is_copy
    }
}
