//! Shared receive queues in virtual time.

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
mod failures;
mod receives;
mod unreliable;
mod verbs;
