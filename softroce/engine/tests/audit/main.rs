//! A second look at reliable connections, by somebody who did not write them: suspicions that became tests.

#[allow(dead_code)]
#[path = "../bench/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "../bench/pair.rs"]
mod pair;
#[allow(dead_code)]
#[path = "../bench/raw.rs"]
mod raw;

mod completions;
mod crossfire;
mod requester;
mod responder;
mod swarm;
mod turnover;
