//! Posting work requests: a C list becomes slices that borrow from it, without a copy and without allocation.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use verbs_api::{
    Error, PostError, QpType, QueuePair as _, RKey, RecvWr, RemoteAddr, Result, SendFlags, SendOp, SendWr,
    Sge,
};
use verbs_sys::convert;
use verbs_sys::*;

use crate::datagram::AhHandle;
use crate::entry::number;
use crate::qp::QpHandle;
use crate::{P, Qp, window};

/// Requests handed to the provider at a time.
pub(crate) const CHUNK: usize = 16;

/// Inline bytes of one request that may come from several places.
const GATHERED_BYTES_MAX: usize = 4096;

/// A bounded list on the stack.
pub(crate) struct Batch<T: Copy> {
    items: [MaybeUninit<T>; CHUNK],
    length: usize,
}

impl<T: Copy> Batch<T> {
    pub(crate) fn new() -> Self {
        Batch {
            items: [const { MaybeUninit::uninit() }; CHUNK],
            length: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.length == CHUNK
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Append; the list must not be full.
    pub(crate) fn push(&mut self, item: T) {
        self.items[self.length].write(item);
        self.length += 1;
    }

    /// All, leaving the list empty.
    pub(crate) fn take(&mut self) -> &[T] {
        let length = std::mem::take(&mut self.length);
        // SAFETY: the first `length` items are written.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr().cast(), length) }
    }
}

/// The rest of a C list, of which some requests are in a batch.
struct Walk<W> {
    /// The request to report as bad when the first of the batch fails.
    first_of_batch: *mut W,
    bad: *mut *mut W,
}

trait Linked: Sized {
    fn next(&self) -> *mut Self;
}

impl Linked for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Linked for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl<W: Linked> Walk<W> {
    /// Report the request `index` places behind the first of the batch.
    fn refuse(&self, index: usize, error: Error) -> Error {
        let mut bad = self.first_of_batch;
        for _ in 0..index {
            // SAFETY: the list is as it was when the batch was made of it.
            bad = unsafe { (*bad).next() };
        }
        if !self.bad.is_null() {
            // SAFETY: valid for a write by the caller's promise.
            unsafe { *self.bad = bad };
        }
        error
    }

    fn check(&self, result: Result<(), PostError>) -> Result<()> {
        result.map_err(|refused| self.refuse(refused.posted, refused.error))
    }
}

/// `post_send` of the first table.
///
/// # Safety
/// `qp` is NULL or alive; `request` is NULL or a list that is valid during the call; `bad` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    request: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    number("ibv_post_send", || {
        // SAFETY: the caller's promise.
        let object = unsafe { QpHandle::object(qp, "the queue pair") }?;
        let mut walk = Walk {
            first_of_batch: request,
            bad,
        };
        let mut batch = Batch::new();
        let mut next = request;
        // SAFETY: the caller's promise.
        while let Some(current) = unsafe { next.as_ref() } {
            if batch.is_empty() {
                walk.first_of_batch = next;
            }
            let is_bind = current.opcode == IBV_WR_BIND_MW;
            if is_bind || current.send_flags & IBV_SEND_INLINE != 0 && current.num_sge > 1 {
                walk.check(object.post_send(batch.take()))?;
                walk.first_of_batch = next;
                if is_bind {
                    // SAFETY: the caller's promise.
                    unsafe { post_bind(object, current) }.map_err(|error| walk.refuse(0, error))?;
                } else {
                    // SAFETY: the caller's promise.
                    unsafe { post_gathered(object, current, &walk) }?;
                }
            } else {
                // SAFETY: the caller's promise.
                let converted = unsafe { send_request(object.qp_type(), current) };
                match converted {
                    Ok(converted) => batch.push(converted),
                    Err(error) => {
                        let before = batch.length;
                        walk.check(object.post_send(batch.take()))?;
                        return Err(walk.refuse(before, error));
                    }
                }
                if batch.is_full() {
                    walk.check(object.post_send(batch.take()))?;
                }
            }
            next = current.next;
        }
        if batch.is_empty() {
            return Ok(());
        }
        walk.check(object.post_send(batch.take()))
    })
}

