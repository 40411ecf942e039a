//! Reliable connections in virtual time: two engines and a wire between them that a test scripts, or one engine whose
//! peer is the test itself.

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
