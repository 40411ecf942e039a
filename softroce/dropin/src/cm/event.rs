//! Events: from the provider's to those of C, and their acknowledgement.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::time::Duration;

use verbs_api::{Acknowledge, CmEvent, CmEventKind, CmId as _, ConnectionManager as _, Error, Result};
use verbs_sys::convert::ah_attr_to_c;
use verbs_sys::*;

use super::id::Held;
use super::{channel, id, live};
use crate::entry::{self, null, place};
use crate::handle::Handle;
use crate::wait::{self, Attempt};
use crate::{Cm, CmId};

type EventHandle = Handle<rdma_cm_event, Taken>;

/// What belongs to an event in C's hands.
struct Taken {
    /// The struct points at it.
    _private_data: Vec<u8>,
    /// Dropped last: whoever destroys the id waits for it.
    _acknowledge: Option<Acknowledge>,
}

/// How long a call waits for nothing on a channel that is gone. Threads that take events are forgotten by programs that end
/// (rping's are): their main thread destroys the channel, and counts on the other to wait in it for ever, or it would end
/// the program with an error.
const FORGOTTEN_MS: c_int = 1000;

/// `rdma_get_cm_event`: waits, unless `O_NONBLOCK` is set on the channel's descriptor.
///
/// # Safety
/// `event` is NULL or valid for a write.
pub(crate) unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    const VERB: &str = "rdma_get_cm_event";
    let mut serial = None;
    let found = entry::count(VERB, || {
        // SAFETY: the caller's promise.
        unsafe { place(event, "the place for the event") }?;
        serial = Some(live::enter(live::CHANNELS, channel, "the event channel")?.serial());
        Ok(0)
    });
    let status = match serial {
        None => found,
        Some(serial) => wait::until_taken(VERB, || {
            // SAFETY: the caller's promise.
            take(&channel::enter_again(channel, serial)?, unsafe {
                place(event, "the place for the event")
            }?)
        }),
    };
    if status != 0 && !channel.is_null() && live::is_gone(live::CHANNELS, channel) {
        let errno = std::io::Error::last_os_error().raw_os_error();
        wait::pause(FORGOTTEN_MS);
        entry::set_errno(errno.unwrap_or(libc::EINVAL));
    }
    status
}

/// The next event, if there is one. To be called while this thread holds no id.
pub(super) fn take(channel: &channel::Entered<'_>, place: &mut *mut rdma_cm_event) -> Result<Attempt> {
    let _taking = channel.extra.taking.lock();
    while let Some(mut event) = channel.cm.wait(Some(Duration::ZERO))? {
        let id = event.cookie as *mut rdma_cm_id;
        // Kept until the end of this round, so that until then no other id can be where this one is.
        let nothing = Acknowledge::new(|| ());
        let mut acknowledge = Some(std::mem::replace(&mut event.acknowledge, nothing));
        match hand_out(event, &mut acknowledge) {
            Ok(taken) => {
                *place = taken;
                return Ok(Attempt::Taken);
            }
            // Another thread destroys the id at this very moment: its events go with it.
            Err(_) if live::is_gone(live::IDS, id) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Attempt::Nothing(channel.cm.fd().as_raw_fd()))
}

/// `rdma_ack_cm_event`
pub(crate) extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    entry::count("rdma_ack_cm_event", || {
        match event.is_null() {
            true => return Err(null("the event")),
            false => acknowledge(event)?,
        }
        Ok(0)
    })
}

/// Acknowledge an event of C's; NULL is none.
///
/// # Errors
/// EINVAL: it is none (any more).
pub(super) fn acknowledge(event: *mut rdma_cm_event) -> Result<()> {
    if event.is_null() || !live::ends(live::EVENTS, event, "the event")? {
        return Ok(());
    }
    // SAFETY: it was alive until now, and this call alone has it.
    unsafe {
        EventHandle::destroy(event, "the event", |taken| {
            drop::<Taken>(taken);
            Ok(())
        })
    }
}

/// Acknowledge an event that was left in an id, or NULL, unless the program has done so itself.
pub(super) fn let_go(event: *mut rdma_cm_event) {
    let _ = acknowledge(event);
}

