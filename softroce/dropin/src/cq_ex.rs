//! Extended completion queues: a program starts to poll, reads what it wants of one completion after another, and ends.
//!
//! From a successful `start_poll` to `end_poll` the queue belongs to one thread: a lock is held in between, as in the
//! libraries of cards.

use std::ffi::{c_int, c_uint};
use std::time::{SystemTime, UNIX_EPOCH};

use verbs_api::{CompletionQueue as _, Context as _, Error, Result, Wc};
use verbs_sys::convert::wc_to_c;
use verbs_sys::*;

use crate::completion::{self, CqHandle};
use crate::context;
use crate::entry::{self, place, pointer};
use crate::spanning::Spanning;

/// The completion that is being read, from a successful `start_poll` to `end_poll`.
pub(crate) type Cursor = Spanning<Wc>;

/// A struct without functions, nor anything else.
pub(crate) fn empty() -> ibv_cq_ex {
    // SAFETY: zeroes are valid in every member: numbers, NULL pointers, absent functions, and a mutex and a condition
    // variable in their initial states.
    unsafe { std::mem::zeroed() }
}

/// # Safety
/// `cq` is alive.
unsafe fn cursor<'a>(cq: *mut ibv_cq_ex) -> &'a Cursor {
    // SAFETY: the caller's promise.
    unsafe { &CqHandle::extra(cq.cast()).cursor }
}

/// Take the next completion: 0, ENOENT when there is none, or another error number.
///
/// # Safety
/// `cq` is alive, and this thread holds the cursor's lock.
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    let mut errno = 0;
    let taken = entry::count("ibv_next_poll", || {
        // SAFETY: the caller's promise: the lock makes the reference the only one.
        let (object, current) = unsafe {
            (
                CqHandle::object(cq.cast(), "the completion queue")?,
                cursor(cq).value(),
            )
        };
        let mut wc = [Wc::default()];
        if object.poll(&mut wc).inspect_err(|error| errno = error.errno())? == 0 {
            return Ok(0);
        }
        *current = wc[0];
        // SAFETY: alive; the members are this thread's while it polls.
        unsafe {
            (*cq).wr_id = wc[0].wr_id;
            (*cq).status = wc[0].status as c_int;
        }
        Ok(1)
    });
    match taken {
        1 => 0,
        0 => libc::ENOENT,
        _ if errno != 0 => errno,
        _ => libc::EIO,
    }
}

/// # Safety
/// `cq` is alive; `attr` is NULL or valid.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: alive; the lock is held while the cursor moves, and kept when there is a completion.
    unsafe {
        cursor(cq).lock();
        let result = advance(cq);
        if result != 0 {
            cursor(cq).unlock();
        }
        result
    }
}

/// # Safety
/// `cq` is alive, after a successful `start_poll`.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: this thread holds the lock.
    unsafe { advance(cq) }
}

/// # Safety
/// `cq` is alive, after a successful `start_poll`.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: this thread holds the lock.
    unsafe { cursor(cq).unlock() }
}

/// The functions that read a member of the completion, in C's form.
macro_rules! readers {
    ($($name:ident -> $ty:ty: $member:ident;)*) => {
        $(
            /// # Safety
            /// `cq` is alive, after a successful `start_poll`.
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
                // SAFETY: this thread holds the lock.
                wc_to_c(unsafe { cursor(cq).value() }).$member
            }
        )*
    };
}

readers! {
    read_opcode -> c_int: opcode;
    read_vendor_err -> u32: vendor_err;
    read_byte_len -> u32: byte_len;
    read_imm_data -> u32: imm_data;
    read_qp_num -> u32: qp_num;
    read_src_qp -> u32: src_qp;
    read_wc_flags -> c_uint: wc_flags;
    read_sl -> u8: sl;
    read_dlid_path_bits -> u8: dlid_path_bits;
}

/// # Safety
/// As the others.
unsafe extern "C" fn read_slid(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

/// In ticks of the device's clock: nanoseconds.
///
/// # Safety
/// As the others.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: this thread holds the lock.
    unsafe { cursor(cq).value().timestamp_ns }
}

