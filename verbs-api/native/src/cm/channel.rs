//! Event channels of librdmacm.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_api::Result;
use verbs_sys::rdma_event_channel;

use super::manager::Manager;
use crate::context::set_nonblocking;

/// A channel of the library. What is behind it is touched under the lock of its manager only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawChannel(NonNull<rdma_event_channel>);

// SAFETY: channels belong to no thread; the lock keeps threads apart.
unsafe impl Send for RawChannel {}
// SAFETY: as above.
unsafe impl Sync for RawChannel {}

impl RawChannel {
    pub(super) fn new(channel: *mut rdma_event_channel) -> Option<RawChannel> {
        NonNull::new(channel).map(RawChannel)
    }

    pub(super) fn as_ptr(self) -> *mut rdma_event_channel {
        self.0.as_ptr()
    }
}

/// A channel, destroyed with the last of its program and its ids.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) raw: RawChannel,
    pub(super) fd: RawFd,
    pub(super) manager: Arc<Manager>,
}

impl Channel {
    pub(super) fn new(manager: &Arc<Manager>) -> Result<Channel> {
        let raw = manager.turn().create_channel()?;
        // SAFETY: just made.
        let fd = unsafe { (*raw.as_ptr()).fd };
        let channel = Channel {
            raw,
            fd,
            manager: manager.clone(),
        };
        set_nonblocking(fd)?;
        Ok(channel)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.manager.turn().destroy_channel(self.raw);
    }
}
