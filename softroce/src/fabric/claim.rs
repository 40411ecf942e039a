//! Names on an address that one process has: those of its slice, and of the services of RDMA CM that it offers.

use std::io::Write;
use std::net::IpAddr;

use roce_wire::cm::ServiceId;

use super::slice::Slice;

/// Such a name (in this network namespace, as all of them).
pub(super) struct ClaimName {
    bytes: [u8; CLAIM_NAME_BYTES_MAX],
    length: usize,
}

/// The longest is that of a service on a link-local address: 9 + 39 + 1 + 10 + 4 + 16 bytes.
const CLAIM_NAME_BYTES_MAX: usize = 80;

impl ClaimName {
    pub(super) fn new(address: IpAddr, scope_id: u32, slice: Slice) -> Self {
        let mut name = ClaimName {
            bytes: [0; CLAIM_NAME_BYTES_MAX],
            length: 0,
        };
        let mut room = &mut name.bytes[..];
        let written = write!(room, "softroce/{address}%{scope_id}/{}", slice.number());
        debug_assert!(written.is_ok(), "every name fits");
        name.length = CLAIM_NAME_BYTES_MAX - room.len();
        name
    }

    pub(super) fn of_service(address: IpAddr, scope_id: u32, service: ServiceId) -> Self {
        let mut name = ClaimName {
            bytes: [0; CLAIM_NAME_BYTES_MAX],
            length: 0,
        };
        let mut room = &mut name.bytes[..];
        let written = write!(room, "softroce/{address}%{scope_id}/cm/{:x}", service.0);
        debug_assert!(written.is_ok(), "every name fits");
        name.length = CLAIM_NAME_BYTES_MAX - room.len();
        name
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
