//! XRC in virtual time: initiators, targets, and the shared receive queues that they name.

pub mod bench;
mod connection;
mod hostile;
mod target;
mod verbs;
