//! What happens to packets.

use roce_wire::{NakCode, RnrTimer};

use crate::{Event, Field};

/// What happens to a packet that a rule hits.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It is lost.
    Drop,
    /// It arrives so many times more, 1 to 64.
    Duplicate(u32),
    /// It arrives so much later, ns, perhaps behind others, with up to so much more by chance.
    Delay {
        /// At least, ns.
        nanos: u64,
        /// Up to so much on top, ns.
        jitter_ns: u64,
    },
    /// It arrives behind the next so many packets of its flow, or after some time if there are not so many.
    Reorder {
        /// So many packets overtake it.
        past: u32,
        /// But it waits no longer than this, ns.
        at_most_ns: u64,
    },
    /// Something in it changes.
    Corrupt {
        /// What.
        what: Corruption,
        /// What becomes of the ICRC.
        icrc: Icrc,
    },
    /// It ends early.
    Truncate {
        /// Bytes of UDP payload that are left. Packets that are no longer do not match.
        to_bytes: usize,
        /// What becomes of the ICRC.
        icrc: Icrc,
    },
    /// Its ECN bits say "congestion experienced".
    MarkCe,
    /// It is lost, and so is everything that matches from then on, whatever else the rule says about when.
    Blackhole {
        /// For so long, ns; for good without.
        lasts_ns: Option<u64>,
    },
    /// What matches shares a line of this rate.
    RateLimit {
        /// Bits a second, with 66 bytes of headers to each packet.
        bits_per_second: u64,
        /// Bytes that may wait; what comes on top is lost.
        queue_bytes: u64,
    },
    /// A packet that nobody sent travels the same way.
    Inject {
        /// Which.
        packet: Forgery,
        /// Where.
        place: Place,
        /// To this queue pair; without, to that of the packet that is hit.
        qpn: Option<u32>,
    },
    /// Something happens to the device. It passes; of a packet that arrives, its own queue pair is the one concerned.
    Raise(Event),
}

impl Action {
    /// What it does to packets that are on their way, as far as their receiver may miss or not know them.
    pub const fn effect(&self) -> Effect {
        match self {
            Action::Drop | Action::Blackhole { .. } => Effect::Takes,
            Action::Corrupt {
                icrc: Icrc::Broken, ..
            }
            | Action::Truncate {
                icrc: Icrc::Broken, ..
            } => Effect::Spoils,
            Action::Corrupt { .. } | Action::Truncate { .. } => Effect::Changes,
            Action::Delay { .. } | Action::Reorder { .. } => Effect::HoldsBack,
            Action::Inject { .. } => Effect::Makes,
            Action::Duplicate(_) | Action::MarkCe | Action::RateLimit { .. } | Action::Raise(_) => {
                Effect::Other
            }
        }
    }

    /// Its word in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Action::Drop => "drop",
            Action::Duplicate(_) => "duplicate",
            Action::Delay { .. } => "delay",
            Action::Reorder { .. } => "reorder",
            Action::Corrupt { .. } => "corrupt",
            Action::Truncate { .. } => "truncate",
            Action::MarkCe => "mark-ce",
            Action::Blackhole { .. } => "blackhole",
            Action::RateLimit { .. } => "rate",
            Action::Inject { .. } => "inject",
            Action::Raise(_) => "event",
        }
    }
}

/// What a rule does to each packet that it hits, in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The packet is lost.
    Takes,
    /// Its receiver drops it.
    Spoils,
    /// Its receiver takes it for another.
    Changes,
    /// It comes late.
    HoldsBack,
    /// One that nobody sent goes its way.
    Makes,
    /// Something else, or the rule is not about packets.
    Other,
}

impl Effect {
    /// All of them.
    pub const ALL: [Effect; 6] = [
        Effect::Takes,
        Effect::Spoils,
        Effect::Changes,
        Effect::HoldsBack,
        Effect::Makes,
        Effect::Other,
    ];

    /// What such a rule has done, as a word.
    pub const fn past(self) -> &'static str {
        match self {
            Effect::Takes => "took",
            Effect::Spoils => "spoilt",
            Effect::Changes => "changed",
            Effect::HoldsBack => "held back",
            Effect::Makes => "made",
            Effect::Other => "hit",
        }
    }
}

/// What changes in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// The ICRC, and nothing else.
    Icrc,
    /// This bit of the UDP payload, counted from the first of the BTH, modulo the length.
    Bit(u32),
    /// A bit by chance.
    AnyBit,
    /// A field. Packets without it do not match.
    Field(Field, Change),
}

/// How a field changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// To this value, cut to the field's width.
    Set(u64),
    /// These bits flip.
    Flip(u64),
    /// By so much, wrapping at the field's width.
    Add(i64),
}

/// What becomes of the ICRC of a packet that was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Icrc {
    /// It stays as it was, and is wrong now.
    #[default]
    Broken,
    /// It is computed anew.
    Repaired,
}

/// A packet that nobody sent. NAKs, RNR NAKs and acknowledgements make sense where responses travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A NAK of this code for the PSN of the packet that is hit.
    Nak(NakCode),
    /// An RNR NAK with this timer for that PSN.
    Rnr(RnrTimer),
    /// An acknowledgement of a PSN so far ahead of it that nobody has sent it yet.
    GhostAck {
        /// How far.
        ahead: u32,
    },
    /// A congestion notification.
    Cnp,
    /// The packet that matched so many matches ago, once more. Nothing is hit before there are so many.
    StaleDuplicate {
        /// How many, 1 to [`HISTORY_MAX`].
        age: u32,
    },
}

/// Matches that a stale duplicate may be old.
pub const HISTORY_MAX: u32 = 1024;

/// Where an injected packet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In front of the packet that is hit.
    #[default]
    Before,
    /// Behind it.
    After,
    /// In its place: that one is lost.
    Instead,
}
