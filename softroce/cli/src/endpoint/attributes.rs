//! What leads a queue pair of each kind to RTS.

use verbs_api::{AddressVector, Connection, Gid, QpType};

/// Attempts after the first, and the time between them: a vanished peer is noticed within about two seconds.
const TIMEOUT_CODE: u8 = 14;
const RETRY_COUNT: u8 = 7;
/// RNR retries without end: a peer that is slow to post receives is waited for.
const RNR_RETRY_FOREVER: u8 = 7;
const MIN_RNR_TIMER_CODE: u8 = 12;
/// READs and atomics under way, each direction.
const RD_ATOMIC: u8 = 16;
/// Of all datagram queue pairs of this command.
pub const QKEY: u32 = 0x1111_1111;

/// The connection of a queue pair to the queue pair `qpn` there, which may do nothing yet.
pub fn connection(service: QpType, gid: Gid, qpn: u32) -> Connection {
    Connection {
        qkey: QKEY,
        timeout: TIMEOUT_CODE,
        retry_cnt: RETRY_COUNT,
        rnr_retry: RNR_RETRY_FOREVER,
        min_rnr_timer: MIN_RNR_TIMER_CODE,
        max_rd_atomic: RD_ATOMIC,
        max_dest_rd_atomic: RD_ATOMIC,
        ..Connection::new(service, address_vector(gid), qpn)
    }
}

/// The way to a peer.
pub fn address_vector(gid: Gid) -> AddressVector {
    AddressVector {
        dgid: Some(gid),
        port: 1,
        ..AddressVector::default()
    }
}
