//! Shared receive queues in virtual time.

mod bench;
mod datagrams;
mod failures;
mod receives;
mod swarm;
mod unreliable;
mod verbs;
