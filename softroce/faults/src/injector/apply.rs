//! What a rule's action makes of a packet.

use std::collections::VecDeque;

use roce_wire::Headers;
use roce_wire::icrc::{self, Verdict};

use crate::action::HISTORY_MAX;
use crate::forge::{flow, forge, seal};
use crate::when::Progress;
use crate::{Action, Corruption, Event, Forgery, Icrc, Judgement, PacketRule, Parcel, Passage, Place, Way};

/// "Congestion experienced" in the two lowest bits of the traffic class.
const ECN_CE: u8 = 0b11;
/// Ethernet with its gap, IP and UDP: what a line carries besides a packet.
const OVERHEAD_BYTES: u64 = 66;
/// Copies of a packet, at most, and packets injected with one.
const COPIES_MAX: u32 = 64;

/// What a rule about packets remembers.
#[derive(Debug)]
pub(super) struct PacketState {
    pub(super) progress: Progress,
    /// A black hole is open until then, ns since the rules were loaded.
    hole_until_ns: Option<u64>,
    /// When the line of limited rate is free again.
    free_at_ns: u64,
    /// What matched before, for stale duplicates.
    history: VecDeque<Vec<u8>>,
    /// The one to be repeated now.
    stale: Option<Vec<u8>>,
}

/// Whether the action has something to act on in such a packet.
pub(super) fn can(action: &Action, headers: Option<&Headers>, len: usize) -> bool {
    match action {
        Action::Corrupt {
            what: Corruption::Field(field, _),
            ..
        } => headers.is_some_and(|headers| field.is_in(headers)),
        Action::Corrupt { .. } => len > roce_wire::ICRC_LEN,
        Action::Truncate { to_bytes, .. } => *to_bytes < len,
        Action::Inject { .. } => headers.is_some(),
        Action::Drop
        | Action::Duplicate(_)
        | Action::Delay { .. }
        | Action::Reorder { .. }
        | Action::MarkCe
        | Action::Blackhole { .. }
        | Action::RateLimit { .. }
        | Action::Raise(_) => true,
    }
}

impl PacketState {
    pub(super) fn new(progress: Progress) -> Self {
        PacketState {
            progress,
            hole_until_ns: None,
            free_at_ns: 0,
            history: VecDeque::new(),
            stale: None,
        }
    }

    /// A packet has matched: whether it is hit.
    pub(super) fn is_hit(&mut self, rule: &PacketRule, age_ns: u64, bytes: &[u8]) -> bool {
        if self.hole_until_ns.is_some_and(|until| age_ns < until) {
            self.progress.matched += 1;
            self.progress.hits += 1;
            return true;
        }
        let Action::Inject {
            packet: Forgery::StaleDuplicate { age },
            ..
        } = rule.action
        else {
            return self.progress.hits(&rule.when, age_ns);
        };
        let age = age.clamp(1, HISTORY_MAX) as usize;
        let old = (self.history.len() == age)
            .then(|| self.history.pop_front())
            .flatten();
        self.history.push_back(bytes.to_vec());
        self.stale = old;
        self.stale.is_some() && self.progress.hits(&rule.when, age_ns)
    }

    /// Do it; an event that it causes.
    pub(super) fn act(
        &mut self,
        rule: &PacketRule,
        age_ns: u64,
        headers: Option<&Headers>,
        draft: &mut Draft<'_>,
    ) -> Option<Event> {
        match &rule.action {
            Action::Drop => draft.drop(),
            Action::Duplicate(copies) => draft.copy(*copies),
            Action::Delay { nanos, jitter_ns } => {
                let jitter = self.progress.below(jitter_ns.saturating_add(1));
                draft.delay(nanos.saturating_add(jitter));
            }
            Action::Reorder { past, at_most_ns } => draft.let_pass(*past, *at_most_ns),
            Action::Corrupt { what, icrc } => self.corrupt(*what, *icrc, headers, draft),
            Action::Truncate { to_bytes, icrc } => draft.change(*icrc, |bytes| bytes.truncate(*to_bytes)),
            Action::MarkCe => draft.edit().way.traffic_class |= ECN_CE,
            Action::Blackhole { lasts_ns } => {
                let until = lasts_ns.map_or(u64::MAX, |lasts| age_ns.saturating_add(lasts));
                self.hole_until_ns.get_or_insert(until);
                draft.drop();
            }
            Action::RateLimit {
                bits_per_second,
                queue_bytes,
            } => match self.line_up(age_ns, draft.len(), *bits_per_second, *queue_bytes) {
                Some(wait_ns) => draft.delay(wait_ns),
                None => draft.drop(),
            },
            Action::Inject { packet, place, qpn } => {
                let forged = match packet {
                    Forgery::StaleDuplicate { .. } => self.stale.take(),
                    Forgery::Nak(_) | Forgery::Rnr(_) | Forgery::GhostAck { .. } | Forgery::Cnp => {
                        headers.and_then(|headers| forge(*packet, &draft.way(), headers, *qpn))
                    }
                };
                if let Some(bytes) = forged {
                    draft.inject(bytes, *place);
                }
            }
            Action::Raise(event) => return Some(*event),
        }
        None
    }

