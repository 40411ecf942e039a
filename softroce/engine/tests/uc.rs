//! Unreliable connections in virtual time.

mod attacker;
mod data;
mod loss;
mod refused;
mod requester;

use verbs_api::QpType;

use crate::node::Connection;

/// A connection of this service.
fn unreliable() -> Connection {
    Connection {
        qp_type: QpType::Uc,
        ..Connection::default()
    }
}
