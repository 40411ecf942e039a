//! Reliable connections in virtual time: two engines and a wire between them that a test scripts, or one engine whose
//! peer is the test itself.

#[path = "../bench/node.rs"]
mod node;
#[path = "../bench/pair.rs"]
mod pair;
#[path = "../bench/raw.rs"]
mod raw;

mod crowd;
mod data;
mod hostile;
mod lessons;
mod loss;
mod many;
mod probes;
mod requester;
mod responder;
mod responder_errors;
mod state;
