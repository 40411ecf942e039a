//! From addresses to devices.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use verbs_api::{CmId as _, Error, Result};
use verbs_sys::{rdma_addr, rdma_cm_id, sockaddr_storage};

use super::calls::{Then, call};
use super::id;
use super::sockaddr;
use crate::entry;

/// `rdma_bind_addr`
///
/// # Safety
/// `address` is NULL or an address.
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut c_void) -> c_int {
    entry::count("rdma_bind_addr", || {
        let mut held = id::hold(id)?;
        // SAFETY: the caller's promise.
        held.bind_addr(unsafe { sockaddr::read(address, "the address") }?)?;
        held.refresh()?;
        Ok(0)
    })
}

/// `rdma_listen`
pub(crate) extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    entry::count("rdma_listen", || {
        let mut held = id::hold(id)?;
        // Less than one is what the system sees fit.
        held.listen(u32::try_from(backlog).unwrap_or(0))?;
        held.refresh()?;
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
/// The addresses are NULL or addresses.
pub(crate) unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut c_void,
    destination: *mut c_void,
    timeout_ms: c_int,
) -> c_int {
    call("rdma_resolve_addr", id, |held| {
        // SAFETY: the caller's promise.
        let read = |address, what| unsafe { sockaddr::read(address, what) };
        let source = match source.is_null() {
            true => None,
            false => Some(read(source, "the source address")?),
        };
        let destination = read(destination, "the destination address")?;
        held.resolve_addr(source, destination, patience(timeout_ms)?)?;
        Ok(Then::Event)
    })
}

/// `rdma_resolve_route`
pub(crate) extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    call("rdma_resolve_route", id, |held| {
        held.resolve_route(patience(timeout_ms)?)?;
        Ok(Then::Event)
    })
}

/// `rdma_get_src_port`: big endian; 0 of what is no id.
pub(crate) extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    port_of(id, "rdma_get_src_port", |addresses| addresses.src_addr)
}

/// `rdma_get_dst_port`: big endian; 0 of what is no id.
pub(crate) extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    port_of(id, "rdma_get_dst_port", |addresses| addresses.dst_addr)
}

fn port_of(id: *mut rdma_cm_id, verb: &'static str, of: impl FnOnce(&rdma_addr) -> sockaddr_storage) -> u16 {
    let port = entry::count(verb, || {
        let storage = of(&id::hold(id)?.c().route.addr);
        Ok(sockaddr::port(&storage).into())
    });
    u16::try_from(port).unwrap_or(0)
}
