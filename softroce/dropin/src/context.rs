//! The open device, and its asynchronous events.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use softroce::EventHandle;
use softroce::lock::{Mutex, MutexGuard};
use verbs_api::{
    AsyncEvent, AsyncEventGuard, Context as _, Error, ErrorKind, EventKind, EventSource, Object, Refused,
    Result,
};
use verbs_sys::*;

use crate::device::{Family, Registry};
use crate::entry::{self, null, number, place};
use crate::handle::Handle;
use crate::import::{Exports, file_of};
use crate::wait::{self, Attempt};
use crate::{
    DeviceContext, completion, cq_ex, device_memory, domain, memory, post, qp, query, srq, window, xrc,
};

type ContextHandle = Handle<verbs_context, Opened, ContextExtra>;

/// The provider's context; a program may have imported it once more. None: closed, and what was made on it is left.
struct Opened {
    device: Option<Arc<DeviceContext>>,
}

/// What a context keeps beside the provider's.
struct ContextExtra {
    /// Stands in for the descriptor of the kernel's driver: real, and never readable. None: closed.
    command_fd: Mutex<Option<OwnedFd>>,
    shared: Arc<Shared>,
}

/// What contexts of one family, the first and the imported ones, have in common.
pub(crate) struct Shared {
    /// That opened the device.
    process: u32,
    /// Handles of queue pairs, and events taken but not acknowledged.
    state: Mutex<State>,
    exports: Exports,
}

#[derive(Default)]
struct State {
    /// An XRC target may have several, each with events of its own.
    queue_pairs: HashMap<EventHandle, Element>,
    unacknowledged: Vec<(Element, c_int, AsyncEventGuard)>,
}

/// The object that an event is about, as C names it: a pointer or a port number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Element(usize);

impl Default for Shared {
    fn default() -> Self {
        Shared {
            process: std::process::id(),
            state: Mutex::default(),
            exports: Exports::default(),
        }
    }
}

impl Shared {
    /// Whether this process is a child of the one that opened the device. Locks may be held by threads of its parent.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Events told to `handle` are about `pointer` from now on.
    pub(crate) fn add_qp(&self, handle: EventHandle, pointer: *mut ibv_qp) {
        let mut state = self.lock();
        state.queue_pairs.insert(handle, Element(pointer as usize));
    }

    /// The handle is gone.
    pub(crate) fn remove_qp(&self, handle: EventHandle, pointer: *mut ibv_qp) {
        let mut state = self.lock();
        // Another one may have come by its identity already.
        if state.queue_pairs.get(&handle) == Some(&Element(pointer as usize)) {
            state.queue_pairs.remove(&handle);
        }
    }

    fn qp(&self, handle: EventHandle) -> Option<Element> {
        self.lock().queue_pairs.get(&handle).copied()
    }
}