    fn corrupt(&mut self, what: Corruption, icrc: Icrc, headers: Option<&Headers>, draft: &mut Draft<'_>) {
        match what {
            Corruption::Icrc => draft.break_icrc(),
            Corruption::Bit(bit) => draft.change(icrc, |bytes| flip(bytes, bit as usize)),
            Corruption::AnyBit => {
                let bit = self.progress.below(8 * draft.len() as u64) as usize;
                draft.change(icrc, |bytes| flip(bytes, bit));
            }
            Corruption::Field(field, change) => {
                let Some(headers) = headers else { return };
                draft.change(icrc, |bytes| field.change(headers, bytes, change));
            }
        }
    }

    /// How long a packet waits for the line and then takes; `None` when too many wait already.
    fn line_up(&mut self, age_ns: u64, len: usize, rate: u64, queue_bytes: u64) -> Option<u64> {
        let rate = u128::from(rate.max(1));
        let start_ns = self.free_at_ns.max(age_ns);
        let waiting_bytes = u128::from(start_ns - age_ns) * rate / 8_000_000_000;
        if waiting_bytes > u128::from(queue_bytes) {
            return None;
        }
        let bits = 8 * (len as u64 + OVERHEAD_BYTES);
        let takes_ns = u128::from(bits) * 1_000_000_000 / rate;
        self.free_at_ns = start_ns.saturating_add(takes_ns.min(u64::MAX.into()) as u64);
        Some(self.free_at_ns - age_ns)
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    let bit = bit % (8 * bytes.len().max(1));
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 0x80 >> (bit % 8);
    }
}

/// A packet as the rules leave it, one after the other.
pub(super) struct Draft<'a> {
    passage: &'a Passage<'a>,
    /// The packet, once it is no longer as it was.
    edited: Option<Parcel>,
    copies: u32,
    before: Vec<Parcel>,
    after: Vec<Parcel>,
    is_gone: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(passage: &'a Passage<'a>) -> Self {
        Draft {
            passage,
            edited: None,
            copies: 0,
            before: Vec::new(),
            after: Vec::new(),
            is_gone: false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn way(&self) -> Way {
        self.edited.as_ref().map_or(self.passage.way, |parcel| parcel.way)
    }

    fn len(&self) -> usize {
        self.edited
            .as_ref()
            .map_or(self.passage.bytes.len(), |parcel| parcel.bytes.len())
    }

    fn edit(&mut self) -> &mut Parcel {
        let passage = self.passage;
        self.edited
            .get_or_insert_with(|| parcel(passage.way, passage.bytes.to_vec()))
    }

    fn drop(&mut self) {
        self.is_gone = true;
    }

    fn copy(&mut self, copies: u32) {
        self.edit();
        self.copies = self.copies.saturating_add(copies).min(COPIES_MAX);
    }

    fn delay(&mut self, nanos: u64) {
        let parcel = self.edit();
        parcel.delay_ns = parcel.delay_ns.saturating_add(nanos);
    }

    fn let_pass(&mut self, past: u32, at_most_ns: u64) {
        let parcel = self.edit();
        parcel.past = parcel.past.saturating_add(past);
        parcel.overtaken_at_most_ns = at_most_ns;
    }

    fn change(&mut self, icrc: Icrc, how: impl FnOnce(&mut Vec<u8>)) {
        let parcel = self.edit();
        how(&mut parcel.bytes);
        if icrc == Icrc::Repaired {
            seal(&parcel.way, &mut parcel.bytes);
        }
    }

    /// So that no IPv4 identification explains it: a receiver on a socket does not see that field.
    fn break_icrc(&mut self) {
        let parcel = self.edit();
        for mask in [0xff, 0x55, 0x0f] {
            let Some(icrc) = parcel.bytes.last_chunk_mut::<{ roce_wire::ICRC_LEN }>() else {
                return;
            };
            icrc.iter_mut().for_each(|byte| *byte ^= mask);
            if icrc::verify(&flow(&parcel.way), &[0], &parcel.bytes) == Verdict::Invalid {
                return;
            }
        }
    }

    fn inject(&mut self, bytes: Vec<u8>, place: Place) {
        let list = match place {
            Place::Before | Place::Instead => &mut self.before,
            Place::After => &mut self.after,
        };
        if list.len() < COPIES_MAX as usize {
            list.push(parcel(self.passage.way, bytes));
        }
        if place == Place::Instead {
            self.drop();
        }
    }

    /// What goes on.
    pub(super) fn finish(mut self, out: &mut Vec<Parcel>) -> Judgement {
        let is_untouched =
            self.edited.is_none() && !self.is_gone && self.before.is_empty() && self.after.is_empty();
        if is_untouched {
            return Judgement::Untouched;
        }
        out.append(&mut self.before);
        if !self.is_gone {
            let copies = self.copies;
            let parcel = self.edit().clone();
            out.extend(std::iter::repeat_n(parcel, 1 + copies as usize));
        }
        out.append(&mut self.after);
        Judgement::Changed
    }
}

fn parcel(way: Way, bytes: Vec<u8>) -> Parcel {
    Parcel {
        way,
        bytes,
        delay_ns: 0,
        past: 0,
        overtaken_at_most_ns: 0,
    }
}
