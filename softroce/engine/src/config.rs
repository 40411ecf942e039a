//! How an engine is set up.

use verbs_api::{GidEntry, Mtu, PortState};

/// Set-up of an engine, fixed for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seeds keys, QPN order and every other choice: the same seed and inputs give the same outputs.
    pub seed: u64,
    /// The engine's queue pair numbers are `qpn_base .. qpn_base + qpn_count` (its slice of the 24-bit space).
    pub qpn_base: u32,
    /// How many.
    pub qpn_count: u32,
    /// How long an acknowledgement may wait for data to travel with, ns.
    pub ack_delay_ns: u64,
    /// Socket receive buffer behind this engine, bytes (as the kernel counts them): bounds READ responses asked for.
    pub receive_buffer_bytes: u32,
    /// First budget of bytes in flight toward one peer address.
    pub initial_window_bytes: u32,
    /// Node GUID.
    pub node_guid: u64,
}

/// The port, as the interface behind it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Up or down.
    pub state: PortState,
    /// Largest path MTU that the interface carries.
    pub active_mtu: Mtu,
    /// Its GID table.
    pub gids: Vec<GidEntry>,
}
