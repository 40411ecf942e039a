//! Mapped buffers: riomap, riounmap, riowrite.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use softroce_rsocket::MapFor;
use verbs_api::{Access, Error, ProtectionDomain, Result};

use super::message::bytes_in;
use super::{lookup, os_error, patience};
use crate::entry::{null, number_or_minus_one, size};

/// Maps for the peer to write to (PROT_WRITE) or not (PROT_NONE).
///
/// # Safety
/// `buffer` is NULL or valid for `length` bytes until it is unmapped or the socket is closed.
pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    buffer: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = size("riomap", || {
        let (purpose, access) = match protection {
            libc::PROT_NONE => (MapFor::Source, Access::empty()),
            libc::PROT_WRITE => (MapFor::Peer, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            other => {
                return Err(Error::invalid(format!(
                    "{other:#x} is neither PROT_NONE nor PROT_WRITE"
                )));
            }
        };
        if flags != 0 {
            return Err(Error::invalid(format!(
                "there are no flags for mappings, such as {flags:#x}"
            )));
        }
        if buffer.is_null() {
            return Err(null("the buffer"));
        }
        let offset = match offset {
            -1 => None,
            offset => Some(positive(offset)?),
        };
        let mapped = lookup(socket)?.stream()?.map(offset, purpose, |domain| {
            // SAFETY: the caller's promise; the mapping holds the region until it is undone or the socket is closed.
            unsafe { domain.reg_mr_raw(buffer.cast(), length, buffer as u64, access) }
        })?;
        usize::try_from(mapped).map_err(|_| Error::invalid("the offset is beyond what this machine has"))
    });
    mapped as off_t
}

pub(crate) extern "C" fn riounmap(socket: c_int, buffer: *mut c_void, length: size_t) -> c_int {
    number_or_minus_one("riounmap", || {
        lookup(socket)?.stream()?.unmap(buffer as u64, length as u64)
    })
}

/// # Safety
/// `buffer` is NULL or valid for `count` bytes.
pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let written = size("riowrite", || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes_in(buffer.cast(), count) }?;
        lookup(socket)?
            .stream()?
            .write_direct(bytes, positive(offset)?, patience(flags))
    });
    written as size_t
}

fn positive(offset: off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| os_error(libc::EINVAL, format!("the offset {offset} is negative")))
}
