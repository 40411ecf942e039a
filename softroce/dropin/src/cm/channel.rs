//! Event channels.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use softroce::lock::Mutex;
use verbs_api::{CmId as _, ConnectionManager as _, Result};
use verbs_sys::{rdma_cm_event, rdma_cm_id, rdma_event_channel};

use super::live::{self, Serial};
use super::{event, id};
use crate::Cm;
use crate::device::Registry;
use crate::entry::{self, explain, number, pointer};
use crate::handle::Handle;

pub(super) type ChannelHandle = Handle<rdma_event_channel, Cm, ChannelExtra>;

/// What a channel keeps beside the provider's.
pub(super) struct ChannelExtra {
    /// Held while an event is taken: the new id in it has no cookie at first, and its own events must wait for that.
    pub(super) taking: Mutex<()>,
}

/// A channel in a call: it stays.
pub(super) struct Entered<'a> {
    pub(super) cm: &'a Cm,
    pub(super) extra: &'a ChannelExtra,
    _visit: live::Visit,
}

/// Use a channel.
///
/// # Errors
/// EINVAL for NULL and for what is no channel (any more), ENODEV in a forked child.
pub(super) fn enter<'a>(channel: *mut rdma_event_channel) -> Result<Entered<'a>> {
    entered(channel, live::enter(live::CHANNELS, channel, WHAT)?)
}

/// The same, unless it is another one by now.
pub(super) fn enter_again<'a>(channel: *mut rdma_event_channel, serial: Serial) -> Result<Entered<'a>> {
    entered(channel, live::enter_again(live::CHANNELS, channel, serial, WHAT)?)
}

const WHAT: &str = "the event channel";

fn entered<'a>(channel: *mut rdma_event_channel, visit: live::Visit) -> Result<Entered<'a>> {
    // SAFETY: it is one of ours, and stays while the visit lasts, which is as long as what comes of it.
    let (cm, extra) = unsafe {
        (
            ChannelHandle::object(channel, WHAT)?,
            ChannelHandle::extra(channel),
        )
    };
    Ok(Entered {
        cm,
        extra,
        _visit: visit,
    })
}

/// A new channel.
pub(super) fn create() -> Result<*mut rdma_event_channel> {
    let cm = Cm::new(Registry::this()?.provider())?;
    let c = rdma_event_channel {
        fd: cm.fd().as_raw_fd(),
    };
    let extra = ChannelExtra {
        taking: Mutex::default(),
    };
    live::begins(live::CHANNELS, ChannelHandle::hand_out(c, cm, extra))
}

/// Its end. To be called while this thread is in no channel.
pub(super) fn destroy(channel: *mut rdma_event_channel) -> Result<()> {
    if !live::ends(live::CHANNELS, channel, WHAT)? {
        return Ok(());
    }
    // SAFETY: it was alive until now, and this call alone has it.
    unsafe {
        ChannelHandle::destroy(channel, WHAT, |cm| {
            drop(cm);
            Ok(())
        })
    }
}

/// The end of a channel that an id had for itself. Who waits on it is woken, and finds it gone.
pub(super) fn destroy_own(channel: *mut rdma_event_channel) -> Result<()> {
    enter(channel)?.cm.wake();
    destroy(channel)
}

/// `rdma_create_event_channel`
pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer("rdma_create_event_channel", || {
        create().inspect_err(|error| explain("rdma_create_event_channel", error))
    })
}

/// `rdma_destroy_event_channel`
pub(crate) extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    number("rdma_destroy_event_channel", || destroy(channel));
}

/// `rdma_migrate_id`: to another channel, or (NULL) to one of its own, which makes it synchronous.
pub(crate) extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    entry::count("rdma_migrate_id", || migrate(id, channel).map(|()| 0))
}

/// To be called while this thread holds no id.
pub(super) fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Result<()> {
    let (target, own) = match channel.is_null() {
        true => {
            let own = create()?;
            (own, Some(own))
        }
        false => (channel, None),
    };
    // What it leaves behind goes once the id is given back: in the channel may be a call that waits for the id.
    let (event, before) = match move_to(id, target, own) {
        Ok(left) => left,
        Err(error) => {
            if let Some(own) = own {
                destroy(own)?;
            }
            return Err(error);
        }
    };
    event::let_go(event);
    match before {
        Some(before) => destroy_own(before),
        None => Ok(()),
    }
}

/// The event and the channel of its own that an id has left.
type Left = (*mut rdma_cm_event, Option<*mut rdma_event_channel>);

fn move_to(
    id: *mut rdma_cm_id,
    target: *mut rdma_event_channel,
    own: Option<*mut rdma_event_channel>,
) -> Result<Left> {
    let channel = enter(target)?;
    let mut held = id::hold(id)?;
    held.migrate(channel.cm)?;
    held.c().channel = target;
    let before = std::mem::replace(&mut held.state.own_channel, own);
    Ok((held.take_event(), before))
}
