//! The card in virtual time. One program, so that it is linked once.
#![forbid(unsafe_code)]

mod faults;
mod losses;
mod model;
mod pair;
mod swarm;
mod world;
