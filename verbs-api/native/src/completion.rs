//! Completion queues.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_api::{CqInit, Error, ErrorKind, Notify, Object, Refused, Result, Wc};
use verbs_sys::convert::wc_from_c;
use verbs_sys::*;

use crate::context::Inner;
use crate::library::check;
use crate::polling::Cursor;
use crate::raw::{Raw, destroy_shared};
use crate::tables::{extended_op, int, op};
use crate::{Channel, Context, Interface, Native, query};

type RawCq = Raw<ibv_cq, (Option<Channel>, Arc<Inner>)>;

#[derive(Debug)]
pub(crate) struct CqInner {
    raw: Arc<RawCq>,
    /// How it is polled, when it is an extended one.
    cursor: Option<Cursor>,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct Cq(pub(crate) Arc<CqInner>);

/// Everything that a completion has beside its time.
const FIELDS: u64 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

impl Cq {
    pub(crate) fn create(context: &Context, init: &CqInit<'_, Native>) -> Result<Cq> {
        let inner = &context.0;
        let extended = init.timestamps || inner.interface == Interface::Extended;
        let (cq, cursor) = match extended {
            true => {
                let (cq, cursor) = create_extended(context, init)?;
                (cq, Some(cursor))
            }
            false => (create_plain(context, init)?, None),
        };
        let destroy = inner.library.ibv_destroy_cq()?;
        let keep = (init.channel.cloned(), inner.clone());
        // SAFETY: context and channel are alive, and kept so; the queue is ours from here on.
        let raw = unsafe { Raw::new("completion queue", &inner.objects, cq, destroy, keep)? };
        Ok(Cq(Arc::new(CqInner {
            raw: raw.share(),
            cursor,
        })))
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.0.raw.as_ptr()
    }

    fn context(&self) -> &Arc<Inner> {
        &self.0.raw.keep.1
    }
}

fn channel_of(init: &CqInit<'_, Native>) -> *mut ibv_comp_channel {
    init.channel.map_or(null_mut(), |channel| channel.0.raw.as_ptr())
}

fn create_plain(context: &Context, init: &CqInit<'_, Native>) -> Result<*mut ibv_cq> {
    let create = context.0.library.ibv_create_cq()?;
    let (cqe, vector) = (
        int(init.cqe, "completions")?,
        int(init.comp_vector, "completion vectors")?,
    );
    // SAFETY: context and channel are alive. The cookie is never followed.
    Ok(unsafe {
        create(
            context.as_ptr(),
            cqe,
            init.cookie as *mut c_void,
            channel_of(init),
            vector,
        )
    })
}

fn create_extended(context: &Context, init: &CqInit<'_, Native>) -> Result<(*mut ibv_cq, Cursor)> {
    let create = extended_op!(context.as_ptr(), create_cq_ex)?;
    let timestamps = match init.timestamps {
        true => IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        false => 0,
    };
    let mut attr = ibv_cq_init_attr_ex {
        cqe: init.cqe,
        cq_context: init.cookie as *mut c_void,
        channel: channel_of(init),
        comp_vector: init.comp_vector,
        wc_flags: FIELDS | timestamps,
        comp_mask: 0,
        flags: 0,
        parent_domain: null_mut(),
    };
    let cursor = Cursor::new(init.timestamps.then(|| query::extended(context).clock_khz));
    // SAFETY: context and channel are alive. The cookie is never followed.
    let cq = unsafe { create(context.as_ptr(), &mut attr) };
    Ok((cq.cast(), cursor))
}

impl Object for Cq {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "completion queue", |inner| inner.raw.destroy()).map_err(|refused| Refused {
            object: Cq(refused.object),
            error: refused.error,
        })
    }
}

/// Poll with `ibv_poll_cq`.
fn poll_lists(cq: *mut ibv_cq, context: *mut ibv_context, out: &mut [Wc]) -> Result<usize> {
    /// Completions converted at a time, on the stack.
    const CHUNK: usize = 16;
    let poll = op!(context, poll_cq)?;
    let mut done = 0;
    while done < out.len() {
        let want = (out.len() - done).min(CHUNK);
        let mut chunk = [const { MaybeUninit::<ibv_wc>::zeroed() }; CHUNK];
        // SAFETY: the queue is alive; there is room for `want`.
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

impl verbs_api::CompletionQueue for Cq {
    type P = Native;

    fn cqe(&self) -> u32 {
        // SAFETY: the queue is alive.
        unsafe { (*self.as_ptr()).cqe }.try_into().unwrap_or(0)
    }

    fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        match &self.0.cursor {
            Some(cursor) => cursor.poll(self.as_ptr().cast(), out),
            None => poll_lists(self.as_ptr(), self.context().as_ptr(), out),
        }
    }

    fn req_notify(&self, notify: Notify) -> Result<()> {
        let request = op!(self.context().as_ptr(), req_notify_cq)?;
        // SAFETY: the queue is alive.
        check("arming a completion queue", unsafe {
            request(self.as_ptr(), c_int::from(notify == Notify::SolicitedOnly))
        })
    }

    fn moderate(&self, count: u16, period_us: u16) -> Result<()> {
        let modify = extended_op!(self.context().as_ptr(), modify_cq)?;
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE,
            moderate: ibv_moderate_cq {
                cq_count: count,
                cq_period: period_us,
            },
        };
        // SAFETY: the queue is alive, the attributes valid.
        check("moderating a completion queue", unsafe {
            modify(self.as_ptr(), &mut attr)
        })
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        let resize = self.context().library.ibv_resize_cq()?;
        let cqe = int(cqe, "completions")?;
        // SAFETY: the queue is alive.
        check("resizing a completion queue", unsafe {
            resize(self.as_ptr(), cqe)
        })
    }
}
