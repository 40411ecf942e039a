//! A reference model of responder and requester: small, plain and slow. Random schedules run against it and against the
//! engine side by side (proptest's state machines), packet by packet; what differs is shrunk to a few steps.

mod bench;
mod requester;
mod responder;
