//! Multicast groups.

use std::ffi::{c_int, c_void};

use softroce::GroupMember;
use verbs_api::{CmId as _, Error, Result};
use verbs_sys::cm_constants::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_FULLMEMBER,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
};
use verbs_sys::{rdma_cm_id, rdma_cm_join_mc_attr_ex};

use super::{id, sockaddr};
use crate::entry::{self, value};

/// # Safety
/// `id` is NULL or alive, `address` NULL or an address.
unsafe fn join(
    id: *mut rdma_cm_id,
    address: *const c_void,
    member: GroupMember,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let group = sockaddr::read(address, "the address of the group")?;
        id::object(id)?.join_multicast_as(group, member, context as u64)
    }
}

/// `rdma_join_multicast`
///
/// # Safety
/// `id` is NULL or alive, `address` NULL or an address.
pub(crate) unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    address: *mut c_void,
    context: *mut c_void,
) -> c_int {
    let asked = entry::count("rdma_join_multicast", || {
        // SAFETY: the caller's promise.
        unsafe { join(id, address, GroupMember::Full, context) }.map(|()| 0)
    });
    match asked {
        // SAFETY: alive, as was just seen.
        0 => unsafe { id::complete(id) },
        failed => failed,
    }
}

/// `rdma_join_multicast_ex`
///
/// # Safety
/// `id` is NULL or alive, `attr` NULL or valid with its address.
pub(crate) unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    let asked = entry::count("rdma_join_multicast_ex", || {
        // SAFETY: the caller's promise.
        unsafe {
            let attr = value(attr, "the attributes")?;
            join(id, attr.addr, member_of(attr)?, context)?;
        }
        Ok(0)
    });
    match asked {
        // SAFETY: alive, as was just seen.
        0 => unsafe { id::complete(id) },
        failed => failed,
    }
}

fn member_of(attr: &rdma_cm_join_mc_attr_ex) -> Result<GroupMember> {
    const KNOWN: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if attr.comp_mask & !KNOWN != 0 || attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
        return Err(Error::invalid(format!(
            "the mask {:#x} must say the address (1), may say flags (2), and nothing else",
            attr.comp_mask
        )));
    }
    match (attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, attr.join_flags) {
        (0, _) | (_, RDMA_MC_JOIN_FLAG_FULLMEMBER) => Ok(GroupMember::Full),
        (_, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) => Ok(GroupMember::SendOnly),
        (_, other) => Err(Error::invalid(format!(
            "{other} is no way to join (0: full member, 1: send-only)"
        ))),
    }
}

/// `rdma_leave_multicast`
///
/// # Safety
/// `id` is NULL or alive, `address` NULL or an address.
pub(crate) unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, address: *mut c_void) -> c_int {
    entry::count("rdma_leave_multicast", || {
        // SAFETY: the caller's promise.
        unsafe { id::object(id)?.leave_multicast(sockaddr::read(address, "the address of the group")?)? };
        Ok(0)
    })
}
