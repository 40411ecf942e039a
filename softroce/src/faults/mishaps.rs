//! What fault rules have made of one device's port, and what they do to its queue pairs: for whoever carries its packets.

use std::collections::VecDeque;

use softroce_engine::PortConfig;
use softroce_faults::{Event, Numbers};
use verbs_api::PortState;

use super::{Faults, Heard};

/// Things that happened to the device and that it has not been told of yet, at most.
const DISTURBANCES_MAX: usize = 64;

/// The events of fault rules, as one device hears of them.
#[derive(Debug, Default)]
pub struct Mishaps {
    is_down: bool,
    has_no_gids: bool,
    heard: Heard,
    disturbances: VecDeque<(Event, Numbers)>,
}

impl Mishaps {
    /// Hear of what has happened so far.
    pub fn hear(&mut self, faults: &Faults) {
        loop {
            match faults.next_event(&mut self.heard) {
                Err(()) => (self.is_down, self.has_no_gids) = (false, false),
                Ok(None) => return,
                Ok(Some((event, qpn))) => match event {
                    Event::PortDown => self.is_down = true,
                    Event::PortUp => self.is_down = false,
                    Event::GidsGone => self.has_no_gids = true,
                    Event::GidsBack => self.has_no_gids = false,
                    Event::QpFatal | Event::DeviceFatal => {
                        if self.disturbances.len() < DISTURBANCES_MAX {
                            self.disturbances.push_back((event, qpn));
                        }
                    }
                },
            }
        }
    }

    /// When there is something new to hear, ns on the rules' clock; at once if it is late.
    pub fn next_ns(&self, faults: &Faults) -> Option<u64> {
        faults.next_event_ns(&self.heard)
    }

    /// Whether the port is down: no packet passes, in or out.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// The port as the rules have made it.
    pub fn apply(&self, port: &mut PortConfig) {
        if self.is_down {
            port.state = PortState::Down;
        }
        if self.has_no_gids {
            port.gids.clear();
        }
    }

    /// Something that happened to queue pairs of these numbers.
    pub fn disturbance(&mut self) -> Option<(Event, Numbers)> {
        self.disturbances.pop_front()
    }
}
