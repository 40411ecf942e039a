//! Polling an extended completion queue: start, read one completion after another, end.

use verbs_api::{Result, Wc};
use verbs_sys::convert::wc_from_c;
use verbs_sys::{ibv_cq_ex, ibv_poll_cq_attr, ibv_wc};

use crate::library::check;
use crate::query::ticks_to_ns;
use crate::tables::lacking;

/// How an extended completion queue is read.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Of the device's clock, when completions carry its time.
    clock_khz: Option<u64>,
}

impl Cursor {
    pub(crate) fn new(clock_khz: Option<u64>) -> Self {
        Cursor { clock_khz }
    }

    /// Take up to `out.len()` completions. `cq` must be alive.
    pub(crate) fn poll(&self, cq: *mut ibv_cq_ex, out: &mut [Wc]) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        // SAFETY: the caller's promise; these members are set when the queue is created.
        let (start, next, end) = unsafe { ((*cq).start_poll, (*cq).next_poll, (*cq).end_poll) };
        let (Some(start), Some(next), Some(end)) = (start, next, end) else {
            return Err(lacking("ibv_start_poll"));
        };
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: alive, and the attributes valid.
        match unsafe { start(cq, &mut attr) } {
            0 => {}
            libc::ENOENT => return Ok(0),
            errno => return check("polling a completion queue", errno).map(|()| 0),
        }
        let mut done = 0;
        let result = loop {
            // SAFETY: a completion is being read.
            out[done] = unsafe { self.read(cq) };
            done += 1;
            if done == out.len() {
                break 0;
            }
            // SAFETY: between start and end.
            match unsafe { next(cq) } {
                0 => {}
                errno => break errno,
            }
        };
        // SAFETY: after a successful start.
        unsafe { end(cq) };
        match result {
            0 | libc::ENOENT => Ok(done),
            errno => check("polling a completion queue", errno).map(|()| done),
        }
    }

    /// # Safety
    /// `cq` is alive, and a completion is being read.
    unsafe fn read(&self, cq: *mut ibv_cq_ex) -> Wc {
        // SAFETY: the caller's promise. Members are absent where the driver does not tell.
        unsafe {
            let cq_ref = &*cq;
            macro_rules! field {
                ($name:ident) => {
                    cq_ref.$name.map_or_else(Default::default, |read| read(cq))
                };
            }
            let is_success = cq_ref.status == 0;
            let plain = ibv_wc {
                wr_id: cq_ref.wr_id,
                status: cq_ref.status,
                // What it was is told of successes only.
                opcode: if is_success { field!(read_opcode) } else { 0 },
                vendor_err: field!(read_vendor_err),
                byte_len: field!(read_byte_len),
                imm_data: field!(read_imm_data),
                qp_num: field!(read_qp_num),
                src_qp: field!(read_src_qp),
                wc_flags: field!(read_wc_flags),
                pkey_index: 0,
                slid: field!(read_slid) as u16,
                sl: field!(read_sl),
                dlid_path_bits: field!(read_dlid_path_bits),
            };
            let timestamp_ns = match self.clock_khz {
                Some(khz) => ticks_to_ns(field!(read_completion_ts), khz),
                None => 0,
            };
            Wc {
                timestamp_ns,
                ..wc_from_c(&plain)
            }
        }
    }
}
