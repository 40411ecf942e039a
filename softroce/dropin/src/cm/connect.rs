//! Connecting, and its end.

use std::ffi::{c_int, c_void};

use verbs_api::{CmId as _, ConnectionParameters, Error, EventKind, QpState, QpType, Result};
use verbs_sys::cm_constants::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES};
use verbs_sys::convert::{qp_attr_to_c, qp_type_from_c};
use verbs_sys::*;

use super::calls::{Then, call};
use super::id::{self, Held};
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
/// The private data of `parameters` is as long as it says, during `'a`.
unsafe fn parameters<'a>(
    held: &mut Held<'_>,
    parameters: &rdma_conn_param,
) -> Result<ConnectionParameters<'a>> {
    let is_datagram = held.port_space().is_datagram();
    let c = held.c();
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
/// `param` is NULL or valid with its private data.
pub(crate) unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    call("rdma_connect", id, |held| {
        // SAFETY: the caller's promise.
        let said = match unsafe { param.as_ref() } {
            // SAFETY: the caller's promise.
            Some(param) => unsafe { parameters(held, param) }?,
            None => ConnectionParameters {
                responder_resources: RDMA_MAX_RESP_RES,
                initiator_depth: RDMA_MAX_INIT_DEPTH,
                retry_count: RETRIES,
                rnr_retry_count: RETRIES,
                ..ConnectionParameters::default()
            },
        };
        held.connect(&said)?;
        Ok(Then::Event)
    })
}

/// `rdma_accept`
///
/// # Safety
/// `param` is NULL or valid with its private data.
pub(crate) unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    call("rdma_accept", id, |held| {
        // SAFETY: the caller's promise.
        let said = match unsafe { param.as_ref() } {
            // SAFETY: the caller's promise.
            Some(param) => Some(unsafe { parameters(held, param) }?),
            None => None,
        };
        held.accept(said.as_ref())?;
        Ok(match held.port_space().is_datagram() {
            true => Then::Nothing,
            false => Then::Event,
        })
    })
}

/// `rdma_establish`: after the peer's answer, when the queue pair is the program's own.
pub(crate) extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    entry::count("rdma_establish", || {
        let mut held = id::hold(id)?;
        if !held.c().qp.is_null() {
            return Err(Error::invalid(
                "the id has a queue pair, which it makes ready itself",
            ));
        }
        held.accept(None)?;
        Ok(0)
    })
}

/// `rdma_reject`
///
/// # Safety
/// `data` is NULL or has `length` bytes.
pub(crate) unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    entry::count("rdma_reject", || {
        // SAFETY: the caller's promise.
        id::hold(id)?.reject(unsafe { bytes(data, length) }?)?;
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
        id::hold(id)?.reject_vendor_options(unsafe { bytes(data, length) }?)?;
        Ok(0)
    })
}

/// `rdma_notify`: what a queue pair's asynchronous event says about its connection.
pub(crate) extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    entry::count("rdma_notify", || {
        let held = id::hold(id)?;
        match EventKind::from_code(event as u32) {
            Some(EventKind::CommEst) => held.established()?,
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
pub(crate) extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    call("rdma_disconnect", id, |held| {
        held.disconnect()?;
        Ok(Then::Event)
    })
}

/// `rdma_init_qp_attr`: for the state that stands in the attributes.
///
/// # Safety
/// `attr` and `mask` are NULL or valid.
pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    entry::count("rdma_init_qp_attr", || {
        let held = id::hold(id)?;
        // SAFETY: the caller's promise.
        let (attr, mask) = unsafe {
            (
                place(attr, "the attributes")?,
                place(mask, "the place for the mask")?,
            )
        };
        let state = QpState::from_code(attr.qp_state as u32)
            .ok_or_else(|| Error::invalid(format!("{} is no state of a queue pair", attr.qp_state)))?;
        (*attr, *mask) = qp_attr_to_c(&held.qp_attr(state)?);
        Ok(0)
    })
}
