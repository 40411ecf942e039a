//! Asynchronous events.

use crate::codes::codes;

/// What happened; the numbers are those of `ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // The names are those of ibv_get_async_event(3).
pub enum EventKind {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    PathMig = 6,
    PathMigErr = 7,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
    LidChange = 11,
    PkeyChange = 12,
    SmChange = 13,
    SrqErr = 14,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
    ClientReregister = 17,
    GidChange = 18,
    WqFatal = 19,
}

codes!(EventKind: CqErr, QpFatal, QpReqErr, QpAccessErr, CommEst, SqDrained, PathMig, PathMigErr, DeviceFatal, PortActive,
    PortErr, LidChange, PkeyChange, SmChange, SrqErr, SrqLimitReached, QpLastWqeReached, ClientReregister, GidChange,
    WqFatal);

impl EventKind {
    /// What it means, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            EventKind::CqErr => "completion queue in error (overrun)",
            EventKind::QpFatal => "queue pair in a fatal error",
            EventKind::QpReqErr => "invalid request reached the queue pair",
            EventKind::QpAccessErr => "forbidden access reached the queue pair",
            EventKind::CommEst => "communication established",
            EventKind::SqDrained => "send queue drained",
            EventKind::PathMig => "path migrated",
            EventKind::PathMigErr => "path migration failed",
            EventKind::DeviceFatal => "device in a fatal error",
            EventKind::PortActive => "port active",
            EventKind::PortErr => "port down",
            EventKind::LidChange => "LID changed",
            EventKind::PkeyChange => "P_Key table changed",
            EventKind::SmChange => "subnet manager changed",
            EventKind::SrqErr => "shared receive queue in error",
            EventKind::SrqLimitReached => "shared receive queue below its limit",
            EventKind::QpLastWqeReached => "last work request of a shared receive queue taken",
            EventKind::ClientReregister => "clients must re-register",
            EventKind::GidChange => "GID table changed",
            EventKind::WqFatal => "work queue in a fatal error",
        }
    }
}

/// Which object an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// The queue pair of this number.
    Qp(u32),
    /// The completion queue that carries this cookie (see `CqInit::cookie`).
    Cq(u64),
    /// The shared receive queue that carries this cookie.
    Srq(u64),
    /// A port, from 1.
    Port(u8),
    /// The device as a whole.
    Device,
}

/// An asynchronous event. It is acknowledged when the value that carried it is dropped (see
/// [`Context::async_event`](crate::Context::async_event)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// To what.
    pub source: EventSource,
}
