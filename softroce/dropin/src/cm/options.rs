//! Options of ids.

use std::ffi::{c_int, c_void};

use verbs_api::{CmId as _, Error, ErrorKind, Result};
use verbs_sys::cm_constants::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS,
};
use verbs_sys::{ibv_ece, rdma_cm_id};

use super::id;
use crate::entry::{self, null, place, value};

/// The value of an option.
///
/// # Safety
/// `value` is NULL or has `length` bytes.
unsafe fn read<const N: usize>(value: *const c_void, length: usize) -> Result<[u8; N]> {
    if value.is_null() {
        return Err(null("the value of the option"));
    }
    if length != N {
        return Err(Error::invalid(format!("the option has {N} bytes, not {length}")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { value.cast::<[u8; N]>().read() })
}

/// `rdma_set_option`
///
/// # Safety
/// `value` is NULL or has `length` bytes.
pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    entry::count("rdma_set_option", || {
        let object = id::hold(id)?;
        // SAFETY: the caller's promise.
        let byte = || unsafe { read::<1>(value, length) }.map(|[byte]| byte);
        // SAFETY: as above.
        let flag = || unsafe { read::<4>(value, length) }.map(|bytes| c_int::from_ne_bytes(bytes) != 0);
        match (level, name) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => object.set_type_of_service(byte()?)?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => object.set_reuse_address(flag()?)?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => object.set_only_own_family(flag()?)?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => object.set_ack_timeout(byte()?)?,
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
                return Err(Error::unsupported("a path of InfiniBand's subnet administration"));
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::System(libc::ENOSYS),
                    format!("there is no option {name} of level {level}"),
                ));
            }
        }
        Ok(0)
    })
}

/// `rdma_set_local_ece`: what to tell the peer about vendor options. There is nothing to tell: no queue pair of softroce's
/// has any (`ibv_query_ece`).
///
/// # Safety
/// `ece` is NULL or valid.
pub(crate) unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    entry::count("rdma_set_local_ece", || {
        let held = id::hold(id)?;
        // SAFETY: the caller's promise.
        let ece = unsafe { value(ece, "the vendor options") }?;
        held.expect_alive("rdma_set_local_ece")?;
        match (ece.vendor_id, ece.options) {
            (0, 0) => Ok(0),
            _ => Err(Error::unsupported("telling a peer about vendor options")),
        }
    })
}

/// `rdma_get_remote_ece`: what the peer has told; it was not looked at, as no queue pair can do anything with it.
///
/// # Safety
/// `ece` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    entry::count("rdma_get_remote_ece", || {
        let _held = id::hold(id)?;
        // SAFETY: the caller's promise.
        let ece = unsafe { place(ece, "the place for vendor options") }?;
        *ece = ibv_ece {
            vendor_id: 0,
            options: 0,
            comp_mask: 0,
        };
        Ok(0)
    })
}
