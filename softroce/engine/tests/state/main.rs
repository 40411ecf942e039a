//! States of queue pairs in virtual time: transitions, draining, path migration, limits, events.

#[allow(dead_code)]
#[path = "../bench/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "../bench/pair.rs"]
mod pair;
#[allow(dead_code)]
#[path = "../bench/raw.rs"]
mod raw;

mod completion_queue;
mod draining;
mod events;
mod limits;
mod matrix;
mod migration;
mod subject;
mod table;
mod transitions;
