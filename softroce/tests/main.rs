//! The card over sockets and over wires of the tests' own. One program, so that what it stands on is linked once; what
//! needs a process for itself (forks, signals, measured silences, counted descriptors and allocations) is a program of its own beside it.

#[path = "support/fabric.rs"]
mod support;

mod cm;
mod fabric_asleep;
mod fabric_groups;
mod fabric_interfaces;
mod fabric_leaving;
mod fabric_udp;
mod fabric_users;
mod provider;
mod provider_leftovers;
