//! Connecting, and its end.

use std::ffi::{c_int, c_void};

use verbs_api::{CmId as _, ConnectionParameters, Error, EventKind, QpState, QpType, Result};
use verbs_sys::cm_constants::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES};
use verbs_sys::convert::{qp_attr_to_c, qp_type_from_c};
use verbs_sys::*;

use super::id;
use crate::entry::{self, null, place};

/// Retries unless a program says how many: as many as there can be.
const RETRIES: u8 = 7;
/// Retries are numbers of three bits.
const RETRIES_MASK: u8 = 7;

/// Bytes that a program gave.
///
/// # Safety
/// `data` is NULL or has `length` bytes, which stay during `'a`.
unsafe fn bytes<'a>(data: *const c_void, length: u8) -> Result<&'a [u8]> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null("private data")),
        // SAFETY: the caller's promise.
        (false, length) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), length.into()) }),
    }
}

/// What a program said about a connection. The queue pair of the id, if it has one, goes before the one that is named.
///
/// # Safety
/// `id` is alive; the private data of `parameters` is as long as it says, during `'a`.
unsafe fn parameters<'a>(
    id: *mut rdma_cm_id,
    parameters: &rdma_conn_param,
) -> Result<ConnectionParameters<'a>> {
    // SAFETY: the caller's promise.
    let (object, c) = unsafe { (id::object(id)?, &*id) };
    let is_datagram = object.port_space().is_datagram();
    let named = match is_datagram {
        true => QpType::Ud,
        false => qp_type_from_c(c.qp_type)?,
    };
    Ok(ConnectionParameters {
        // SAFETY: the caller's promise.
        private_data: unsafe { bytes(parameters.private_data, parameters.private_data_len) }?,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: parameters.flow_control != 0,
        retry_count: parameters.retry_count & RETRIES_MASK,
        rnr_retry_count: parameters.rnr_retry_count & RETRIES_MASK,
        qp: c.qp.is_null().then_some((parameters.qp_num, named)),
        srq: parameters.srq != 0,
        qkey: None,
    })
}

/// `rdma_connect`
///
/// # Safety
/// `id` is NULL or alive, `param` NULL or valid with its private data.
pub(crate) unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    let asked = entry::count("rdma_connect", || {
        // SAFETY: the caller's promise.
        unsafe {
            let object = id::object(id)?;
            let said = match param.as_ref() {
                Some(param) => parameters(id, param)?,
                None => ConnectionParameters {
                    responder_resources: RDMA_MAX_RESP_RES,
                    initiator_depth: RDMA_MAX_INIT_DEPTH,
                    retry_count: RETRIES,
                    rnr_retry_count: RETRIES,
                    ..ConnectionParameters::default()
                },
            };
            object.connect(&said)?;
        }
        Ok(0)
    });
    match asked {
        // SAFETY: alive, as was just seen.
        0 => unsafe { id::complete(id) },
        failed => failed,
    }
}

/// `rdma_accept`
///
/// # Safety
/// `id` is NULL or alive, `param` NULL or valid with its private data.
pub(crate) unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    let mut waits = false;
    let asked = entry::count("rdma_accept", || {
        // SAFETY: the caller's promise.
        unsafe {
            let object = id::object(id)?;
            let said = param.as_ref().map(|param| parameters(id, param)).transpose()?;
            object.accept(said.as_ref())?;
            waits = !object.port_space().is_datagram();
        }
        Ok(0)
    });
    match (asked, waits) {
        // SAFETY: alive, as was just seen.
        (0, true) => unsafe { id::complete(id) },
        (result, _) => result,
    }
}

/// `rdma_establish`: after the peer's answer, when the queue pair is the program's own.
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    entry::count("rdma_establish", || {
        // SAFETY: the caller's promise.
        unsafe {
            let object = id::object(id)?;
            if !(*id).qp.is_null() {
                return Err(Error::invalid(
                    "the id has a queue pair, which it makes ready itself",
                ));
            }
            object.accept(None)?;
        }
        Ok(0)
    })
}

/// `rdma_reject`
///
/// # Safety
/// `id` is NULL or alive; `data` is NULL or has `length` bytes.
pub(crate) unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    entry::count("rdma_reject", || {
        // SAFETY: the caller's promise.
        unsafe { id::object(id)?.reject(bytes(data, length)?)? };
        Ok(0)
    })
}

/// `rdma_reject_ece`: the peer's vendor options are not to our liking.
///
/// # Safety
/// As `rdma_reject`.
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    entry::count("rdma_reject_ece", || {
        // SAFETY: the caller's promise.
        unsafe { id::object(id)?.reject_vendor_options(bytes(data, length)?)? };
        Ok(0)
    })
}

/// `rdma_notify`: what a queue pair's asynchronous event says about its connection.
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    entry::count("rdma_notify", || {
        // SAFETY: the caller's promise.
        let object = unsafe { id::object(id) }?;
        match EventKind::from_code(event as u32) {
            Some(EventKind::CommEst) => object.established()?,
            Some(EventKind::PathMig) => return Err(Error::unsupported("alternate paths")),
            _ => {
                return Err(Error::invalid(format!(
                    "the event {event} says nothing about connections"
                )));
            }
        }
        Ok(0)
    })
}

/// `rdma_disconnect`
///
/// # Safety
/// `id` is NULL or alive.
pub(crate) unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let asked = entry::count("rdma_disconnect", || {
        // SAFETY: the caller's promise.
        unsafe { id::object(id) }?.disconnect()?;
        Ok(0)
    });
    match asked {
        // SAFETY: alive, as was just seen.
        0 => unsafe { id::complete(id) },
        failed => failed,
    }
}

/// `rdma_init_qp_attr`: for the state that stands in the attributes.
///
/// # Safety
/// `id` is NULL or alive; `attr` and `mask` are NULL or valid.
pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    entry::count("rdma_init_qp_attr", || {
        // SAFETY: the caller's promise.
        let (object, attr, mask) = unsafe {
            (
                id::object(id)?,
                place(attr, "the attributes")?,
                place(mask, "the place for the mask")?,
            )
        };
        let state = QpState::from_code(attr.qp_state as u32)
            .ok_or_else(|| Error::invalid(format!("{} is no state of a queue pair", attr.qp_state)))?;
        (*attr, *mask) = qp_attr_to_c(&object.qp_attr(state)?);
        Ok(0)
    })
}
