//! Ids: what C sees of them, and their beginning and end.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::null_mut;

use softroce::lock::{Mutex, MutexGuard};
use verbs_api::{CmId as _, CmPortSpace, ConnectionManager as _, Error, Gid, Object as _, Result};
use verbs_sys::*;

use super::addrinfo::rdma_freeaddrinfo;
use super::event::{rdma_ack_cm_event, take_event};
use super::{channel, devices, live, sockaddr};
use crate::entry::{self, place};
use crate::handle::Handle;
use crate::{CmId, context};

/// The address of the C struct is the cookie of the provider's id.
pub(super) type IdHandle = Handle<rdma_cm_id, CmId, IdExtra>;

/// What an id keeps beside the provider's.
pub(super) struct IdExtra {
    /// It came with a request of a peer's.
    pub(super) is_passive: bool,
    state: Mutex<IdState>,
}

/// What changes of that.
pub(super) struct IdState {
    /// The channel of a synchronous id.
    pub(super) own_channel: Option<*mut rdma_event_channel>,
    /// What queue pairs of requests are made from (`rdma_create_ep`).
    pub(super) for_requests: Option<(*mut ibv_pd, ibv_qp_init_attr)>,
    /// What `id->route.path_rec` points at.
    path: Option<Box<ibv_sa_path_rec>>,
    /// What `rdma_resolve_addrinfo` found, or NULL.
    pub(super) found: *mut rdma_addrinfo,
    /// Whether the id made its completion queues.
    pub(super) made_send_cq: bool,
    pub(super) made_recv_cq: bool,
}

impl Default for IdState {
    fn default() -> Self {
        IdState {
            own_channel: None,
            for_requests: None,
            path: None,
            found: null_mut(),
            made_send_cq: false,
            made_recv_cq: false,
        }
    }
}

impl IdExtra {
    pub(super) fn lock(&self) -> MutexGuard<'_, IdState> {
        self.state.lock()
    }
}

/// The provider's id.
///
/// # Errors
/// EINVAL for NULL, ENODEV in a forked child.
///
/// # Safety
/// `id` is NULL or alive during `'a`.
pub(super) unsafe fn object<'a>(id: *mut rdma_cm_id) -> Result<&'a CmId> {
    live::check(live::IDS, id, "the id")?;
    // SAFETY: alive.
    unsafe { IdHandle::object(id, "the id") }
}

/// The queue pair type that ids of a port space have unless a program says otherwise.
fn qp_type_of(space: CmPortSpace) -> c_int {
    match space {
        CmPortSpace::Tcp | CmPortSpace::Ib => verbs_api::QpType::Rc as c_int,
        CmPortSpace::Udp | CmPortSpace::Ipoib => verbs_api::QpType::Ud as c_int,
    }
}

/// Hand an id out to C, on this channel and with this context of the program's.
pub(super) fn hand_out(
    object: CmId,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    is_passive: bool,
) -> Result<*mut rdma_cm_id> {
    // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    c.channel = channel;
    c.context = context;
    c.ps = object.port_space() as c_int;
    c.qp_type = qp_type_of(object.port_space());
    let extra = IdExtra {
        is_passive,
        state: Mutex::default(),
    };
    let reserved = Box::new(MaybeUninit::<IdHandle>::uninit());
    object.set_cookie(reserved.as_ptr() as u64);
    live::begins(live::IDS, IdHandle::hand_out_at(reserved, c, object, extra))
}

/// A new id; without a channel one of its own.
///
/// # Safety
/// `channel` is NULL or alive.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    space: c_int,
) -> Result<*mut rdma_cm_id> {
    let space = CmPortSpace::from_code(space as u32)
        .ok_or_else(|| Error::invalid(format!("{space:#x} is no port space (see rdma_port_space)")))?;
    let own = match channel.is_null() {
        true => Some(channel::create()?),
        false => None,
    };
    let channel = own.unwrap_or(channel);
    // SAFETY: the caller's promise, or just created.
    let made = unsafe { channel::object(channel) }.and_then(|(cm, _)| cm.create_id(space, 0));
    match made {
        Ok(object) => {
            let id = hand_out(object, channel, context, false)?;
            // SAFETY: just handed out.
            unsafe { IdHandle::extra(id) }.lock().own_channel = own;
            Ok(id)
        }
        Err(error) => {
            if let Some(own) = own {
                // SAFETY: created above, and nobody has seen it.
                unsafe { channel::destroy(own) }?;
            }
            Err(error)
        }
    }
}

