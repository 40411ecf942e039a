//! The builder of work requests in `ibv_qp_ex`: a program starts, makes requests one after another, and posts them all
//! with the last call.
//!
//! From `wr_start` to `wr_complete` or `wr_abort` the builder belongs to one thread: a lock is held in between, as in
//! the libraries of cards.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use verbs_api::{
    Error, LKey, Payload, QueuePair as _, RKey, RemoteAddr, Result, SendFlags, SendOp, SendWr, Sge,
};
use verbs_sys::*;

use crate::P;
use crate::datagram::AhHandle;
use crate::entry::{number, set_errno};
use crate::post::Batch;
use crate::qp::QpHandle;

/// Requests in the making.
pub(crate) struct Builder {
    lock: RawMutex,
    requests: UnsafeCell<Requests>,
}

// SAFETY: `requests` is only touched by the thread that holds `lock`.
unsafe impl Sync for Builder {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Builder {}

#[derive(Default)]
struct Requests {
    list: Vec<Request>,
    /// Entries of all requests, one after another.
    sges: Vec<Sge>,
    /// Inline bytes of all requests, one after another.
    inline: Vec<u8>,
    /// The first mistake; posting then fails with it.
    error: Option<c_int>,
}

struct Request {
    wr_id: u64,
    flags: SendFlags,
    op: Op,
    data: Data,
}

/// An operation; for datagrams the destination comes with a later call.
enum Op {
    Plain(SendOp<'static, P>),
    Datagram {
        to: Option<(*mut ibv_ah, u32, u32)>,
        imm: Option<u32>,
    },
}

enum Data {
    None,
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder {
            lock: RawMutex::INIT,
            requests: UnsafeCell::default(),
        }
    }
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
    unsafe { &mut *QpHandle::extra(qp.cast()).builder.requests.get() }
}

/// # Safety
/// `qp` is alive.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: alive; the lock is held afterwards.
    unsafe {
        QpHandle::extra(qp.cast()).builder.lock.lock();
        requests(qp).clear();
    }
}

/// # Safety
/// `qp` is alive, after `wr_start`.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: this thread holds the lock.
    unsafe {
        requests(qp).clear();
        QpHandle::extra(qp.cast()).builder.lock.unlock();
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

/// # Safety
/// `qp` is alive, and so are the address handles that were named.
unsafe fn post(qp: *mut ibv_qp_ex, requests: &Requests) -> Result<()> {
    if let Some(errno) = requests.error {
        return Err(Error::new(
            verbs_api::ErrorKind::from_errno(errno),
            "a request was not made properly",
        ));
    }
    // SAFETY: alive.
    let object = unsafe { QpHandle::object(qp.cast(), "the queue pair") }?;
    let mut batch = Batch::new();
    for request in &requests.list {
        let op = match &request.op {
            Op::Plain(op) => *op,
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
        batch.push(SendWr {
            wr_id: request.wr_id,
            op,
            payload,
            flags: request.flags,
            xrc_srqn: None,
        });
        if batch.is_full() {
            object.post_send(batch.take()).map_err(|refused| refused.error)?;
        }
    }
    match batch.is_empty() {
        true => Ok(()),
        false => object.post_send(batch.take()).map_err(|refused| refused.error),
    }
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

fn remote(rkey: u32, addr: u64) -> RemoteAddr {
    RemoteAddr {
        addr,
        rkey: RKey(rkey),
    }
}

/// The functions of `ibv_qp_ex` that begin a request: arguments as in C, then the operation.
macro_rules! operations {
    ($($name:ident($($argument:ident: $ty:ty),*) => $op:expr;)*) => {
        $(
            /// # Safety
            /// `qp` is alive, after `wr_start`.
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $ty)*) {
                // SAFETY: the caller's promise.
                unsafe { begin(qp, $op) }
            }
        )*
    };
}

operations! {
    wr_send() => Op::Datagram { to: None, imm: None };
    wr_send_imm(imm: u32) => Op::Datagram { to: None, imm: Some(u32::from_be(imm)) };
    wr_send_inv(rkey: u32) => Op::Plain(SendOp::SendWithInvalidate { rkey: RKey(rkey) });
    wr_local_inv(rkey: u32) => Op::Plain(SendOp::LocalInvalidate { rkey: RKey(rkey) });
    wr_rdma_read(rkey: u32, addr: u64) => Op::Plain(SendOp::Read { remote: remote(rkey, addr) });
    wr_rdma_write(rkey: u32, addr: u64) => Op::Plain(SendOp::Write { remote: remote(rkey, addr), imm: None });
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) =>
        Op::Plain(SendOp::Write { remote: remote(rkey, addr), imm: Some(u32::from_be(imm)) });
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) =>
        Op::Plain(SendOp::CompareSwap { remote: remote(rkey, addr), compare, swap });
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) =>
        Op::Plain(SendOp::FetchAdd { remote: remote(rkey, addr), add });
}

