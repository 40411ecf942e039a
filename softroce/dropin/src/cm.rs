//! librdmacm.so.1: connections by address and port.
//!
//! The names stand in the same shared object, under version nodes of their own, so that ids, queue pairs and devices are
//! those of one library. Behind them stands [`softroce::Cm`]. What holds beyond the contracts of the [crate](crate):
//!
//! - the cookie of an id is the address of its C struct; an event leads to it by that;
//! - all ids use one context a device, opened at the first need and never closed ([`devices`]);
//! - members of the C structs are written where the man pages say that they change, and never looked at again, but for
//!   those that programs set: the queue pair, its queues, the protection domain;
//! - an id without an event channel has one of its own, and calls that lead to an event wait for it ([`calls`]);
//! - pointers to ids, channels and events that are not alive are refused ([`live`]); what was inherited through fork
//!   answers ENODEV, and giving it back does nothing, with success.

use std::ffi::c_int;

use verbs_api::{Error, ErrorKind, Result};

mod address;
mod addrinfo;
mod calls;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod event;
mod id;
mod live;
mod multicast;
mod options;
mod queue_pair;
mod shared_receive;
mod sockaddr;
mod texts;

pub(crate) use address::{
    rdma_bind_addr, rdma_get_dst_port, rdma_get_src_port, rdma_listen, rdma_resolve_addr, rdma_resolve_route,
};
pub(crate) use addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo, rdma_query_addrinfo, rdma_resolve_addrinfo};
pub(crate) use channel::{rdma_create_event_channel, rdma_destroy_event_channel, rdma_migrate_id};
pub(crate) use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_init_qp_attr, rdma_notify, rdma_reject,
    rdma_reject_ece,
};
use devices::Devices;
pub(crate) use devices::{rdma_free_devices, rdma_get_devices};
pub(crate) use endpoint::{rdma_create_ep, rdma_destroy_ep, rdma_get_request};
pub(crate) use event::{rdma_ack_cm_event, rdma_get_cm_event, rdma_write_cm_event};
pub(crate) use id::{rdma_create_id, rdma_destroy_id};
pub(crate) use live::Process;
pub(crate) use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub(crate) use options::{rdma_get_remote_ece, rdma_set_local_ece, rdma_set_option};
pub(crate) use queue_pair::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp};
pub(crate) use shared_receive::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};
pub(crate) use texts::rdma_event_str;

/// What a verb of this library returned by pointer, as a result again. (The verb has told its reason already.)
fn made<T>(pointer: *mut T, what: &'static str) -> Result<*mut T> {
    if pointer.is_null() {
        let errno = std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        return Err(Error::new(ErrorKind::from_errno(errno), what));
    }
    Ok(pointer)
}

/// The same for a verb that returns an error number.
fn done(errno: c_int, what: &'static str) -> Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(Error::new(ErrorKind::from_errno(errno), what)),
    }
}
