//! What the engine tells its driver besides packets.

use verbs_api::EventKind;

use crate::{CqId, SrqId};

/// Something for the driver to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// An armed completion queue has a completion: wake its channel.
    CqNotify(CqId),
    /// An asynchronous event of a queue pair.
    Qp(u32, EventKind),
    /// An asynchronous event of a completion queue.
    Cq(CqId, EventKind),
    /// An asynchronous event of a shared receive queue.
    Srq(SrqId, EventKind),
    /// An asynchronous event of the port.
    Port(EventKind),
}
