//! The builder of work requests in `ibv_qp_ex`: a program starts, makes requests one after another, and posts them all
//! with the last call.
//!
//! From `wr_start` to `wr_complete` or `wr_abort` the builder belongs to one thread: a lock is held in between, as in
//! the libraries of cards.

use std::ffi::c_int;
use std::ops::Range;

use verbs_api::{Error, Payload, Result, SendFlags, SendOp, SendWr, Sge};
use verbs_sys::*;

use crate::datagram::AhHandle;
use crate::entry::{number, set_errno};
use crate::post::{Batch, CHUNK};
use crate::qp::QpHandle;
use crate::spanning::Spanning;
use crate::{P, Qp, window};

mod functions;

pub(crate) use functions::set_functions;

/// Requests in the making, from `wr_start` to `wr_complete` or `wr_abort`.
pub(crate) type Builder = Spanning<Requests>;

/// What was made so far.
#[derive(Default)]
pub(crate) struct Requests {
    list: Vec<Request>,
    /// Entries of all requests, one after another.
    sges: Vec<Sge>,
    /// Inline bytes of all requests, one after another.
    inline: Vec<u8>,
    /// The first mistake; posting then fails with it.
    error: Option<c_int>,
}

// SAFETY: the pointers in it are of objects that C shares among its threads; nothing belongs to a thread.
unsafe impl Send for Requests {}

struct Request {
    wr_id: u64,
    flags: SendFlags,
    op: Op,
    data: Data,
    xrc_srqn: Option<u32>,
}

/// An operation; for datagrams the destination comes with a later call.
enum Op {
    Plain(SendOp<'static, P>),
    Datagram {
        to: Option<(*mut ibv_ah, u32, u32)>,
        imm: Option<u32>,
    },
    Bind {
        mw: *mut ibv_mw,
        rkey: u32,
        info: ibv_mw_bind_info,
    },
}

enum Data {
    None,
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Requests {
    /// Forget everything, keeping the room.
    fn clear(&mut self) {
        self.list.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }
}

/// The requests of the builder whose lock this thread holds.
///
/// # Safety
/// `qp` is alive, and this thread is between `wr_start` and its end.
unsafe fn requests<'a>(qp: *mut ibv_qp_ex) -> &'a mut Requests {
    // SAFETY: the caller's promise: the lock makes the reference the only one.
    unsafe { QpHandle::extra(qp.cast()).builder.value() }
}

/// # Safety
/// `qp` is alive.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: alive; the lock is held afterwards.
    unsafe {
        QpHandle::extra(qp.cast()).builder.lock();
        requests(qp).clear();
    }
}

/// # Safety
/// `qp` is alive, after `wr_start`.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: this thread holds the lock.
    unsafe {
        requests(qp).clear();
        QpHandle::extra(qp.cast()).builder.unlock();
    }
}

/// # Safety
/// `qp` is alive, after `wr_start`.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: this thread holds the lock, until it is let go as the last thing.
    unsafe {
        let result = number("ibv_wr_complete", || post(qp, requests(qp)));
        wr_abort(qp);
        result
    }
}

/// Post all, or nothing when one is refused (ibv_wr_post(3)).
///
/// # Safety
/// `qp` is alive, and so are the address handles, windows and regions that were named.
unsafe fn post(qp: *mut ibv_qp_ex, requests: &Requests) -> Result<()> {
    if let Some(errno) = requests.error {
        return Err(Error::new(
            verbs_api::ErrorKind::from_errno(errno),
            "a request was not made properly",
        ));
    }
    // SAFETY: alive.
    let object = unsafe { QpHandle::object(qp.cast(), "the queue pair") }?;
    let list = &requests.list;
    if list.iter().any(|request| matches!(request.op, Op::Bind { .. })) {
        // SAFETY: the caller's promise.
        return unsafe { post_one_by_one(object, requests) };
    }
    // SAFETY: the caller's promise.
    let converted = |request| unsafe { converted(requests, request) };
    if list.len() > CHUNK {
        let all: Vec<_> = list.iter().map(converted).collect::<Result<_>>()?;
        return object.post_send_all(&all);
    }
    let mut batch = Batch::new();
    for request in list {
        batch.push(converted(request)?);
    }
    object.post_send_all(batch.take())
}

/// Bindings lock their objects while they are posted, so each request is posted by itself: what comes before one that
/// is refused stays posted.
///
/// # Safety
/// As [`post`].
unsafe fn post_one_by_one(object: &Qp, requests: &Requests) -> Result<()> {
    for request in &requests.list {
        // SAFETY: the caller's promise.
        unsafe {
            match &request.op {
                Op::Bind { mw, rkey, info } => {
                    window::post_bind(object, (request.wr_id, request.flags), *mw, *rkey, info)?;
                }
                Op::Plain(_) | Op::Datagram { .. } => {
                    object.post_send_all(&[converted(requests, request)?])?
                }
            }
        }
    }
    Ok(())
}

/// A request, which is no binding, in the provider's terms.
///
/// # Safety
/// Its address handle is alive during `'a`.
unsafe fn converted<'a>(requests: &'a Requests, request: &'a Request) -> Result<SendWr<'a, P>> {
    let op = match &request.op {
        Op::Plain(op) => *op,
        Op::Bind { .. } => return Err(Error::invalid("a binding is posted by itself")),
        Op::Datagram { to: None, imm } => SendOp::Send { imm: *imm },
        Op::Datagram {
            to: Some((ah, remote_qpn, remote_qkey)),
            imm,
        } => SendOp::SendTo {
            // SAFETY: the caller's promise.
            ah: unsafe { AhHandle::object(*ah, "the address handle") }?,
            remote_qpn: *remote_qpn,
            remote_qkey: *remote_qkey,
            imm: *imm,
        },
    };
    let payload = match &request.data {
        Data::None => Payload::Sges(&[]),
        Data::Sges(range) => Payload::Sges(&requests.sges[range.clone()]),
        Data::Inline(range) => Payload::Inline(&requests.inline[range.clone()]),
    };
    Ok(SendWr {
        wr_id: request.wr_id,
        op,
        payload,
        flags: request.flags,
        xrc_srqn: request.xrc_srqn,
    })
}

/// Begin a request with the number and flags that the program has put into the struct.
///
/// # Safety
/// `qp` is alive, after `wr_start`.
unsafe fn begin(qp: *mut ibv_qp_ex, op: Op) {
    // SAFETY: alive, and this thread holds the lock.
    unsafe {
        let request = Request {
            wr_id: (*qp).wr_id,
            flags: SendFlags::from_bits_truncate((*qp).wr_flags),
            op,
            data: Data::None,
            xrc_srqn: None,
        };
        requests(qp).list.push(request);
    }
}

/// Give the request begun last its data.
///
/// # Safety
/// `qp` is alive, after `wr_start`.
unsafe fn set(qp: *mut ibv_qp_ex, data: impl FnOnce(&mut Requests) -> Data) {
    // SAFETY: alive, and this thread holds the lock.
    let requests = unsafe { requests(qp) };
    let data = data(requests);
    match requests.list.last_mut() {
        Some(request) => request.data = data,
        None => fail(requests, libc::EINVAL),
    }
}

fn fail(requests: &mut Requests, errno: c_int) {
    requests.error.get_or_insert(errno);
    set_errno(errno);
}
