//! Reliable connections in virtual time: two engines and a wire between them that a test scripts, or one engine whose
//! peer is the test itself.
#![allow(clippy::unwrap_used)]

mod data;
mod node;
mod pair;