/// The larger struct whose tail the program knows.
fn extended(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

/// The provider's context.
///
/// # Safety
/// `context` is NULL or one that is open during `'a`.
pub(crate) unsafe fn object<'a>(context: *mut ibv_context) -> Result<&'a DeviceContext> {
    if context.is_null() {
        return Err(null("the context"));
    }
    // SAFETY: the caller's promise.
    let opened = unsafe { ContextHandle::object(extended(context), "the context") }?;
    let closed = || Error::invalid("the context is closed");
    opened.device.as_deref().ok_or_else(closed)
}

/// Ask a context, also one that was inherited through fork: a child has no part in its parent's card, so one that it
/// opens for the purpose answers. A kernel's driver answers a child, too.
pub(crate) fn ask<R>(object: &DeviceContext, question: impl Fn(&DeviceContext) -> Result<R>) -> Result<R> {
    match object.is_inherited() {
        true => question(&Registry::this()?.open(object.name())?),
        false => question(object),
    }
}

/// What is kept beside it.
///
/// # Safety
/// `context` is open during `'a`.
pub(crate) unsafe fn extra<'a>(context: *mut ibv_context) -> &'a Shared {
    // SAFETY: the caller's promise.
    unsafe { &ContextHandle::extra(extended(context)).shared }
}

/// What of it can be imported.
///
/// # Safety
/// `context` is open during `'a`.
pub(crate) unsafe fn exports<'a>(context: *mut ibv_context) -> &'a Exports {
    // SAFETY: the caller's promise.
    unsafe { &extra(context).exports }
}

/// Hand an open device out to C.
pub(crate) fn hand_out(device: *mut ibv_device, object: DeviceContext) -> Result<*mut ibv_context> {
    // A socket without a name: nobody can send to it, and its duplicates can be told from all other files.
    let command_fd = UnixDatagram::unbound()
        .map_err(|error| Error::system("no descriptor for a context", error))?
        .into();
    let family = Family {
        file: file_of(OwnedFd::as_raw_fd(&command_fd))?,
        listed: device,
        device: Arc::new(object),
        shared: Arc::default(),
    };
    Registry::this()?.add_family(&family);
    hand_out_one_more(family, command_fd)
}

/// The same for a device that is open already.
pub(crate) fn hand_out_one_more(family: Family, command_fd: OwnedFd) -> Result<*mut ibv_context> {
    let object = &family.device;
    let async_fd = object.async_fd().as_raw_fd();
    let vectors = object.attributes()?.num_comp_vectors.max(1);
    // SAFETY: zeroes are valid in every member: numbers, arrays of numbers, NULL pointers, absent functions, and a
    // mutex in its initial state.
    let mut c: verbs_context = unsafe { std::mem::zeroed() };
    c.query_port = Some(query::query_port_sized);
    c.query_device_ex = Some(query::query_device_ex);
    c.query_rt_values = Some(query::query_rt_values);
    c.reg_mr_ex = Some(memory::reg_mr_ex);
    c.advise_mr = Some(memory::advise_mr);
    c.alloc_null_mr = Some(memory::alloc_null_mr);
    c.create_cq_ex = Some(cq_ex::create_cq_ex);
    c.create_qp_ex = Some(qp::create_qp_ex);
    c.create_srq_ex = Some(srq::create_srq_ex);
    c.get_srq_num = Some(srq::get_srq_num);
    c.open_xrcd = Some(xrc::open_xrcd);
    c.close_xrcd = Some(xrc::close_xrcd);
    c.open_qp = Some(xrc::open_qp);
    c.alloc_dm = Some(device_memory::alloc_dm);
    c.free_dm = Some(device_memory::free_dm);
    c.reg_dm_mr = Some(device_memory::reg_dm_mr);
    c.alloc_td = Some(domain::alloc_td);
    c.dealloc_td = Some(domain::dealloc_td);
    c.alloc_parent_domain = Some(domain::alloc_parent_domain);
    c.modify_cq = Some(completion::modify_cq);
    c.sz = size_of::<verbs_context>();
    c.context.device = family.listed;
    c.context.cmd_fd = command_fd.as_raw_fd();
    c.context.async_fd = async_fd;
    c.context.num_comp_vectors = vectors as c_int;
    c.context.abi_compat = ibv_context::EXTENDED;
    c.context.ops.poll_cq = Some(completion::poll_cq);
    c.context.ops.req_notify_cq = Some(completion::req_notify_cq);
    c.context.ops.post_send = Some(post::post_send);
    c.context.ops.post_recv = Some(post::post_recv);
    c.context.ops.post_srq_recv = Some(srq::post_srq_recv);
    c.context.ops.alloc_mw = Some(window::alloc_mw);
    c.context.ops.dealloc_mw = Some(window::dealloc_mw);
    c.context.ops.bind_mw = Some(window::bind_mw);
    let extra = ContextExtra {
        command_fd: Mutex::new(Some(command_fd)),
        shared: family.shared,
    };
    let opened = Opened {
        device: Some(family.device),
    };
    let pointer = ContextHandle::hand_out(c, opened, extra);
    // SAFETY: just handed out; only an address is taken.
    Ok(unsafe { &raw mut (*pointer).context })
}

/// `ibv_close_device`. Objects that were not destroyed keep the device open beneath; the context's own memory is then
/// left, since they point at it.
///
/// # Safety
/// `context` is NULL or open, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    entry::count("ibv_close_device", || {
        if context.is_null() {
            return Err(null("the context"));
        }
        // SAFETY: the caller's promise.
        let family = Arc::as_ptr(unsafe { &ContextHandle::extra(extended(context)).shared });
        // SAFETY: the caller's promise.
        let closed = unsafe { ContextHandle::destroy(extended(context), "the context", close) };
        match closed {
            Err(error) if error.kind() != ErrorKind::Busy => Err(error),
            Err(_) => {
                // SAFETY: the context was left.
                let extra = unsafe { ContextHandle::extra(extended(context)) };
                let mut command_fd = extra.command_fd.lock();
                drop(command_fd.take());
                Registry::this()?.leave_behind(family, extended(context));
                Ok(0)
            }
            Ok(()) => {
                for left in Registry::this()?.take_left_behind(family) {
                    // SAFETY: closed before, and the device had no object left when it closed just now.
                    unsafe { ContextHandle::destroy(left, "the context", |_| Ok(())) }?;
                }
                Ok(0)
            }
        }
    })
}