/// No queue pair has room for more entries in a request. A larger number is wrong whatever the request is, and nothing
/// must be read by it.
const ENTRIES_MAX: c_int = 32;

/// The entries of a request.
///
/// # Safety
/// `list` is NULL or valid for `count` entries during `'a`, unless that is more than any queue pair takes.
pub(crate) unsafe fn entries<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge]> {
    if count > ENTRIES_MAX {
        return Err(Error::invalid(format!(
            "{count} scatter/gather entries; no queue has room for more than {ENTRIES_MAX}"
        )));
    }
    // SAFETY: the caller's promise.
    unsafe { convert::sge_list(list, count) }.ok_or_else(|| {
        Error::invalid(format!(
            "the list of entries is NULL, misaligned, or its count {count} negative"
        ))
    })
}

/// The binding of a window, whose objects are locked meanwhile.
///
/// # Safety
/// Window and region are NULL or alive.
unsafe fn post_bind(object: &Qp, request: &ibv_send_wr) -> Result<()> {
    let flags = SendFlags::from_bits_truncate(request.send_flags);
    let bind = request.bind_mw;
    // SAFETY: the caller's promise.
    unsafe {
        window::post_bind(
            object,
            (request.wr_id, flags),
            bind.mw,
            bind.rkey,
            &bind.bind_info,
        )
    }
}

/// Inline bytes from several places, put together first.
///
/// # Safety
/// The request's entries are valid during the call.
unsafe fn post_gathered(object: &Qp, request: &ibv_send_wr, walk: &Walk<ibv_send_wr>) -> Result<()> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); GATHERED_BYTES_MAX];
    let mut length = 0usize;
    // SAFETY: the caller's promise.
    let sges = unsafe { entries(request.sg_list, request.num_sge) }.map_err(|error| walk.refuse(0, error))?;
    for sge in sges {
        let part = sge.length as usize;
        if part == 0 {
            continue;
        }
        if sge.addr == 0 {
            return Err(walk.refuse(0, Error::invalid("inline data at address 0")));
        }
        if length + part > GATHERED_BYTES_MAX {
            let error = Error::invalid(format!(
                "more than {GATHERED_BYTES_MAX} inline bytes in several entries"
            ));
            return Err(walk.refuse(0, error));
        }
        // SAFETY: the entry names memory of the program, and there is room.
        unsafe {
            std::ptr::copy_nonoverlapping(sge.addr as *const u8, bytes.as_mut_ptr().add(length).cast(), part);
        }
        length += part;
    }
    // SAFETY: that many are written.
    let inline = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), length) };
    // SAFETY: the caller's promise.
    let mut converted =
        unsafe { send_request(object.qp_type(), request) }.map_err(|error| walk.refuse(0, error))?;
    converted.payload = verbs_api::Payload::Inline(inline);
    walk.check(object.post_send(&[converted]))
}

/// A request of ours that borrows from one of C's.
///
/// # Safety
/// The request, its entries, inline bytes, address handle and window are valid during `'a`.
unsafe fn send_request<'a>(kind: QpType, request: &'a ibv_send_wr) -> Result<SendWr<'a, P>> {
    let sges = match request.opcode {
        // It has no data; programs leave these members as they are.
        IBV_WR_LOCAL_INV => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { entries(request.sg_list, request.num_sge) }?,
    };
    // SAFETY: the caller's promise.
    let op = unsafe { operation(kind, request) }?;
    let payload = match request.send_flags & IBV_SEND_INLINE {
        0 => verbs_api::Payload::Sges(sges),
        _ => verbs_api::Payload::Inline(match sges.first() {
            Some(sge) if sge.length > 0 => {
                if sge.addr == 0 {
                    return Err(Error::invalid("inline data at address 0"));
                }
                // SAFETY: inline data is memory of the program.
                unsafe { std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize) }
            }
            Some(_) | None => &[],
        }),
    };
    Ok(SendWr {
        wr_id: request.wr_id,
        op,
        payload,
        flags: SendFlags::from_bits_truncate(request.send_flags),
        xrc_srqn: (kind == QpType::XrcInitiator).then_some(request.qp_type.remote_srqn),
    })
}

