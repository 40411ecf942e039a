//! Shared receive queues in virtual time.

#[allow(dead_code)]
#[path = "../rc/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "../rc/pair.rs"]
mod pair;
#[allow(dead_code)]
#[path = "../rc/raw.rs"]
mod raw;

mod bench;
mod failures;
mod receives;
mod verbs;
