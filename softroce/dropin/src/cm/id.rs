//! Ids: what C sees of them, and their beginning and end.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Deref;
use std::ptr::null_mut;

use softroce::lock::{Mutex, MutexGuard};
use verbs_api::{CmId as _, CmPortSpace, ConnectionManager as _, Error, Gid, Object as _, Result};
use verbs_sys::convert::sockaddr_to_c;
use verbs_sys::*;

use super::addrinfo::rdma_freeaddrinfo;
use super::live::Serial;
use super::{channel, devices, event, live};
use crate::entry::{self, place};
use crate::handle::Handle;
use crate::{CmId, context};

/// The address of the C struct is the cookie of the provider's id.
pub(super) type IdHandle = Handle<rdma_cm_id, CmId, IdExtra>;

/// What an id keeps beside the provider's.
pub(super) struct IdExtra {
    /// It came with a request of a peer's.
    is_passive: bool,
    /// Held by calls that use the id; what they wait for they wait for without it.
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

/// An id in a call: it stays, and no other call changes it.
pub(super) struct Held<'a> {
    // Given back in this order.
    pub(super) state: MutexGuard<'a, IdState>,
    object: &'a CmId,
    id: *mut rdma_cm_id,
    pub(super) is_passive: bool,
    visit: live::Visit,
}

impl Deref for Held<'_> {
    type Target = CmId;

    fn deref(&self) -> &CmId {
        self.object
    }
}

impl Held<'_> {
    /// By which C knows it.
    pub(super) fn pointer(&self) -> *mut rdma_cm_id {
        self.id
    }

    /// Which of those it is that have been at its address.
    pub(super) fn serial(&self) -> Serial {
        self.visit.serial()
    }

    /// What C sees of it.
    pub(super) fn c(&mut self) -> &mut rdma_cm_id {
        // SAFETY: alive while it is held, and by this library only written with its lock held.
        unsafe { &mut *self.id }
    }
}

/// Use an id.
///
/// # Errors
/// EINVAL for NULL and for what is no id (any more), ENODEV in a forked child.
pub(super) fn hold<'a>(id: *mut rdma_cm_id) -> Result<Held<'a>> {
    held(id, live::enter(live::IDS, id, "the id")?)
}

/// The same, unless it is another one by now.
pub(super) fn hold_again<'a>(id: *mut rdma_cm_id, serial: Serial) -> Result<Held<'a>> {
    held(id, live::enter_again(live::IDS, id, serial, "the id")?)
}

fn held<'a>(id: *mut rdma_cm_id, visit: live::Visit) -> Result<Held<'a>> {
    // SAFETY: it is one of ours, and stays while the visit lasts, which is as long as what comes of it.
    let (object, extra) = unsafe { (IdHandle::object(id, "the id")?, IdHandle::extra(id)) };
    Ok(Held {
        state: extra.state.lock(),
        object,
        id,
        is_passive: extra.is_passive,
        visit,
    })
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
pub(super) fn create(
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
    let made = channel::enter(channel).and_then(|entered| entered.cm.create_id(space, 0));
    match made {
        Ok(object) => {
            let id = hand_out(object, channel, context, false)?;
            hold(id)?.state.own_channel = own;
            Ok(id)
        }
        Err(error) => {
            if let Some(own) = own {
                channel::destroy(own)?;
            }
            Err(error)
        }
    }
}

const DEFAULT_PKEY: u16 = 0xffff;
/// The only port of a device.
const PORT: u8 = 1;

impl Held<'_> {
    /// Write down the device and the addresses, as far as they are known by now.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let nowhere = |family_of: Option<SocketAddr>| match family_of {
            Some(SocketAddr::V6(_)) => SocketAddr::from(([0_u16; 8], 0)),
            Some(SocketAddr::V4(_)) | None => SocketAddr::from(([0_u8; 4], 0)),
        };
        let (local, peer) = (self.local_addr(), self.peer_addr());
        let name = self.device_name();
        let c = self.c();
        if local.is_some() || peer.is_some() {
            c.route.addr.src_addr = sockaddr_to_c(&local.unwrap_or_else(|| nowhere(peer)));
        }
        if let Some(peer) = peer {
            c.route.addr.dst_addr = sockaddr_to_c(&peer);
        }
        let Some(name) = name else {
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

    /// Write down the path, once the route is known, as a record of subnet administration.
    pub(super) fn refresh_path(&mut self) -> Result<()> {
        /// "Exactly", of a selector.
        const EXACTLY: u8 = 2;
        /// 25 Gbit/s, as the port has it.
        const RATE: u8 = 15;
        const PACKET_LIFETIME: u8 = 16;
        const HOP_LIMIT: u8 = 64;
        let c = self.c();
        // SAFETY: an id's context is open for good.
        let port = unsafe { context::object(c.verbs) }?.port(PORT)?;
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
        let path = &raw mut **self.state.path.insert(Box::new(record));
        let c = self.c();
        c.route.path_rec = path;
        c.route.num_paths = 1;
        Ok(())
    }

    /// Take out the event that a synchronous call has left in the id, or NULL: to be acknowledged once the id is given back.
    #[must_use = "it must be acknowledged"]
    pub(super) fn take_event(&mut self) -> *mut rdma_cm_event {
        std::mem::replace(&mut self.c().event, null_mut())
    }
}

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
        let place = unsafe { place(id, "the place for the id") }?;
        *place = create(channel, context, space)?;
        Ok(0)
    })
}

/// `rdma_destroy_id`: waits until its events are acknowledged, and until other calls have left it.
pub(crate) extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    entry::count("rdma_destroy_id", || destroy(id).map(|()| 0))
}

/// To be called while this thread holds no id.
pub(super) fn destroy(id: *mut rdma_cm_id) -> Result<()> {
    if !live::ends(live::IDS, id, "the id")? {
        return Ok(());
    }
    // SAFETY: it was alive until now, and this call alone has it.
    let (event, own, found) = unsafe {
        let mut state = IdHandle::extra(id).state.lock();
        (
            std::mem::replace(&mut (*id).event, null_mut()),
            state.own_channel.take(),
            std::mem::replace(&mut state.found, null_mut()),
        )
    };
    event::let_go(event);
    // SAFETY: made by this library, and now nobody's; as above.
    unsafe {
        rdma_freeaddrinfo(found);
        IdHandle::destroy(id, "the id", CmId::destroy)?;
    }
    match own {
        Some(own) => channel::destroy_own(own),
        None => Ok(()),
    }
}