/// # Safety
/// As [`send_request`].
unsafe fn operation<'a>(kind: QpType, request: &'a ibv_send_wr) -> Result<SendOp<'a, P>> {
    // SAFETY: every member of the union is plain numbers and pointers; which one counts is said by the opcode.
    let (rdma, atomic, ud) = unsafe { (request.wr.rdma, request.wr.atomic, request.wr.ud) };
    let remote = RemoteAddr {
        addr: rdma.remote_addr,
        rkey: RKey(rdma.rkey),
    };
    let atomic_remote = RemoteAddr {
        addr: atomic.remote_addr,
        rkey: RKey(atomic.rkey),
    };
    let imm = Some(u32::from_be(request.imm_data));
    let send = |imm| -> Result<SendOp<'a, P>> {
        match kind {
            QpType::Ud | QpType::Gsi => Ok(SendOp::SendTo {
                // SAFETY: the caller's promise.
                ah: unsafe { AhHandle::object(ud.ah, "the address handle") }?,
                remote_qpn: ud.remote_qpn,
                remote_qkey: ud.remote_qkey,
                imm,
            }),
            // The member is not looked at, and may hold anything.
            QpType::Rc | QpType::Uc | QpType::RawPacket | QpType::XrcInitiator | QpType::XrcTarget => {
                Ok(SendOp::Send { imm })
            }
        }
    };
    match request.opcode {
        IBV_WR_SEND => send(None),
        IBV_WR_SEND_WITH_IMM => send(imm),
        IBV_WR_SEND_WITH_INV => Ok(SendOp::SendWithInvalidate {
            rkey: RKey(request.imm_data),
        }),
        IBV_WR_RDMA_WRITE => Ok(SendOp::Write { remote, imm: None }),
        IBV_WR_RDMA_WRITE_WITH_IMM => Ok(SendOp::Write { remote, imm }),
        IBV_WR_RDMA_READ => Ok(SendOp::Read { remote }),
        IBV_WR_ATOMIC_CMP_AND_SWP => Ok(SendOp::CompareSwap {
            remote: atomic_remote,
            compare: atomic.compare_add,
            swap: atomic.swap,
        }),
        IBV_WR_ATOMIC_FETCH_AND_ADD => Ok(SendOp::FetchAdd {
            remote: atomic_remote,
            add: atomic.compare_add,
        }),
        IBV_WR_ATOMIC_WRITE => Ok(SendOp::AtomicWrite { remote }),
        IBV_WR_LOCAL_INV => Ok(SendOp::LocalInvalidate {
            rkey: RKey(request.imm_data),
        }),
        opcode => Err(Error::invalid(format!(
            "{opcode} is no opcode that can be posted here"
        ))),
    }
}

/// `post_recv` of the first table.
///
/// # Safety
/// `qp` is NULL or alive; `request` is NULL or a list that is valid during the call; `bad` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    request: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    number("ibv_post_recv", || {
        // SAFETY: the caller's promise.
        let object = unsafe { QpHandle::object(qp, "the queue pair") }?;
        // SAFETY: as above.
        unsafe { post_receives(request, bad, |batch| object.post_recv(batch)) }
    })
}

/// Post a C list of receives through `post`.
///
/// # Safety
/// `request` is NULL or a list that is valid during the call; `bad` is NULL or valid for a write.
pub(crate) unsafe fn post_receives(
    request: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl Fn(&[RecvWr<'_>]) -> Result<(), PostError>,
) -> Result<()> {
    let mut walk = Walk {
        first_of_batch: request,
        bad,
    };
    let mut batch = Batch::new();
    let mut next = request;
    // SAFETY: the caller's promise.
    while let Some(current) = unsafe { next.as_ref() } {
        if batch.is_empty() {
            walk.first_of_batch = next;
        }
        // SAFETY: the caller's promise.
        match unsafe { entries(current.sg_list, current.num_sge) } {
            Ok(sges) => batch.push(RecvWr {
                wr_id: current.wr_id,
                sges,
            }),
            Err(error) => {
                let before = batch.length;
                walk.check(post(batch.take()))?;
                return Err(walk.refuse(before, error));
            }
        }
        if batch.is_full() {
            walk.check(post(batch.take()))?;
        }
        next = current.next;
    }
    if batch.is_empty() {
        return Ok(());
    }
    walk.check(post(batch.take()))
}
