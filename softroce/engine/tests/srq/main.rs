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
#[allow(dead_code)]
#[path = "../xrc/bench.rs"]
mod xrc;

mod bench;
mod datagrams;
mod failures;
mod receives;
mod swarm;
mod unreliable;
mod verbs;