/// The device and the addresses of an id, as far as they are known by now.
///
/// # Safety
/// `id` is alive, and its owner lets this library write it.
pub(super) unsafe fn refresh(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller's promise.
    let (object, c) = unsafe { (object(id)?, &mut *id) };
    let nowhere = |family_of: Option<SocketAddr>| match family_of {
        Some(SocketAddr::V6(_)) => SocketAddr::from(([0_u16; 8], 0)),
        Some(SocketAddr::V4(_)) | None => SocketAddr::from(([0_u8; 4], 0)),
    };
    let (local, peer) = (object.local_addr(), object.peer_addr());
    if local.is_some() || peer.is_some() {
        c.route.addr.src_addr = sockaddr::storage(&local.unwrap_or_else(|| nowhere(peer)));
    }
    if let Some(peer) = peer {
        c.route.addr.dst_addr = sockaddr::storage(&peer);
    }
    let Some(name) = object.device_name() else {
        return Ok(());
    };
    let gid = |address: Option<SocketAddr>| ibv_gid {
        raw: address
            .map(|address| Gid::from(address.ip()).0)
            .unwrap_or_default(),
    };
    c.route.addr.addr = rdma_ib_addr {
        sgid: gid(local),
        dgid: gid(peer),
        pkey: DEFAULT_PKEY.to_be(),
    };
    if c.verbs.is_null() {
        let device = devices::device(&name)?;
        c.verbs = device.context;
        c.port_num = PORT;
        if c.pd.is_null() {
            c.pd = device.pd;
        }
    }
    Ok(())
}

const DEFAULT_PKEY: u16 = 0xffff;
/// The only port of a device.
const PORT: u8 = 1;

/// The path of an id whose route is known, as a record of subnet administration.
///
/// # Safety
/// As [`refresh`].
pub(super) unsafe fn refresh_path(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller's promise.
    let c = unsafe { &mut *id };
    // SAFETY: an id's context is open for good.
    let port = unsafe { context::object(c.verbs) }?.port(PORT)?;
    /// "Exactly", of a selector.
    const EXACTLY: u8 = 2;
    /// 25 Gbit/s, as the port has it.
    const RATE: u8 = 15;
    const PACKET_LIFETIME: u8 = 16;
    const HOP_LIMIT: u8 = 64;
    let record = ibv_sa_path_rec {
        dgid: c.route.addr.addr.dgid,
        sgid: c.route.addr.addr.sgid,
        dlid: 0,
        slid: 0,
        raw_traffic: 0,
        flow_label: 0,
        hop_limit: HOP_LIMIT,
        traffic_class: 0,
        reversible: 1,
        numb_path: 1,
        pkey: DEFAULT_PKEY.to_be(),
        sl: 0,
        mtu_selector: EXACTLY,
        mtu: port.active_mtu as u8,
        rate_selector: EXACTLY,
        rate: RATE,
        packet_life_time_selector: EXACTLY,
        packet_life_time: PACKET_LIFETIME,
        preference: 0,
    };
    // SAFETY: alive.
    let mut state = unsafe { IdHandle::extra(id) }.lock();
    let path = state.path.insert(Box::new(record));
    c.route.path_rec = &raw mut **path;
    c.route.num_paths = 1;
    Ok(())
}

/// Acknowledge the event that a synchronous call left in the id.
///
/// # Safety
/// `id` is alive.
pub(super) unsafe fn let_go_of_event(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise; the event came from this library and was not acknowledged.
    unsafe {
        let event = std::mem::replace(&mut (*id).event, null_mut());
        if !event.is_null() {
            rdma_ack_cm_event(event);
        }
    }
}

/// After a call that leads to an event: a synchronous id waits for it, and its status is that of the call.
///
/// A thread may be cancelled while it waits, so nothing here has something to clean up.
///
/// # Safety
/// `id` is alive.
pub(super) unsafe fn complete(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if IdHandle::extra(id).lock().own_channel.is_none() {
            return 0;
        }
        let_go_of_event(id);
        if take_event(
            "waiting for the event of an id",
            (*id).channel,
            &raw mut (*id).event,
        ) != 0
        {
            return -1;
        }
        let event = &*(*id).event;
        let errno = match (event.event, event.status) {
            (_, 0) => return 0,
            (REJECTED, _) => libc::ECONNREFUSED,
            (_, status) => status.saturating_abs(),
        };
        entry::set_errno(errno);
        -1
    }
}

const REJECTED: c_int = verbs_api::CmEventKind::Rejected as c_int;

/// `rdma_create_id`
///
/// # Safety
/// `channel` is NULL or alive; `id` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: c_int,
) -> c_int {
    entry::count("rdma_create_id", || {
        // SAFETY: the caller's promise.
        unsafe { *place(id, "the place for the id")? = create(channel, context, space)? };
        Ok(0)
    })
}

/// `rdma_destroy_id`: waits until its events are acknowledged.
///
/// # Safety
/// `id` is NULL or alive, and not used afterwards.
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    entry::count("rdma_destroy_id", || unsafe { destroy(id) }.map(|()| 0))
}

/// # Safety
/// `id` is NULL or alive, and not used afterwards.
pub(super) unsafe fn destroy(id: *mut rdma_cm_id) -> Result<()> {
    if !live::ends(live::IDS, id, "the id")? {
        return Ok(());
    }
    // SAFETY: it was alive until now.
    unsafe {
        let_go_of_event(id);
        let (own, found) = {
            let mut state = IdHandle::extra(id).lock();
            (
                state.own_channel.take(),
                std::mem::replace(&mut state.found, null_mut()),
            )
        };
        rdma_freeaddrinfo(found);
        IdHandle::destroy(id, "the id", CmId::destroy)?;
        match own {
            Some(own) => channel::destroy(own),
            None => Ok(()),
        }
    }
}
