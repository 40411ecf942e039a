//! The functions of librdmacm, found by name in the library opened at run time.

use std::ffi::{c_int, c_void};
use std::path::Path;

use verbs_api::{Error, ErrorKind, Result};
use verbs_sys::{ibv_qp_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};

use crate::library::{Handle, Library as Verbs, functions};

functions! {
    "librdmacm":
    rdma_create_event_channel: fn() -> *mut rdma_event_channel,
    rdma_destroy_event_channel: fn(*mut rdma_event_channel),
    rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int,
    rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int,
    rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int,
    rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int,
    rdma_migrate_id: fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int,
    rdma_bind_addr: fn(*mut rdma_cm_id, *mut c_void) -> c_int,
    rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int,
    rdma_resolve_addr: fn(*mut rdma_cm_id, *mut c_void, *mut c_void, c_int) -> c_int,
    rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int,
    rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
    rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
    rdma_establish: fn(*mut rdma_cm_id) -> c_int,
    rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int,
    rdma_notify: fn(*mut rdma_cm_id, c_int) -> c_int,
    rdma_disconnect: fn(*mut rdma_cm_id) -> c_int,
    rdma_join_multicast: fn(*mut rdma_cm_id, *mut c_void, *mut c_void) -> c_int,
    rdma_leave_multicast: fn(*mut rdma_cm_id, *mut c_void) -> c_int,
    rdma_set_option: fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int,
    rdma_init_qp_attr: fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int,
}

impl Library {
    /// `verbs` is the library whose devices the ids are to name.
    pub(super) fn open(path: &Path, verbs: &Verbs) -> Result<Library> {
        let handle = Handle::open(path, "librdmacm1")
            .map_err(|error| Error::new(ErrorKind::Unsupported, error.to_string()))?;
        let Some(create) = handle.find("rdma_create_event_channel") else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} has no function rdma_create_event_channel: it is no librdmacm",
                    path.display()
                ),
            ));
        };
        of_one_world(path, handle, create, verbs)?;
        Ok(Library::load(handle))
    }
}

/// The ids of a librdmacm lead to devices of the libibverbs that it stands on itself. Were that another one than ours,
/// pointers of one would get into the other.
fn of_one_world(path: &Path, handle: Handle, create: *mut c_void, verbs: &Verbs) -> Result<()> {
    let stands_on = handle
        .find("ibv_open_device")
        .map_or(0, |function| function as usize);
    // The drop-in is both in one, and the system's librdmacm may have found it in the place of the system's libibverbs.
    let is_mixed = handle
        .drop_in_mark()
        .is_some_and(|mark| object_of(mark) != object_of(create));
    if stands_on != verbs.identity() || is_mixed {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "{} belongs to another libibverbs than the one that is open, so that its ids would lead to devices of \
                 that. Softroce's drop-in has a librdmacm in itself; to a libibverbs of the system belongs the \
                 system's librdmacm.so.1",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// The shared object that an address lies in, by its own.
fn object_of(address: *mut c_void) -> usize {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about, and the place is valid.
    match unsafe { libc::dladdr(address, found.as_mut_ptr()) } {
        0 => 0,
        // SAFETY: filled in.
        _ => unsafe { found.assume_init() }.dli_fbase as usize,
    }
}
