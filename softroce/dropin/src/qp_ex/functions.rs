//! The functions of `ibv_qp_ex`.

use std::ffi::{c_int, c_void};

use verbs_api::{Capabilities, Error, LKey, QueuePair as _, RKey, RemoteAddr, Result, SendOp, Sge};
use verbs_sys::*;

use crate::post::entries;
use crate::qp::QpHandle;

use super::{Data, Op, Requests, begin, fail, requests, set, wr_abort, wr_complete, wr_start};

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
/// As [`begin`]; `info` is valid during the call.
unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match info.as_ref() {
            Some(info) => begin(
                qp,
                Op::Bind {
                    mw,
                    rkey,
                    info: *info,
                },
            ),
            None => fail(requests(qp), libc::EINVAL),
        }
    }
}

/// # Safety
/// As [`begin`]; `word` points at 8 bytes that are valid during the call.
unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, word: *const c_void) {
    const WORD_BYTES: usize = 8;
    // SAFETY: the caller's promise.
    unsafe {
        let op = SendOp::AtomicWrite {
            remote: remote(rkey, addr),
        };
        begin(qp, Op::Plain(op));
        // The word needs none of the queue pair's room for inline data.
        set_inline(qp, WORD_BYTES, std::iter::once((word, WORD_BYTES)));
    }
}

/// # Safety
/// As [`begin`].
unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    const RANGE: u8 = 0;
    const WHOLE_MR: u8 = 1;
    // SAFETY: the caller's promise.
    unsafe {
        match (u32::try_from(length), level) {
            (Ok(length), RANGE | WHOLE_MR) => {
                let op = SendOp::Flush {
                    remote: remote(rkey, addr),
                    length,
                    placement: u32::from(placement),
                    whole_mr: level == WHOLE_MR,
                };
                begin(qp, Op::Plain(op));
            }
            (_, _) => fail(requests(qp), libc::EINVAL),
        }
    }
}

/// # Safety
/// As [`begin`].
unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: the caller's promise.
    let requests = unsafe { requests(qp) };
    match requests.list.last_mut() {
        Some(request) => request.xrc_srqn = Some(srqn),
        None => fail(requests, libc::EINVAL),
    }
}

/// # Safety
/// As [`begin`].
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: the caller's promise.
    let requests = unsafe { requests(qp) };
    match requests.list.last_mut().map(|request| &mut request.op) {
        Some(Op::Datagram { to, .. }) => *to = Some((ah, remote_qpn, remote_qkey)),
        Some(Op::Plain(_) | Op::Bind { .. }) | None => fail(requests, libc::EINVAL),
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
        match unsafe { entries(list, c_int::try_from(count).unwrap_or(-1)) } {
            Ok(sges) => requests.sges.extend_from_slice(sges),
            Err(error) => fail(requests, error.errno()),
        }
        Data::Sges(before..requests.sges.len())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, add) }
}

/// Add inline bytes from one place to the request begun last. Nothing beyond what the queue pair takes is looked at.
///
/// # Safety
/// `addr` is NULL or valid for reads of `length` bytes, if those are no more than inline data may be.
unsafe fn add_inline(
    requests: &mut Requests,
    room: usize,
    addr: *const c_void,
    length: usize,
) -> Result<(), c_int> {
    if length == 0 {
        return Ok(());
    }
    if addr.is_null() || length > room {
        return Err(libc::EINVAL);
    }
    // SAFETY: not NULL, and the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), length) };
    requests.inline.extend_from_slice(bytes);
    Ok(())
}

/// Make the bytes of `parts` the data of the request begun last: as many as the queue pair takes, or `at_least` so many.
///
/// # Safety
/// As [`begin`]; the parts are as in [`add_inline`].
unsafe fn set_inline(
    qp: *mut ibv_qp_ex,
    at_least: usize,
    parts: impl Iterator<Item = (*const c_void, usize)>,
) {
    // SAFETY: the caller's promise.
    let Ok(object) = (unsafe { QpHandle::object(qp.cast(), "the queue pair") }) else {
        return;
    };
    let most = (object.cap().max_inline_data as usize).max(at_least);
    let add = |requests: &mut Requests| {
        let before = requests.inline.len();
        for (addr, length) in parts {
            let room = most - (requests.inline.len() - before);
            // SAFETY: the caller's promise.
            if let Err(errno) = unsafe { add_inline(requests, room, addr, length) } {
                fail(requests, errno);
                break;
            }
        }
        Data::Inline(before..requests.inline.len())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, add) }
}

/// # Safety
/// As [`begin`]; the bytes are valid during the call.
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { set_inline(qp, 0, std::iter::once((addr.cast_const(), length))) }
}

/// # Safety
/// As [`begin`]; list and bytes are valid during the call.
unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    if list.is_null() && count > 0 {
        // SAFETY: the caller's promise.
        return fail(unsafe { requests(qp) }, libc::EINVAL);
    }
    let part = |i| {
        // SAFETY: the caller's promise.
        let part = unsafe { *list.add(i) };
        (part.addr.cast_const(), part.length)
    };
    // SAFETY: the caller's promise.
    unsafe { set_inline(qp, 0, (0..count).map(part)) }
}

const WITH_RDMA_WRITE: u64 = 1;
const WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
const WITH_SEND: u64 = 1 << 2;
const WITH_SEND_WITH_IMM: u64 = 1 << 3;
const WITH_RDMA_READ: u64 = 1 << 4;
const WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
const WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
const WITH_LOCAL_INV: u64 = 1 << 7;
const WITH_BIND_MW: u64 = 1 << 8;
const WITH_SEND_WITH_INV: u64 = 1 << 9;
const WITH_FLUSH: u64 = 1 << 11;
const WITH_ATOMIC_WRITE: u64 = 1 << 12;
const ALWAYS_OFFERED: u64 = WITH_RDMA_WRITE
    | WITH_RDMA_WRITE_WITH_IMM
    | WITH_SEND
    | WITH_SEND_WITH_IMM
    | WITH_RDMA_READ
    | WITH_ATOMIC_CMP_AND_SWP
    | WITH_ATOMIC_FETCH_AND_ADD
    | WITH_LOCAL_INV
    | WITH_SEND_WITH_INV;

/// Put the functions into the struct that the program has asked for (`send_ops_flags`), if the device `can`.
pub(crate) fn set_functions(ex: &mut ibv_qp_ex, flags: u64, can: &Capabilities) -> Result<()> {
    let optional = [
        (can.mw_type2, WITH_BIND_MW),
        (can.flush, WITH_FLUSH),
        (can.atomic_write, WITH_ATOMIC_WRITE),
    ];
    let offered = optional
        .iter()
        .filter(|(is_offered, _)| *is_offered)
        .fold(ALWAYS_OFFERED, |offered, (_, bit)| offered | bit);
    if flags & !offered != 0 {
        return Err(Error::unsupported("one of the operations in send_ops_flags"));
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
    ex.wr_bind_mw = has(WITH_BIND_MW).then_some(wr_bind_mw);
    ex.wr_flush = has(WITH_FLUSH).then_some(wr_flush);
    ex.wr_atomic_write = has(WITH_ATOMIC_WRITE).then_some(wr_atomic_write);
    ex.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    ex.wr_set_ud_addr = Some(wr_set_ud_addr);
    ex.wr_set_sge = Some(wr_set_sge);
    ex.wr_set_sge_list = Some(wr_set_sge_list);
    ex.wr_set_inline_data = Some(wr_set_inline_data);
    ex.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    Ok(())
}
