//! A real wire between two ends, in the hands of a case: what the simulator does in virtual time, done in real time.
//!
//! [`Traffic`] is what every wire knows: it is asked about each packet, and remembers it. How packets are taken off the
//! wire and put onto it differs: softroce's own devices let themselves be [watched](loopback) and need no right; between
//! any two devices on network interfaces stands a [bridge](bridge).

use std::net::IpAddr;
use std::sync::Arc;

use roce_wire::icrc::{self, Flow};

use crate::testbed::{Network, Passing, Rule, Side};

pub(super) mod bridge;
pub(super) mod loopback;
mod socket;
mod traffic;

pub(super) use traffic::Traffic;
use traffic::{Moved, Weather};

/// The UDP source port of forged packets where nothing else is prescribed.
const FORGED_PORT: u16 = 0xC000;

/// Puts packets onto the wire that nobody sent.
pub(super) trait Forger {
    /// Addresses and ports of what is forged to this end.
    fn flow(&self, to: Side) -> Flow;
    /// Have `bytes` (BTH to ICRC) arrive at this end as from its peer.
    fn send(&mut self, to: Side, bytes: &[u8]) -> std::io::Result<()>;
}

/// A real wire as cases see it.
pub(super) struct Wire<F> {
    pub(super) traffic: Arc<Traffic>,
    forger: F,
}

impl<F: Forger> Wire<F> {
    pub(super) fn new(traffic: Arc<Traffic>, forger: F) -> Self {
        Wire { traffic, forger }
    }

    fn forge(&mut self, to: Side, bytes: &[u8]) {
        let flow = self.forger.flow(to);
        // What the system refuses (a datagram without a byte has no place in a frame) is a lost packet, and the case sees
        // that nothing comes of it.
        let moved = match self.forger.send(to, bytes) {
            Ok(()) => Moved::Forged,
            Err(_) => Moved::Refused,
        };
        self.traffic.keep_forged(&flow, bytes, moved);
    }
}

impl<F: Forger> Network for Wire<F> {
    fn set_rule(&mut self, rule: Rule) {
        self.traffic.set_rule(Some(rule));
    }

    fn clear_rule(&mut self) {
        self.traffic.set_rule(None);
    }

    fn set_weather(&mut self, loss: u32, duplication: u32, reordering: u32) {
        self.traffic.set_weather(Weather {
            loss,
            duplication,
            reordering,
        });
    }

    fn take_trace(&mut self) -> Vec<Passing> {
        self.traffic.take_trace()
    }

    fn inject_numbered(&mut self, to: Side, udp_payload: &[u8], identification: u16) {
        let mut bytes = udp_payload.to_vec();
        icrc::seal(&self.forger.flow(to), identification, &mut bytes);
        self.forge(to, &bytes);
    }

    fn inject_raw(&mut self, to: Side, udp_payload: &[u8]) {
        self.forge(to, udp_payload);
    }
}

/// From one address to another, to RoCE's port.
fn flow(src: IpAddr, dst: IpAddr, source_port: u16) -> Flow {
    Flow {
        src,
        dst,
        source_port,
        dest_port: roce_wire::ROCE_V2_PORT,
    }
}
