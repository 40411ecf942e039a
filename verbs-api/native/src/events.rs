//! Asynchronous events.

use std::any::Any;
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_api::{AsyncEvent, AsyncEventGuard, EventKind, EventSource, Result};
use verbs_sys::*;

use crate::context::Inner;
use crate::library::last_error;

/// The next event, if there is one.
pub(crate) fn take(context: &Arc<Inner>) -> Result<Option<AsyncEventGuard>> {
    let (next, acknowledge) = (
        context.library.ibv_get_async_event()?,
        context.library.ibv_ack_async_event()?,
    );
    let mut event = ibv_async_event {
        element: null_mut(),
        event_type: 0,
    };
    // SAFETY: the context is alive, `event` a valid place.
    if unsafe { next(context.as_ptr(), &mut event) } != 0 {
        let error = last_error("taking an asynchronous event");
        return match error.errno() {
            libc::EAGAIN => Ok(None),
            _ => Err(error),
        };
    }
    let kind = EventKind::from_code(event.event_type as u32).unwrap_or(EventKind::DeviceFatal);
    let source = source(&event, kind);
    let pending = Pending {
        event,
        acknowledge,
        _object: context.objects.holder(event.element as usize),
        _context: context.clone(),
    };
    Ok(Some(AsyncEventGuard::new(
        AsyncEvent { kind, source },
        move || pending.acknowledge(),
    )))
}

/// An event that is not acknowledged yet.
struct Pending {
    event: ibv_async_event,
    acknowledge: unsafe extern "C" fn(*mut ibv_async_event),
    /// The object that it names, so that dropping its handle leaves destroying it to the acknowledgement.
    _object: Option<Arc<dyn Any + Send + Sync>>,
    _context: Arc<Inner>,
}

// SAFETY: an event may be acknowledged from any thread.
unsafe impl Send for Pending {}

impl Pending {
    fn acknowledge(mut self) {
        // SAFETY: an object with events not acknowledged cannot be destroyed, so that it is alive.
        unsafe { (self.acknowledge)(&mut self.event) }
    }
}

fn source(event: &ibv_async_event, kind: EventKind) -> EventSource {
    use EventKind::*;
    // SAFETY: the kind says what the element is, and an object with events not acknowledged is alive.
    unsafe {
        match kind {
            QpFatal | QpReqErr | QpAccessErr | CommEst | SqDrained | PathMig | PathMigErr
            | QpLastWqeReached => EventSource::Qp((*event.element.cast::<ibv_qp>()).qp_num),
            CqErr => EventSource::Cq((*event.element.cast::<ibv_cq>()).cq_context as u64),
            SrqErr | SrqLimitReached => {
                EventSource::Srq((*event.element.cast::<ibv_srq>()).srq_context as u64)
            }
            PortActive | PortErr | LidChange | PkeyChange | SmChange | ClientReregister | GidChange => {
                // The union holds an `int` here.
                EventSource::Port((event.element as usize as u32) as u8)
            }
            DeviceFatal | WqFatal => EventSource::Device,
        }
    }
}