/// `rdma_write_cm_event`: an event of the program's own.
pub(crate) extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: c_int,
    status: c_int,
    argument: u64,
) -> c_int {
    entry::count("rdma_write_cm_event", || {
        let held = id::hold(id)?;
        if event != CmEventKind::User as c_int {
            return Err(Error::invalid(format!(
                "a program writes events of type {} (RDMA_CM_EVENT_USER), not {event}",
                CmEventKind::User as c_int
            )));
        }
        held.tell_program(CmEventKind::User, status, argument);
        Ok(0)
    })
}

/// An event as C has it. Its acknowledgement is taken when that works.
fn hand_out(event: CmEvent<Cm>, acknowledge: &mut Option<Acknowledge>) -> Result<*mut rdma_cm_event> {
    let id = event.cookie as *mut rdma_cm_id;
    let kind = event.kind;
    let mut held = id::hold(id)?;
    match kind {
        CmEventKind::AddrResolved => held.refresh()?,
        CmEventKind::RouteResolved => held.refresh_path()?,
        _ => {}
    }
    let is_datagram = held.port_space().is_datagram();
    // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
    let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
    c.id = id;
    c.event = kind as c_int;
    c.status = event.status;
    let private_data = match brings_private_data(held.is_passive, kind) {
        true => event.private_data,
        false => Vec::new(),
    };
    let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    let mut pointer = match private_data.as_ptr() {
        _ if private_data.is_empty() => null_mut(),
        data => data.cast::<c_void>().cast_mut(),
    };
    if matches!(kind, CmEventKind::MulticastJoin | CmEventKind::MulticastError) {
        // In its place stands what the program passed when it joined.
        pointer = event.group_cookie as *mut c_void;
    }
    if is_datagram {
        let peer = event.datagram_peer;
        c.param.ud = rdma_ud_param {
            private_data: pointer,
            private_data_len: length,
            ah_attr: ah_attr_to_c(&peer.map(|peer| peer.av).unwrap_or_default()),
            qp_num: peer.map_or(0, |peer| peer.qp_num),
            qkey: peer.map_or(0, |peer| peer.qkey),
        };
    } else {
        let peer = event.peer;
        c.param.conn = rdma_conn_param {
            private_data: pointer,
            private_data_len: length,
            responder_resources: peer.responder_resources,
            initiator_depth: peer.initiator_depth,
            flow_control: peer.flow_control.into(),
            retry_count: peer.retry_count,
            rnr_retry_count: peer.rnr_retry_count,
            srq: peer.srq.into(),
            qp_num: peer.qp_num,
        };
    }
    if kind == CmEventKind::User {
        c.param.arg = event.group_cookie;
    }
    if let Some(request) = event.request {
        c.listen_id = id;
        c.id = hand_out_request(&mut held, request)?;
    }
    let taken = Taken {
        _private_data: private_data,
        _acknowledge: acknowledge.take(),
    };
    live::begins(live::EVENTS, EventHandle::hand_out(c, taken, ()))
}

/// Whether an event has private data for the program; as the kernel has it, a passive side gets none with the last
/// message of the handshake, and nobody with the messages of the end.
fn brings_private_data(is_passive: bool, kind: CmEventKind) -> bool {
    match kind {
        CmEventKind::ConnectRequest
        | CmEventKind::ConnectResponse
        | CmEventKind::Rejected
        | CmEventKind::Unreachable => true,
        CmEventKind::Established => !is_passive,
        _ => false,
    }
}

/// The new id that a request brings. It takes after its listener.
fn hand_out_request(listener: &mut Held<'_>, request: CmId) -> Result<*mut rdma_cm_id> {
    let is_synchronous = listener.state.own_channel.is_some();
    let (channel, context, qp_type) = {
        let c = listener.c();
        (c.channel, c.context, c.qp_type)
    };
    let new = id::hand_out(request, channel, context, true)?;
    let made_ready = || {
        let mut held = id::hold(new)?;
        held.c().qp_type = qp_type;
        held.refresh()?;
        held.refresh_path()
    };
    let ready = made_ready().and_then(|()| match is_synchronous {
        true => channel::migrate(new, null_mut()),
        false => Ok(()),
    });
    if let Err(error) = ready {
        // The request is refused by that.
        id::destroy(new)?;
        return Err(error);
    }
    Ok(new)
}
