//! The state machine behind a set of rules.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use roce_wire::Headers;
use verbs_api::WcStatus;

use crate::flow::{Flows, Seen};
use crate::when::Progress;
use crate::{Direction, Effect, Event, Numbers, Rules, Verb, Work};

mod apply;

use apply::{Draft, PacketState};

/// Events that wait to be taken, at most.
const EVENTS_MAX: usize = 64;

/// The IP and UDP header fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// From.
    pub src: IpAddr,
    /// To.
    pub dst: IpAddr,
    /// UDP source port that the ICRC covers.
    pub source_port: u16,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 where it is left to the system.
    pub hop_limit: u8,
}

impl Way {
    /// From one address to another, with RoCE's port as source and nothing else said.
    pub fn between(src: IpAddr, dst: IpAddr) -> Way {
        Way {
            src,
            dst,
            source_port: roce_wire::ROCE_V2_PORT,
            traffic_class: 0,
            hop_limit: 0,
        }
    }
}

/// A packet that passes.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// When, ns on the clock of [`Injector::new`].
    pub now_ns: u64,
    /// Which way.
    pub direction: Direction,
    /// Its way.
    pub way: Way,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
}

/// A packet that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its way.
    pub way: Way,
    /// BTH to ICRC, to be sent as they are. A repaired ICRC is for the IPv4 identification 0.
    pub bytes: Vec<u8>,
    /// So much later, ns, from when it may go.
    pub delay_ns: u64,
    /// Not before so many others of its flow have passed,
    pub past: u32,
    /// or so much time, ns.
    pub overtaken_at_most_ns: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It passes as it is.
    Untouched,
    /// Only what is in the list passes, in its order; nothing if it is empty.
    Changed,
}

/// What a rule has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Its name.
    pub name: String,
    /// What it does to packets.
    pub effect: Effect,
    /// So much matched. What a rule's time leaves out does not count.
    pub matched: u64,
    /// So much was hit.
    pub hits: u64,
}

/// The state of a set of rules.
#[derive(Debug)]
pub struct Injector {
    rules: Arc<Rules>,
    loaded_at_ns: u64,
    asks_for_past: bool,
    flows: Flows,
    packets: Vec<PacketState>,
    verbs: Vec<Progress>,
    completions: Vec<Progress>,
    /// What of the events is to come, the next one first: when, which rule, what.
    timeline: VecDeque<(u64, usize, Event)>,
    event_hits: Vec<u64>,
    /// Events that rules about packets have raised.
    raised: VecDeque<(Event, Numbers, usize)>,
}

impl Injector {
    /// Rules that begin to count now.
    pub fn new(rules: Arc<Rules>, now_ns: u64) -> Injector {
        let mut number = 0;
        let mut progress = || {
            number += 1;
            Progress::new(rules.seed, number)
        };
        let packets = rules
            .packets
            .iter()
            .map(|_| PacketState::new(progress()))
            .collect();
        let verbs = rules.verbs.iter().map(|_| progress()).collect();
        let completions = rules.completions.iter().map(|_| progress()).collect();
        let mut timeline: Vec<(u64, usize, Event)> = Vec::new();
        for (index, rule) in rules.events.iter().enumerate() {
            timeline.push((rule.at_ns, index, rule.event));
            if let (Some(lasts_ns), Some(end)) = (rule.lasts_ns, rule.event.end()) {
                timeline.push((rule.at_ns.saturating_add(lasts_ns), index, end));
            }
        }
        timeline.sort_by_key(|(at, ..)| *at);
        Injector {
            asks_for_past: rules.packets.iter().any(|rule| rule.select.asks_for_past()),
            loaded_at_ns: now_ns,
            flows: Flows::default(),
            packets,
            verbs,
            completions,
            timeline: timeline.into(),
            event_hits: vec![0; rules.events.len()],
            raised: VecDeque::new(),
            rules,
        }
    }

