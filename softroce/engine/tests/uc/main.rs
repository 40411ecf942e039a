//! Unreliable connections in virtual time.

#[path = "../bench/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../bench/pair.rs"]
#[allow(dead_code)]
mod pair;
#[path = "../bench/raw.rs"]
#[allow(dead_code)]
mod raw;

mod attacker;
mod data;
mod loss;
mod refused;
mod requester;

use node::Connection;
use verbs_api::QpType;

/// A connection of this service.
fn unreliable() -> Connection {
    Connection {
        qp_type: QpType::Uc,
        ..Connection::default()
    }
}
