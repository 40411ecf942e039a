//! A user-space RDMA network card: the provider, its progress and its UDP fabric.
pub mod clock;
pub mod fabric;

pub use clock::{Clock, MonotonicClock};
pub use fabric::{Fabric, FabricCounters};
