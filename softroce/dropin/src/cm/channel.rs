//! Event channels.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use softroce::lock::Mutex;
use verbs_api::{CmId as _, ConnectionManager as _, Result};
use verbs_sys::{rdma_cm_id, rdma_event_channel};

use super::id::{self, IdHandle};
use super::live;
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

/// The provider's channel, and what is kept beside it.
///
/// # Safety
/// `channel` is NULL or alive during `'a`.
pub(super) unsafe fn object<'a>(channel: *mut rdma_event_channel) -> Result<(&'a Cm, &'a ChannelExtra)> {
    live::check(live::CHANNELS, channel, "the event channel")?;
    // SAFETY: alive.
    unsafe {
        Ok((
            ChannelHandle::object(channel, "the event channel")?,
            ChannelHandle::extra(channel),
        ))
    }
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

/// Its end.
///
/// # Safety
/// `channel` is NULL or alive, and not used afterwards.
pub(super) unsafe fn destroy(channel: *mut rdma_event_channel) -> Result<()> {
    if !live::ends(live::CHANNELS, channel, "the event channel")? {
        return Ok(());
    }
    // SAFETY: it was alive until now.
    unsafe {
        ChannelHandle::destroy(channel, "the event channel", |cm| {
            drop(cm);
            Ok(())
        })
    }
}

/// `rdma_create_event_channel`
pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer("rdma_create_event_channel", || {
        create().inspect_err(|error| explain("rdma_create_event_channel", error))
    })
}

/// `rdma_destroy_event_channel`
///
/// # Safety
/// `channel` is NULL or alive, and not used afterwards; its ids are destroyed.
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's promise.
    number("rdma_destroy_event_channel", || unsafe { destroy(channel) });
}

/// `rdma_migrate_id`: to another channel, or (NULL) to one of its own, which makes it synchronous.
///
/// # Safety
/// `id` and `channel` are NULL or alive.
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    entry::count("rdma_migrate_id", || {
        // SAFETY: the caller's promise.
        unsafe { migrate(id, channel) }.map(|()| 0)
    })
}

/// # Safety
/// `id` and `channel` are NULL or alive.
pub(super) unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Result<()> {
    // SAFETY: the caller's promise.
    let object = unsafe { id::object(id) }?;
    let (target, own) = match channel.is_null() {
        true => {
            let own = create()?;
            (own, Some(own))
        }
        false => (channel, None),
    };
    // SAFETY: the caller's promise, or just created.
    let moved = unsafe { self::object(target) }.and_then(|(cm, _)| object.migrate(cm));
    if let Err(error) = moved {
        if let Some(own) = own {
            // SAFETY: created above, and nobody has seen it.
            unsafe { destroy(own) }?;
        }
        return Err(error);
    }
    // SAFETY: the id is alive; its own channel, if it had one, is left by it.
    unsafe {
        id::let_go_of_event(id);
        (*id).channel = target;
        let before = std::mem::replace(&mut IdHandle::extra(id).lock().own_channel, own);
        match before {
            Some(before) => destroy(before),
            None => Ok(()),
        }
    }
}