/// Nanoseconds since 1970.
///
/// # Safety
/// As the others.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as above; the context is open while a queue on it lives.
    let (stamp, now) = unsafe {
        let stamp = cursor(cq).value().timestamp_ns;
        (
            stamp,
            context::object((*cq).context).and_then(|context| context.clock_ns()),
        )
    };
    let since = now.map_or(0, |now| now.saturating_sub(stamp));
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (wall.as_nanos() as u64).saturating_sub(since)
}

const WITH_BYTE_LEN: u64 = 1;
const WITH_IMM: u64 = 1 << 1;
const WITH_QP_NUM: u64 = 1 << 2;
const WITH_SRC_QP: u64 = 1 << 3;
const WITH_SLID: u64 = 1 << 4;
const WITH_SL: u64 = 1 << 5;
const WITH_DLID_PATH_BITS: u64 = 1 << 6;
const WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
const WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;
const WITH_TIMESTAMPS: u64 = WITH_COMPLETION_TIMESTAMP | WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
const OFFERED: u64 = WITH_BYTE_LEN
    | WITH_IMM
    | WITH_QP_NUM
    | WITH_SRC_QP
    | WITH_SLID
    | WITH_SL
    | WITH_DLID_PATH_BITS
    | WITH_TIMESTAMPS;

/// A struct with the functions that the program has asked for (`wc_flags`).
fn with_functions(flags: u64) -> Result<ibv_cq_ex> {
    if flags & !OFFERED != 0 {
        return Err(Error::unsupported(
            "one of wc_flags (VLAN, flow tags, tag matching)",
        ));
    }
    let has = |bit: u64| flags & bit != 0;
    let mut ex = empty();
    ex.start_poll = Some(start_poll);
    ex.next_poll = Some(next_poll);
    ex.end_poll = Some(end_poll);
    ex.read_opcode = Some(read_opcode);
    ex.read_vendor_err = Some(read_vendor_err);
    ex.read_wc_flags = Some(read_wc_flags);
    ex.read_byte_len = has(WITH_BYTE_LEN).then_some(read_byte_len);
    ex.read_imm_data = has(WITH_IMM).then_some(read_imm_data);
    ex.read_qp_num = has(WITH_QP_NUM).then_some(read_qp_num);
    ex.read_src_qp = has(WITH_SRC_QP).then_some(read_src_qp);
    ex.read_slid = has(WITH_SLID).then_some(read_slid);
    ex.read_sl = has(WITH_SL).then_some(read_sl);
    ex.read_completion_ts = has(WITH_COMPLETION_TIMESTAMP).then_some(read_completion_ts);
    ex.read_completion_wallclock_ns =
        has(WITH_COMPLETION_TIMESTAMP_WALLCLOCK).then_some(read_completion_wallclock_ns);
    ex.read_dlid_path_bits = has(WITH_DLID_PATH_BITS).then_some(read_dlid_path_bits);
    Ok(ex)
}

/// `create_cq_ex` of the second table.
///
/// # Safety
/// `context` is NULL or open, `init` NULL or valid, its channel NULL or alive.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    const MASK_FLAGS: u32 = 1;
    /// A parent domain: a hint.
    const MASK_PD: u32 = 1 << 1;
    /// One thread alone polls: a promise that we need not make use of.
    const SINGLE_THREADED: u32 = 1;
    pointer("ibv_create_cq_ex", || {
        // SAFETY: the caller's promise.
        let init = unsafe { place(init, "the attributes") }?;
        if init.comp_mask & !(MASK_FLAGS | MASK_PD) != 0 {
            return Err(Error::invalid(format!(
                "a completion queue has no attributes {:#x}",
                init.comp_mask
            )));
        }
        if init.comp_mask & MASK_FLAGS != 0 && init.flags & !SINGLE_THREADED != 0 {
            return Err(Error::unsupported("a completion queue that ignores overruns"));
        }
        let ex = with_functions(init.wc_flags)?;
        // SAFETY: the caller's promise.
        unsafe {
            completion::create(
                context,
                init.channel,
                init.cq_context,
                (init.cqe, init.comp_vector),
                init.wc_flags & WITH_TIMESTAMPS != 0,
                ex,
            )
        }
    })
}
