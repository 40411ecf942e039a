//! A network in virtual time around unchanged softroce devices.
//!
//! A [`World`] holds devices in manual mode, the links between them and a clock that jumps from event to event.
//! Everything that is random comes from the world's seed, so the same seed and the same calls give the same packets
//! at the same times, and the same [`World::trace_hash`].
//!
//! # Contract
//! - Time moves only in [`World::advance`] and what is built on it; verbs called in between happen at no cost in time.
//! - Faults come by chance ([`Link`]: loss, duplication, reordering, corruption) and exactly ([`Rule`]: any packet, by
//!   its headers and by how often it has been sent), and may be changed at any moment. [`World::set_faults`] takes the
//!   same rules as programs on real sockets do.
//! - When nothing is in flight and no timer runs, [`World::advance`] says [`Activity::Dead`]: whoever waits then waits
//!   for ever, so that a lost wake-up is found at once and not after a time-out.
#![forbid(unsafe_code)]

mod capture;
mod clock;
mod fabric;
mod link;
mod network;
pub mod swarm;
mod trace;
mod world;

pub use clock::VirtualClock;
pub use fabric::SimFabric;
pub use link::{Fate, Link, Rule, Transit};
pub use network::NetworkCounters;
pub use softroce_engine::Time;
#[cfg(feature = "mutations")]
pub use softroce_engine::{Mutant, choose_mutant};
pub use softroce_faults::{Random, Rules};
pub use trace::Sent;
pub use world::{Activity, Stuck, World};
