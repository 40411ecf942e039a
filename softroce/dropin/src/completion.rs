//! Completion channels and queues.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use softroce::lock::Mutex;
use verbs_api::{
    CompletionChannel as _, CompletionQueue as _, Context as _, CqEvent, CqInit, Error, Notify, Object,
    Result, Wc,
};
use verbs_sys::convert::wc_to_c;
use verbs_sys::*;

use crate::cq_ex::{self, Cursor};
use crate::entry::{self, number, place, pointer};
use crate::handle::Handle;
use crate::wait::{self, Attempt};
use crate::{Channel, Cq, context};

type ChannelHandle = Handle<ibv_comp_channel, Channel>;
/// The C struct is always the larger one; the functions in it are there when the program asked for them.
type ExHandle = Handle<ibv_cq_ex, Cq, CqExtra>;

/// What a completion queue keeps beside the provider's.
#[derive(Default)]
pub(crate) struct CqExtra {
    /// Events that the program has taken and not acknowledged.
    unacknowledged: Mutex<Vec<CqEvent>>,
    pub(crate) cursor: Cursor,
}

/// Access by the pointer that programs hold, which is that of the smaller struct at the head of the larger.
pub(crate) struct CqHandle;

impl CqHandle {
    /// # Safety
    /// As [`Handle::object`].
    pub(crate) unsafe fn object<'a>(cq: *mut ibv_cq, what: &str) -> Result<&'a Cq> {
        // SAFETY: the caller's promise.
        unsafe { ExHandle::object(cq.cast(), what) }
    }

    /// # Safety
    /// As [`Handle::extra`].
    pub(crate) unsafe fn extra<'a>(cq: *mut ibv_cq) -> &'a CqExtra {
        // SAFETY: the caller's promise.
        unsafe { ExHandle::extra(cq.cast()) }
    }
}

/// `ibv_create_comp_channel`
///
/// # Safety
/// `context` is NULL or open.
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer("ibv_create_comp_channel", || {
        // SAFETY: the caller's promise.
        let channel = unsafe { context::object(context) }?.create_channel()?;
        let fd = channel.fd().as_raw_fd();
        Ok(ChannelHandle::hand_out(
            ibv_comp_channel {
                context,
                fd,
                refcnt: 0,
            },
            channel,
            (),
        ))
    })
}

/// `ibv_destroy_comp_channel`
///
/// # Safety
/// `channel` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_destroy_comp_channel", || unsafe {
        ChannelHandle::destroy(channel, "the completion channel", Object::destroy)
    })
}

/// What both ways of creating have in common. `ex` holds the functions that the program asked for.
///
/// # Safety
/// `context` is NULL or open, `channel` NULL or alive.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    cq_context: *mut c_void,
    (cqe, comp_vector): (u32, u32),
    timestamps: bool,
    mut ex: ibv_cq_ex,
) -> Result<*mut ibv_cq_ex> {
    // SAFETY: the caller's promise.
    let object = unsafe { context::object(context) }?;
    let channel_object = match channel.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(unsafe { ChannelHandle::object(channel, "the completion channel") }?),
    };
    // The place first: its address is the cookie of the events.
    let reserved = Box::new(MaybeUninit::<ExHandle>::uninit());
    let cq = object.create_cq(&CqInit {
        cqe,
        channel: channel_object,
        cookie: reserved.as_ptr() as u64,
        comp_vector,
        timestamps,
    })?;
    ex.context = context;
    ex.channel = channel;
    ex.cq_context = cq_context;
    ex.cqe = c_int::try_from(cq.cqe()).unwrap_or(c_int::MAX);
    Ok(ExHandle::hand_out_at(reserved, ex, cq, CqExtra::default()))
}

/// `ibv_create_cq`
///
/// # Safety
/// `context` is NULL or open, `channel` NULL or alive.
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer("ibv_create_cq", || {
        let positive = |number: c_int, what: &str| {
            u32::try_from(number).map_err(|_| Error::invalid(format!("{number} is no {what}")))
        };
        let numbers = (
            positive(cqe, "number of completions")?,
            positive(comp_vector, "completion vector")?,
        );
        // SAFETY: the caller's promise.
        let cq = unsafe { create(context, channel, cq_context, numbers, false, cq_ex::empty()) }?;
        Ok(cq.cast())
    })
}

/// `ibv_resize_cq`
///
/// # Safety
/// `cq` is NULL or alive.
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    number("ibv_resize_cq", || {
        // SAFETY: the caller's promise.
        let object = unsafe { CqHandle::object(cq, "the completion queue") }?;
        object.resize(
            u32::try_from(cqe).map_err(|_| Error::invalid(format!("{cqe} is no number of completions")))?,
        )?;
        // SAFETY: alive, and its owner waits for this call.
        unsafe { (*cq).cqe = c_int::try_from(object.cqe()).unwrap_or(c_int::MAX) };
        Ok(())
    })
}

