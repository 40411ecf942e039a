//! Completion channels.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_api::{CompletionChannel, CqEvent, Object, Refused, Result};
use verbs_sys::{ibv_comp_channel, ibv_cq};

use crate::context::{Inner, set_nonblocking};
use crate::library::last_error;
use crate::raw::{Raw, destroy_shared};
use crate::{Context, Native};

#[derive(Debug)]
pub(crate) struct ChannelInner {
    pub(crate) raw: Raw<ibv_comp_channel, Arc<Inner>>,
}

/// A completion channel.
#[derive(Clone, Debug)]
pub struct Channel(pub(crate) Arc<ChannelInner>);

impl Channel {
    pub(crate) fn create(context: &Context) -> Result<Channel> {
        let inner = &context.0;
        let (create, destroy) = (
            inner.library.ibv_create_comp_channel()?,
            inner.library.ibv_destroy_comp_channel()?,
        );
        // SAFETY: the context is alive, and kept so; the channel is ours from here on.
        let raw = unsafe {
            let channel = create(inner.as_ptr());
            Raw::new(
                "completion channel",
                &inner.objects,
                channel,
                destroy,
                inner.clone(),
            )?
        };
        // SAFETY: the channel is alive.
        set_nonblocking(unsafe { (*raw.as_ptr()).fd })?;
        Ok(Channel(Arc::new(ChannelInner { raw })))
    }

    fn try_take(&self) -> Result<Option<CqEvent>> {
        let (mut cq, mut cookie) = (null_mut::<ibv_cq>(), null_mut::<c_void>());
        let context = &self.0.raw.keep;
        let (next, acknowledge) = (
            context.library.ibv_get_cq_event()?,
            context.library.ibv_ack_cq_events()?,
        );
        // SAFETY: the channel is alive, the places valid.
        if unsafe { next(self.0.raw.as_ptr(), &mut cq, &mut cookie) } != 0 {
            let error = last_error("taking a completion event");
            return match error.errno() {
                libc::EAGAIN => Ok(None),
                _ => Err(error),
            };
        }
        let pending = Pending {
            cq,
            acknowledge,
            _queue: context.objects.holder(cq as usize),
        };
        Ok(Some(CqEvent::new(cookie as u64, move || pending.acknowledge())))
    }
}

/// An event that is not acknowledged yet.
struct Pending {
    cq: *mut ibv_cq,
    acknowledge: unsafe extern "C" fn(*mut ibv_cq, std::ffi::c_uint),
    /// The queue, so that dropping its handle leaves destroying it to the acknowledgement.
    _queue: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: an event may be acknowledged from any thread.
unsafe impl Send for Pending {}

impl Pending {
    fn acknowledge(self) {
        // SAFETY: a queue with events not acknowledged cannot be destroyed, so that it is alive.
        unsafe { (self.acknowledge)(self.cq, 1) }
    }
}

impl Object for Channel {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "completion channel", |inner| inner.raw.destroy()).map_err(|refused| Refused {
            object: Channel(refused.object),
            error: refused.error,
        })
    }
}

/// Wait until `fd` is readable; false when the time is over.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool> {
    let timeout_ms = match timeout {
        None => -1,
        Some(left) => c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX),
    };
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    match unsafe { libc::poll(&mut poll, 1, timeout_ms) } {
        0 => Ok(false),
        1 => Ok(true),
        _ => {
            let error = last_error("waiting for an event");
            if error.errno() == libc::EINTR {
                Ok(true)
            } else {
                Err(error)
            }
        }
    }
}

impl CompletionChannel for Channel {
    type P = Native;

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the channel, which `self` keeps alive.
        unsafe { BorrowedFd::borrow_raw((*self.0.raw.as_ptr()).fd) }
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.try_take()? {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) || !wait_readable(self.fd(), left)? {
                return Ok(None);
            }
        }
    }
}