/// # Safety
/// As [`begin`].
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: the caller's promise.
    let requests = unsafe { requests(qp) };
    match requests.list.last_mut().map(|request| &mut request.op) {
        Some(Op::Datagram { to, .. }) => *to = Some((ah, remote_qpn, remote_qkey)),
        Some(Op::Plain(_)) | None => fail(requests, libc::EINVAL),
    }
}

/// # Safety
/// As [`begin`].
unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let add = |requests: &mut Requests| {
        requests.sges.push(Sge {
            addr,
            length,
            lkey: LKey(lkey),
        });
        Data::Sges(requests.sges.len() - 1..requests.sges.len())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, add) }
}

/// # Safety
/// As [`begin`]; the list is valid during the call.
unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let add = |requests: &mut Requests| {
        let before = requests.sges.len();
        // SAFETY: the caller's promise.
        match unsafe { convert::sge_list(list, c_int::try_from(count).unwrap_or(-1)) } {
            Some(sges) => requests.sges.extend_from_slice(sges),
            None => fail(requests, libc::EINVAL),
        }
        Data::Sges(before..requests.sges.len())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, add) }
}

/// Bytes of a program that may be NULL when there are none.
///
/// # Safety
/// `addr` is valid for `length` bytes during `'a`, unless that is 0.
unsafe fn bytes<'a>(addr: *const c_void, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(addr.cast(), length) },
    }
}

/// # Safety
/// As [`begin`]; the bytes are valid during the call.
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let add = |requests: &mut Requests| {
        let before = requests.inline.len();
        // SAFETY: the caller's promise.
        requests.inline.extend_from_slice(unsafe { bytes(addr, length) });
        Data::Inline(before..requests.inline.len())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, add) }
}

/// # Safety
/// As [`begin`]; list and bytes are valid during the call.
unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    let add = |requests: &mut Requests| {
        let before = requests.inline.len();
        for i in 0..count {
            // SAFETY: the caller's promise.
            let part = unsafe { *list.add(i) };
            // SAFETY: the caller's promise.
            requests
                .inline
                .extend_from_slice(unsafe { bytes(part.addr, part.length) });
        }
        Data::Inline(before..requests.inline.len())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, add) }
}

const WITH_RDMA_WRITE: u64 = 1;
const WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
const WITH_SEND: u64 = 1 << 2;
const WITH_SEND_WITH_IMM: u64 = 1 << 3;
const WITH_RDMA_READ: u64 = 1 << 4;
const WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
const WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
const WITH_LOCAL_INV: u64 = 1 << 7;
const WITH_SEND_WITH_INV: u64 = 1 << 9;
const OFFERED: u64 = WITH_RDMA_WRITE
    | WITH_RDMA_WRITE_WITH_IMM
    | WITH_SEND
    | WITH_SEND_WITH_IMM
    | WITH_RDMA_READ
    | WITH_ATOMIC_CMP_AND_SWP
    | WITH_ATOMIC_FETCH_AND_ADD
    | WITH_LOCAL_INV
    | WITH_SEND_WITH_INV;

/// Put the functions into the struct that the program has asked for (`send_ops_flags`).
pub(crate) fn set_functions(ex: &mut ibv_qp_ex, flags: u64) -> Result<()> {
    if flags & !OFFERED != 0 {
        return Err(Error::unsupported(
            "one of the operations in send_ops_flags (windows, TSO, flush, atomic write)",
        ));
    }
    let has = |bit: u64| flags & bit != 0;
    ex.wr_start = Some(wr_start);
    ex.wr_complete = Some(wr_complete);
    ex.wr_abort = Some(wr_abort);
    ex.wr_send = has(WITH_SEND).then_some(wr_send);
    ex.wr_send_imm = has(WITH_SEND_WITH_IMM).then_some(wr_send_imm);
    ex.wr_send_inv = has(WITH_SEND_WITH_INV).then_some(wr_send_inv);
    ex.wr_local_inv = has(WITH_LOCAL_INV).then_some(wr_local_inv);
    ex.wr_rdma_read = has(WITH_RDMA_READ).then_some(wr_rdma_read);
    ex.wr_rdma_write = has(WITH_RDMA_WRITE).then_some(wr_rdma_write);
    ex.wr_rdma_write_imm = has(WITH_RDMA_WRITE_WITH_IMM).then_some(wr_rdma_write_imm);
    ex.wr_atomic_cmp_swp = has(WITH_ATOMIC_CMP_AND_SWP).then_some(wr_atomic_cmp_swp);
    ex.wr_atomic_fetch_add = has(WITH_ATOMIC_FETCH_AND_ADD).then_some(wr_atomic_fetch_add);
    ex.wr_set_ud_addr = Some(wr_set_ud_addr);
    ex.wr_set_sge = Some(wr_set_sge);
    ex.wr_set_sge_list = Some(wr_set_sge_list);
    ex.wr_set_inline_data = Some(wr_set_inline_data);
    ex.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    Ok(())
}
