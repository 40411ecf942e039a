//! What the packets before tell of a packet: how often its PSN was seen, and where in its flow and message it stands.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use roce_wire::{Headers, Psn};

use crate::Direction;

/// Flows that are remembered; the one that began first is forgotten for a new one.
const FLOWS_MAX: usize = 1 << 14;
/// Different PSNs whose transmissions are counted, over all flows; those counted first are forgotten.
const PSNS_MAX: usize = 1 << 18;
/// Beginnings of messages that are remembered of a flow.
const MESSAGES_MAX: usize = 256;

/// A flow: packets one way, to one queue pair, for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Which way.
    pub direction: Direction,
    /// From.
    pub src: IpAddr,
    /// To.
    pub dst: IpAddr,
    /// To this queue pair.
    pub qpn: u32,
    /// Whether they answer: requests and responses to a queue pair number their packets apart.
    pub is_response: bool,
}

/// What the past tells of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How often its PSN has been seen in its flow by now: 1 is the first time.
    pub transmission: u32,
    /// Its PSN minus the first one that was seen of its flow.
    pub from_start: u32,
    /// Its PSN minus that of the packet with which its message began.
    pub in_message: u32,
}

#[derive(Debug)]
struct Flow {
    start: Psn,
    messages: VecDeque<Psn>,
}

/// The flows so far.
#[derive(Debug, Default)]
pub struct Flows {
    flows: BTreeMap<FlowKey, Flow>,
    flows_by_age: VecDeque<FlowKey>,
    counts: BTreeMap<(FlowKey, u32), u32>,
    counts_by_age: VecDeque<(FlowKey, u32)>,
}

impl Flows {
    /// Take note of a packet.
    pub fn note(&mut self, direction: Direction, src: IpAddr, dst: IpAddr, headers: &Headers) -> Seen {
        let info = headers.bth.opcode.info();
        let key = FlowKey {
            direction,
            src,
            dst,
            qpn: headers.bth.dest_qp.value(),
            is_response: info.is_some_and(|info| info.is_response()),
        };
        let psn = headers.bth.psn;
        let flow = self.flow(key, psn);
        let from_start = distance(psn, flow.start);
        if info.is_some_and(|info| info.position.starts_message()) && !flow.messages.contains(&psn) {
            if flow.messages.len() == MESSAGES_MAX {
                flow.messages.pop_front();
            }
            flow.messages.push_back(psn);
        }
        let began = flow.messages.iter().map(|start| distance(psn, *start)).min();
        Seen {
            transmission: self.count(key, psn),
            from_start,
            in_message: began.unwrap_or(from_start),
        }
    }

    fn flow(&mut self, key: FlowKey, psn: Psn) -> &mut Flow {
        if !self.flows.contains_key(&key) {
            if self.flows.len() == FLOWS_MAX
                && let Some(oldest) = self.flows_by_age.pop_front()
            {
                self.flows.remove(&oldest);
            }
            self.flows_by_age.push_back(key);
        }
        self.flows.entry(key).or_insert_with(|| Flow {
            start: psn,
            messages: VecDeque::new(),
        })
    }

    fn count(&mut self, key: FlowKey, psn: Psn) -> u32 {
        let key = (key, psn.value());
        if !self.counts.contains_key(&key) {
            if self.counts.len() == PSNS_MAX
                && let Some(oldest) = self.counts_by_age.pop_front()
            {
                self.counts.remove(&oldest);
            }
            self.counts_by_age.push_back(key);
        }
        let count = self.counts.entry(key).or_insert(0);
        *count += 1;
        *count
    }
}

/// How far ahead, 0 to 2^24 - 1.
fn distance(psn: Psn, of: Psn) -> u32 {
    (psn - of.value()).value()
}

#[cfg(test)]
mod tests {
    use roce_wire::{Bth, Opcode, Qpn};

    use super::*;

    #[test]
    fn a_packet_knows_its_place_in_flow_and_message_across_the_wrap_and_when_it_comes_again() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let mut flows = Flows::default();
        let mut note = |opcode, psn| {
            let headers = Headers::new(Bth::new(opcode, Qpn::new(7).unwrap(), Psn::new(psn)));
            let seen = flows.note(Direction::Out, address, address, &headers);
            (seen.transmission, seen.from_start, seen.in_message)
        };
        assert_eq!(note(Opcode::RC_SEND_ONLY, 0xff_fffe), (1, 0, 0));
        assert_eq!(note(Opcode::RC_SEND_FIRST, 0xff_ffff), (1, 1, 0));
        assert_eq!(note(Opcode::RC_SEND_MIDDLE, 0), (1, 2, 1));
        assert_eq!(note(Opcode::RC_SEND_LAST, 1), (1, 3, 2));
        assert_eq!(note(Opcode::RC_SEND_ONLY, 2), (1, 4, 0));
        // Sent again from the middle of the message.
        assert_eq!(note(Opcode::RC_SEND_MIDDLE, 0), (2, 2, 1));
        // Responses number apart.
        assert_eq!(note(Opcode::RC_ACKNOWLEDGE, 2), (1, 0, 0));
    }
}
