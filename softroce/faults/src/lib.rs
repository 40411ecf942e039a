//! Fault rules: which packets, verbs calls and completions go wrong, and how.
//!
//! One language for everybody: [`Rules`] are values, built in Rust or [read from a file](Rules::parse). The UDP fabric
//! and the simulator both ask an [`Injector`] about every packet, and the provider asks it about every verbs call and
//! completion.
//!
//! # Contract
//! - The injector is a pure state machine: time is an argument, chance comes from the rules' seed, and each rule draws
//!   from numbers of its own. The same rules and the same questions give the same answers.
//! - Everything is bounded: rules ([`RULES_MAX`]), flows and packets that are remembered, packets that are held back
//!   ([`Held`]).
//! - Every rule counts what it matched and what it hit ([`Tally`]), so that a test can compare what was counted
//!   elsewhere with what was done here.
//! - A file is hostile input: what is wrong with it is a [`FileError`] with line, column, reason, and what would be
//!   right.
#![forbid(unsafe_code)]

mod action;
mod errno;
mod field;
mod file;
mod flow;
mod forge;
mod held;
mod injector;
mod numbers;
mod opcodes;
mod packet;
mod random;
mod rules;
mod verb;
mod when;

pub use action::{Action, Change, Corruption, Effect, Forgery, HISTORY_MAX, Icrc, Place};
pub use errno::{errno_name, errno_named};
pub use field::Field;
pub use file::FileError;
pub use flow::{FlowKey, Flows, Seen};
pub use held::Held;
pub use injector::{Injector, Judgement, Parcel, Passage, Tally, Way};
pub use numbers::Numbers;
pub use opcodes::{OpcodeSet, UnknownOpcode};
pub use packet::{Direction, Select, SyndromeKind};
pub use random::Random;
pub use rules::{CompletionRule, Event, EventRule, PacketRule, RULES_MAX, Rules, VerbRule, Work};
pub use verb::{Verb, VerbSet};
pub use when::When;
