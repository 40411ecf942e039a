//! Completion channels and queues.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_api::{CompletionChannel, CqEvent, CqInit, Error, ErrorKind, Notify, Object, Refused, Result, Wc};
use verbs_sys::convert::wc_from_c;
use verbs_sys::{ibv_comp_channel, ibv_cq, ibv_wc};

use crate::context::set_nonblocking;
use crate::library::{check, last_error};
use crate::raw::{Raw, sole_owner};
use crate::{Context, Native, context};

#[derive(Debug)]
pub(crate) struct ChannelInner {
    raw: Raw<ibv_comp_channel>,
    context: Arc<context::Inner>,
}

/// A completion channel.
#[derive(Clone, Debug)]
pub struct Channel(pub(crate) Arc<ChannelInner>);

impl Channel {
    pub(crate) fn create(context: &Context) -> Result<Channel> {
        let library = &context.0.library;
        // SAFETY: the context is alive; the channel is ours from here on.
        let raw = unsafe {
            Raw::new(
                "creating a completion channel",
                (library.ibv_create_comp_channel)(context.0.raw.as_ptr()),
                library.ibv_destroy_comp_channel,
            )?
        };
        // SAFETY: the channel is alive.
        set_nonblocking(unsafe { (*raw.as_ptr()).fd })?;
        Ok(Channel(Arc::new(ChannelInner {
            raw,
            context: context.0.clone(),
        })))
    }

    fn try_take(&self) -> Result<Option<CqEvent>> {
        let (mut cq, mut cookie) = (std::ptr::null_mut::<ibv_cq>(), std::ptr::null_mut::<c_void>());
        let library = &self.0.context.library;
        // SAFETY: the channel is alive, the places valid.
        if unsafe { (library.ibv_get_cq_event)(self.0.raw.as_ptr(), &mut cq, &mut cookie) } != 0 {
            let error = last_error("taking a completion event");
            return if error.errno() == libc::EAGAIN {
                Ok(None)
            } else {
                Err(error)
            };
        }
        let pending = PendingEvent {
            cq,
            channel: self.clone(),
        };
        Ok(Some(CqEvent::new(cookie as u64, move || pending.acknowledge())))
    }
}

struct PendingEvent {
    cq: *mut ibv_cq,
    channel: Channel,
}

// SAFETY: an event may be acknowledged from any thread.
unsafe impl Send for PendingEvent {}

impl PendingEvent {
    fn acknowledge(self) {
        // SAFETY: a queue with events not acknowledged cannot be destroyed, so that it is alive.
        unsafe { (self.channel.0.context.library.ibv_ack_cq_events)(self.cq, 1) }
    }
}

impl Object for Channel {
    fn destroy(self) -> Result<(), Refused<Self>> {
        let ChannelInner { raw, context } =
            sole_owner(self.0, "completion channel").map_err(|refused| Refused {
                object: Channel(refused.object),
                error: refused.error,
            })?;
        raw.destroy().map_err(|refused| Refused {
            object: Channel(Arc::new(ChannelInner {
                raw: refused.object,
                context,
            })),
            error: refused.error,
        })
    }
}

/// Wait until `fd` is readable; false when the time is over.
fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool> {
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
            let error = last_error("waiting for a completion event");
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

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) raw: Raw<ibv_cq>,
    _channel: Option<Channel>,
    context: Arc<context::Inner>,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct Cq(pub(crate) Arc<CqInner>);

impl Cq {
    pub(crate) fn create(context: &Context, init: &CqInit<'_, Native>) -> Result<Cq> {
        if init.timestamps {
            return Err(Error::unsupported("a completion queue with timestamps"));
        }
        let library = &context.0.library;
        let int = |number: u32, what: &str| {
            c_int::try_from(number).map_err(|_| Error::invalid(format!("{number} is too many {what}")))
        };
        // SAFETY: context and channel are alive; the queue is ours from here on. The cookie is never followed.
        let raw = unsafe {
            let cq = (library.ibv_create_cq)(
                context.0.raw.as_ptr(),
                int(init.cqe, "completions")?,
                init.cookie as *mut c_void,
                init.channel
                    .map_or(std::ptr::null_mut(), |channel| channel.0.raw.as_ptr()),
                int(init.comp_vector, "completion vectors")?,
            );
            Raw::new("creating a completion queue", cq, library.ibv_destroy_cq)?
        };
        Ok(Cq(Arc::new(CqInner {
            raw,
            _channel: init.channel.cloned(),
            context: context.0.clone(),
        })))
    }
}

impl Object for Cq {
    fn destroy(self) -> Result<(), Refused<Self>> {
        let CqInner {
            raw,
            _channel,
            context,
        } = sole_owner(self.0, "completion queue").map_err(|refused| Refused {
            object: Cq(refused.object),
            error: refused.error,
        })?;
        raw.destroy().map_err(|refused| Refused {
            object: Cq(Arc::new(CqInner {
                raw: refused.object,
                _channel,
                context,
            })),
            error: refused.error,
        })
    }
}

impl verbs_api::CompletionQueue for Cq {
    type P = Native;

    fn cqe(&self) -> u32 {
        // SAFETY: the queue is alive.
        unsafe { (*self.0.raw.as_ptr()).cqe }.try_into().unwrap_or(0)
    }

    fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        /// Completions converted at a time, on the stack.
        const CHUNK: usize = 16;
        let cq = self.0.raw.as_ptr();
        // SAFETY: the queue is alive, and its context before it.
        let poll = unsafe { (*(*cq).context).ops.poll_cq }.ok_or_else(|| Error::unsupported("polling"))?;
        let mut done = 0;
        while done < out.len() {
            let want = (out.len() - done).min(CHUNK);
            let mut chunk = [const { std::mem::MaybeUninit::<ibv_wc>::zeroed() }; CHUNK];
            // SAFETY: there is room for `want`.
            let got = unsafe { poll(cq, want as c_int, chunk.as_mut_ptr().cast()) };
            let got = usize::try_from(got)
                .map_err(|_| Error::new(ErrorKind::System(libc::EIO), "the completion queue is in error"))?;
            for (to, from) in out[done..].iter_mut().zip(&chunk[..got.min(want)]) {
                // SAFETY: zeroed at least, and filled in by the library.
                *to = wc_from_c(unsafe { from.assume_init_ref() });
            }
            done += got;
            if got < want {
                break;
            }
        }
        Ok(done)
    }

    fn req_notify(&self, notify: Notify) -> Result<()> {
        let cq = self.0.raw.as_ptr();
        // SAFETY: the queue is alive, and its context before it.
        let request =
            unsafe { (*(*cq).context).ops.req_notify_cq }.ok_or_else(|| Error::unsupported("arming"))?;
        // SAFETY: the queue is alive.
        check("arming a completion queue", unsafe {
            request(cq, c_int::from(notify == Notify::SolicitedOnly))
        })
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        let cqe =
            c_int::try_from(cqe).map_err(|_| Error::invalid(format!("{cqe} is too many completions")))?;
        // SAFETY: the queue is alive.
        check("resizing a completion queue", unsafe {
            (self.0.context.library.ibv_resize_cq)(self.0.raw.as_ptr(), cqe)
        })
    }
}
