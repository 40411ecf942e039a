//! Operations in short.

use verbs_api::{Provider, RemoteAddr, SendOp};

/// A SEND without immediate.
pub fn send<'a, P: Provider>() -> SendOp<'a, P> {
    SendOp::Send { imm: None }
}

/// A WRITE without immediate.
pub fn write<'a, P: Provider>(remote: RemoteAddr) -> SendOp<'a, P> {
    SendOp::Write { remote, imm: None }
}

/// A READ.
pub fn read<'a, P: Provider>(remote: RemoteAddr) -> SendOp<'a, P> {
    SendOp::Read { remote }
}