    /// The rules.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.loaded_at_ns)
    }

    /// A packet passes. `out` is emptied, and filled when the packet does not pass as it is.
    pub fn judge(&mut self, passage: &Passage<'_>, out: &mut Vec<Parcel>) -> Judgement {
        out.clear();
        if self.rules.packets.is_empty() {
            return Judgement::Untouched;
        }
        let age_ns = self.age_ns(passage.now_ns);
        let (way, bytes) = (&passage.way, passage.bytes);
        let parsed: Option<Headers> = roce_wire::parse(bytes).ok().map(|packet| packet.headers);
        let seen = match (&parsed, self.asks_for_past) {
            (Some(headers), true) => self.flows.note(passage.direction, way.src, way.dst, headers),
            _ => Seen::default(),
        };
        let peer = match passage.direction {
            Direction::Out => way.dst,
            Direction::In => way.src,
        };
        let mut draft = Draft::new(passage);
        for (index, (rule, state)) in self.rules.packets.iter().zip(&mut self.packets).enumerate() {
            let applies = rule
                .select
                .matches(passage.direction, peer, parsed.as_ref(), &seen, bytes.len())
                && apply::can(&rule.action, parsed.as_ref(), bytes.len());
            if !applies || !state.is_hit(rule, age_ns, bytes) {
                continue;
            }
            if let Some(event) = state.act(rule, age_ns, parsed.as_ref(), &mut draft)
                && self.raised.len() < EVENTS_MAX
            {
                let qpn = match (passage.direction, &parsed) {
                    (Direction::In, Some(headers)) => Numbers::one(headers.bth.dest_qp.value().into()),
                    (Direction::In | Direction::Out, _) => Numbers::ANY,
                };
                self.raised.push_back((event, qpn, index));
            }
            if draft.is_gone() {
                break;
            }
        }
        draft.finish(out)
    }

    /// A verb is called: the error that it returns, and the rule's name.
    pub fn verb(&mut self, now_ns: u64, verb: Verb) -> Option<(i32, &str)> {
        let age_ns = self.age_ns(now_ns);
        let mut failed = None;
        for (rule, progress) in self.rules.verbs.iter().zip(&mut self.verbs) {
            // Rules behind the one that decides count no call: it did not happen.
            if failed.is_none() && rule.calls.contains(verb) && progress.hits(&rule.when, age_ns) {
                failed = Some((rule.errno, rule.name.as_str()));
            }
        }
        failed
    }

    /// A work request of this queue pair is about to complete with success: what it completes with instead, and the
    /// rule's name.
    pub fn completion(&mut self, now_ns: u64, qpn: u32, work: Work) -> Option<(WcStatus, &str)> {
        let age_ns = self.age_ns(now_ns);
        for (rule, progress) in self.rules.completions.iter().zip(&mut self.completions) {
            let matches = rule.qpn.contains(qpn.into()) && rule.work.is_none_or(|wanted| wanted == work);
            if matches && progress.hits(&rule.when, age_ns) {
                return Some((rule.status, &rule.name));
            }
        }
        None
    }

    /// When the next event is due, ns; at once for one that a packet has raised.
    pub fn next_event_ns(&self) -> Option<u64> {
        if !self.raised.is_empty() {
            return Some(self.loaded_at_ns);
        }
        let (at_ns, ..) = self.timeline.front()?;
        Some(self.loaded_at_ns.saturating_add(*at_ns))
    }

    /// The name of the rule whose event [`poll_event`](Self::poll_event) gives next, if one is due.
    pub fn due_rule(&self, now_ns: u64) -> Option<&str> {
        if let Some((_, _, index)) = self.raised.front() {
            return Some(&self.rules.packets[*index].name);
        }
        let age_ns = self.age_ns(now_ns);
        let (_, index, _) = self.timeline.front().filter(|(at, ..)| *at <= age_ns)?;
        Some(&self.rules.events[*index].name)
    }

    /// An event that is due, and the queue pairs that it concerns.
    pub fn poll_event(&mut self, now_ns: u64) -> Option<(Event, Numbers)> {
        if let Some((event, qpn, _)) = self.raised.pop_front() {
            return Some((event, qpn));
        }
        let age_ns = self.age_ns(now_ns);
        let (_, index, event) = *self.timeline.front().filter(|(at, ..)| *at <= age_ns)?;
        self.timeline.pop_front();
        let rule = &self.rules.events[index];
        self.event_hits[index] += u64::from(event == rule.event);
        Some((event, rule.qpn.clone()))
    }

    /// What each rule has matched and hit, in the order of [`tallies`](Self::tallies).
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let packets = self.packets.iter().map(|state| &state.progress);
        packets
            .chain(&self.verbs)
            .chain(&self.completions)
            .map(|progress| (progress.matched, progress.hits))
            .chain(self.event_hits.iter().map(|hits| (*hits, *hits)))
    }

    /// What each rule has done, in the order: packets, verbs, completions, events.
    pub fn tallies(&self) -> Vec<Tally> {
        let rules = &self.rules;
        let packets = rules
            .packets
            .iter()
            .map(|rule| (&rule.name, rule.action.effect()));
        let others = rules.verbs.iter().map(|rule| &rule.name);
        let others = others
            .chain(rules.completions.iter().map(|rule| &rule.name))
            .chain(rules.events.iter().map(|rule| &rule.name));
        let names = packets.chain(others.map(|name| (name, Effect::Other)));
        names
            .zip(self.counts())
            .map(|((name, effect), (matched, hits))| Tally {
                name: name.clone(),
                effect,
                matched,
                hits,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
