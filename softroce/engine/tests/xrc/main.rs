//! XRC in virtual time: initiators, targets, and the shared receive queues that they name.

#[allow(dead_code)]
#[path = "../bench/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "../bench/pair.rs"]
mod pair;
#[allow(dead_code)]
#[path = "../bench/raw.rs"]
mod raw;

mod bench;
mod connection;
mod hostile;
mod target;
mod verbs;
