//! Multicast groups.

use std::ffi::{c_int, c_void};

use softroce::GroupMember;
use verbs_api::{CmId as _, Error, Result};
use verbs_sys::cm_constants::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_FULLMEMBER,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
};
use verbs_sys::{rdma_cm_id, rdma_cm_join_mc_attr_ex};

use super::calls::{Then, call};
use super::id::{self, Held};
use super::sockaddr;
use crate::entry::{self, value};

/// # Safety
/// `address` is NULL or an address.
unsafe fn join(
    held: &Held<'_>,
    address: *const c_void,
    member: GroupMember,
    context: *mut c_void,
) -> Result<Then> {
    // SAFETY: the caller's promise.
    let group = unsafe { sockaddr::read(address, "the address of the group") }?;
    held.join_multicast_as(group, member, context as u64)?;
    Ok(Then::Event)
}

/// `rdma_join_multicast`
///
/// # Safety
/// `address` is NULL or an address.
pub(crate) unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    address: *mut c_void,
    context: *mut c_void,
) -> c_int {
    call("rdma_join_multicast", id, |held| {
        // SAFETY: the caller's promise.
        unsafe { join(held, address, GroupMember::Full, context) }
    })
}

/// `rdma_join_multicast_ex`
///
/// # Safety
/// `attr` is NULL or valid with its address.
pub(crate) unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    call("rdma_join_multicast_ex", id, |held| {
        // SAFETY: the caller's promise.
        let attr = unsafe { value(attr, "the attributes") }?;
        // SAFETY: as above.
        unsafe { join(held, attr.addr, member_of(attr)?, context) }
    })
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
/// `address` is NULL or an address.
pub(crate) unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, address: *mut c_void) -> c_int {
    entry::count("rdma_leave_multicast", || {
        let held = id::hold(id)?;
        // SAFETY: the caller's promise.
        held.leave_multicast(unsafe { sockaddr::read(address, "the address of the group") }?)?;
        Ok(0)
    })
}