/// Of a family, only the last one closes the device. What was made on the others points at them: they are left.
fn close(opened: Opened) -> Result<(), Refused<Opened>> {
    let left = |device, error| Refused {
        object: Opened { device },
        error,
    };
    let Some(device) = opened.device else {
        return Err(left(None, Error::invalid("the context is closed already")));
    };
    match Arc::try_unwrap(device).map(Object::destroy) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refused)) => Err(left(Some(Arc::new(refused.object)), refused.error)),
        Err(_others) => {
            let error = Error::new(ErrorKind::Busy, "another context of the device is open");
            Err(left(None, error))
        }
    }
}

/// `ibv_get_async_event`: waits, unless `O_NONBLOCK` is set on the descriptor.
///
/// # Safety
/// `context` is NULL or open, `event` NULL or valid for a write.
pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    wait::until_taken("ibv_get_async_event", || {
        // SAFETY: the caller's promise.
        let (object, event) = unsafe { (object(context)?, place(event, "the event")?) };
        // SAFETY: the context is open.
        let extra = unsafe { extra(context) };
        while let Some((guard, handle)) = object.async_event_and_handle()? {
            // An event of an object that is gone is no longer of interest.
            let Some(element) = element_of(extra, guard.event(), handle) else {
                continue;
            };
            event.element = element.0 as *mut c_void;
            event.event_type = guard.event().kind as c_int;
            if !is_port_event(event.event_type) {
                extra
                    .lock()
                    .unacknowledged
                    .push((element, event.event_type, guard));
            }
            return Ok(Attempt::Taken);
        }
        Ok(Attempt::Nothing(object.async_fd().as_raw_fd()))
    })
}

fn element_of(extra: &Shared, event: AsyncEvent, handle: EventHandle) -> Option<Element> {
    match event.source {
        EventSource::Qp(_) => extra.qp(handle),
        // Our cookies are the objects' own addresses.
        EventSource::Cq(cookie) | EventSource::Srq(cookie) => Some(Element(cookie as usize)),
        EventSource::Port(port) => Some(Element(usize::from(port))),
        EventSource::Device => Some(Element(0)),
    }
}

/// Whether an event is about a port, which is never destroyed: such an event needs no acknowledgement, and its element
/// is a number.
fn is_port_event(event_type: c_int) -> bool {
    use EventKind::{ClientReregister, GidChange, LidChange, PkeyChange, PortActive, PortErr, SmChange};
    let kind = EventKind::from_code(event_type as u32);
    matches!(
        kind,
        Some(PortActive | PortErr | LidChange | PkeyChange | SmChange | ClientReregister | GidChange)
    )
}

/// `ibv_ack_async_event`. The event does not name its context; its object does.
///
/// # Safety
/// `event` is NULL or an event from `ibv_get_async_event`.
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    number("ibv_ack_async_event", || {
        // SAFETY: the caller's promise.
        let event = *unsafe { place(event, "the event") }?;
        if is_port_event(event.event_type) {
            return Ok(());
        }
        // Every other object begins with its context.
        let context = event.element.cast::<*mut ibv_context>();
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: an object with unacknowledged events is alive, and its context with it.
        let extra = unsafe { extra(*context) };
        let element = Element(event.element as usize);
        let mut state = extra.lock();
        let mine = |(e, t, _): &(Element, c_int, AsyncEventGuard)| *e == element && *t == event.event_type;
        let guard = state
            .unacknowledged
            .iter()
            .position(mine)
            .map(|i| state.unacknowledged.swap_remove(i));
        drop(state);
        // Last of all: whoever waits to destroy the object goes on now.
        drop(guard);
        Ok(())
    });
}
