//! From addresses to devices.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use verbs_api::{CmId as _, Error, Result};
use verbs_sys::rdma_cm_id;

use super::{id, sockaddr};
use crate::entry;

/// `rdma_bind_addr`
///
/// # Safety
/// `id` is NULL or alive, `address` NULL or an address.
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut c_void) -> c_int {
    entry::count("rdma_bind_addr", || {
        // SAFETY: the caller's promise.
        unsafe {
            id::object(id)?.bind_addr(sockaddr::read(address, "the address")?)?;
            id::refresh(id)?;
        }
        Ok(0)
    })
}

/// `rdma_listen`
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    entry::count("rdma_listen", || {
        // Less than one is what the system sees fit.
        let backlog = u32::try_from(backlog).unwrap_or(0);
        // SAFETY: the caller's promise.
        unsafe {
            id::object(id)?.listen(backlog)?;
            id::refresh(id)?;
        }
        Ok(0)
    })
}

fn patience(timeout_ms: c_int) -> Result<Duration> {
    let milliseconds = u64::try_from(timeout_ms)
        .map_err(|_| Error::invalid(format!("{timeout_ms} is no number of milliseconds")))?;
    Ok(Duration::from_millis(milliseconds))
}

/// `rdma_resolve_addr`
///
/// # Safety
/// `id` is NULL or alive, the addresses are NULL or addresses.
pub(crate) unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut c_void,
    destination: *mut c_void,
    timeout_ms: c_int,
) -> c_int {
    let asked = entry::count("rdma_resolve_addr", || {
        // SAFETY: the caller's promise.
        unsafe {
            let object = id::object(id)?;
            let source = match source.is_null() {
                true => None,
                false => Some(sockaddr::read(source, "the source address")?),
            };
            let destination = sockaddr::read(destination, "the destination address")?;
            object.resolve_addr(source, destination, patience(timeout_ms)?)?;
        }
        Ok(0)
    });
    match asked {
        // SAFETY: alive, as was just seen.
        0 => unsafe { id::complete(id) },
        failed => failed,
    }
}

/// `rdma_resolve_route`
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    let asked = entry::count("rdma_resolve_route", || {
        // SAFETY: the caller's promise.
        unsafe { id::object(id) }?.resolve_route(patience(timeout_ms)?)?;
        Ok(0)
    });
    match asked {
        // SAFETY: alive, as was just seen.
        0 => unsafe { id::complete(id) },
        failed => failed,
    }
}

/// `rdma_get_src_port`: big endian.
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { id.as_ref() }.map_or(0, |id| sockaddr::port(&id.route.addr.src_addr))
}

/// `rdma_get_dst_port`: big endian.
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { id.as_ref() }.map_or(0, |id| sockaddr::port(&id.route.addr.dst_addr))
}
