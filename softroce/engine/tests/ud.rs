//! Datagrams in virtual time: UD, the general service interface, address handles, multicast.

mod attacker;
pub mod bench;
mod data;
mod dropped;
mod gsi;
mod handles;
mod multicast;
mod paced;
mod requester;
