//! A user-space RDMA network card: the provider, its progress and its UDP fabric.
pub mod clock;
pub mod fabric;
pub mod interfaces;
pub mod tap;

pub use clock::{Clock, MonotonicClock};
pub use fabric::{Endpoint, Fabric, FabricCounters, HeaderFields, Trains, UdpFabric, UdpOptions};
pub use tap::{Capture, Tap};