/// `modify_cq` of the second table.
///
/// # Safety
/// `cq` is NULL or alive, `attr` NULL or valid.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    const IBV_CQ_ATTR_MODERATE: u32 = 1;
    number("ibv_modify_cq", || {
        // SAFETY: the caller's promise.
        let (object, attr) = unsafe {
            (
                CqHandle::object(cq, "the completion queue")?,
                place(attr, "the attributes")?,
            )
        };
        if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
            return Err(Error::invalid(format!(
                "the attribute mask {:#x} means nothing",
                attr.attr_mask
            )));
        }
        object.moderate(attr.moderate.cq_count, attr.moderate.cq_period)
    })
}

/// `ibv_destroy_cq`: waits until all events are acknowledged.
///
/// # Safety
/// `cq` is NULL or alive, and not used afterwards when this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's promise.
    number("ibv_destroy_cq", || unsafe {
        ExHandle::destroy(cq.cast(), "the completion queue", Object::destroy)
    })
}

/// `ibv_get_cq_event`: waits, unless `O_NONBLOCK` is set on the descriptor.
///
/// # Safety
/// `channel` is NULL or alive; `cq` and `cq_context` are NULL or valid for writes.
pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    wait::until_taken("ibv_get_cq_event", || {
        // SAFETY: the caller's promise.
        let (object, cq, cq_context) = unsafe {
            (
                ChannelHandle::object(channel, "the completion channel")?,
                place(cq, "the place for the queue")?,
                place(cq_context, "the place for the queue's context")?,
            )
        };
        let Some(event) = object.wait(Some(Duration::ZERO))? else {
            return Ok(Attempt::Nothing(object.fd().as_raw_fd()));
        };
        *cq = event.cookie() as *mut ibv_cq;
        // SAFETY: the cookie is the queue's own address, and a queue with unacknowledged events is alive.
        unsafe {
            *cq_context = (**cq).cq_context;
            let extra = CqHandle::extra(*cq);
            extra.unacknowledged.lock().push(event);
        }
        Ok(Attempt::Taken)
    })
}

/// `ibv_ack_cq_events`
///
/// # Safety
/// `cq` is NULL or alive, and has had `count` events.
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    number("ibv_ack_cq_events", || {
        if cq.is_null() {
            return Err(entry::null("the completion queue"));
        }
        for _ in 0..count {
            // SAFETY: alive while an event is unacknowledged. The lock is let go before the event: whoever waits to
            // destroy the queue may free it the moment the last event is acknowledged.
            let event = unsafe { CqHandle::extra(cq) }.unacknowledged.lock().pop();
            let Some(event) = event else { break };
            drop(event);
        }
        Ok(())
    });
}

/// Completions taken from the provider at a time.
const CHUNK: usize = 16;

/// `poll_cq` of the first table: how many completions, or a negative error number.
///
/// # Safety
/// `cq` is NULL or alive, `wc` valid for writes of `count` completions.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    let mut done = 0;
    let result = number("ibv_poll_cq", || {
        // SAFETY: the caller's promise.
        let object = unsafe { CqHandle::object(cq, "the completion queue") }?;
        let want = usize::try_from(count)
            .map_err(|_| Error::invalid(format!("{count} is no number of completions")))?;
        if want > 0 && wc.is_null() {
            return Err(entry::null("the place for completions"));
        }
        // SAFETY: the caller's promise; and the count stays within `want`.
        let put = |i: usize, from: &Wc| unsafe { wc.add(i).write(wc_to_c(from)) };
        if want == 1 {
            // Programs that spin take one at a time: do not prepare room for many.
            let mut one = [Wc::default()];
            done = object.poll(&mut one)?;
            one[..done].iter().for_each(|from| put(0, from));
            return Ok(());
        }
        let mut chunk = [Wc::default(); CHUNK];
        while done < want {
            let asked = (want - done).min(CHUNK);
            let got = object.poll(&mut chunk[..asked])?;
            for from in &chunk[..got] {
                put(done, from);
                done += 1;
            }
            if got < asked {
                break;
            }
        }
        Ok(())
    });
    // Completions that were taken must not be lost to an error that comes after them.
    if done > 0 || result == 0 {
        done as c_int
    } else {
        -result
    }
}

/// `req_notify_cq` of the first table.
///
/// # Safety
/// `cq` is NULL or alive.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    number("ibv_req_notify_cq", || {
        let notify = if solicited_only != 0 {
            Notify::SolicitedOnly
        } else {
            Notify::Any
        };
        // SAFETY: the caller's promise.
        unsafe { CqHandle::object(cq, "the completion queue") }?.req_notify(notify)
    })
}

/// The provider's queue, for queue pairs; `None` for NULL.
///
/// # Safety
/// `cq` is NULL or alive during `'a`.
pub(crate) unsafe fn optional<'a>(cq: *mut ibv_cq) -> Result<Option<&'a Cq>> {
    if cq.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { CqHandle::object(cq, "the completion queue") }.map(Some)
}
