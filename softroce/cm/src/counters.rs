//! What an agent has counted.

/// Numbers since the agent was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received and taken.
    pub received: u64,
    /// Messages sent, repetitions included.
    pub sent: u64,
    /// Messages sent again since no answer came.
    pub retries: u64,
    /// Messages that repeat an earlier one.
    pub duplicates: u64,
    /// Datagrams that are no message.
    pub malformed: u64,
    /// Messages that name no connection, or another peer's.
    pub unknown_id: u64,
    /// Messages that do not fit the state.
    pub out_of_place: u64,
    /// Requests dropped since the listener's backlog, the table of connections, or the peer's share of that is full.
    pub backlog_full: u64,
    /// Requests for a service that nobody offers.
    pub no_listener: u64,
    /// Requests of a queue pair that is connected already.
    pub stale: u64,
}
