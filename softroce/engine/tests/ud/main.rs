//! Datagrams in virtual time: UD, the general service interface, address handles, multicast.

#[path = "../bench/node.rs"]
#[allow(dead_code)]
mod node;

mod attacker;
mod bench;
mod data;
mod dropped;
mod gsi;
mod handles;
mod multicast;
mod paced;
mod requester;
