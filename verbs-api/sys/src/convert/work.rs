//! Work requests and completions. On the data path: no allocation.

use std::ffi::c_int;

use verbs_api::{Provider, SendOp, Sge, Wc, WcFlags, WcOpcode, WcStatus};

use crate::*;

// A list of entries is handed on without a copy.
const _: () = assert!(size_of::<ibv_sge>() == size_of::<Sge>() && align_of::<ibv_sge>() == align_of::<Sge>());
const _: () = assert!(std::mem::offset_of!(ibv_sge, length) == std::mem::offset_of!(Sge, length));
const _: () = assert!(std::mem::offset_of!(ibv_sge, lkey) == std::mem::offset_of!(Sge, lkey));

/// The entries of a C list, in place. `None` when the count is negative, or the pointer null for a count above 0.
///
/// # Safety
/// `sges` points at `count` entries that nobody changes while the slice lives.
pub unsafe fn sge_list<'a>(sges: *const ibv_sge, count: c_int) -> Option<&'a [Sge]> {
    let count = usize::try_from(count).ok()?;
    if count == 0 {
        return Some(&[]);
    }
    if sges.is_null() || !sges.is_aligned() {
        return None;
    }
    // SAFETY: both types have one layout (above), and the caller vouches for the list.
    Some(unsafe { std::slice::from_raw_parts(sges.cast(), count) })
}

/// For C.
pub fn wc_to_c(wc: &Wc) -> ibv_wc {
    ibv_wc {
        wr_id: wc.wr_id,
        status: wc.status as c_int,
        opcode: wc.opcode as c_int,
        vendor_err: wc.vendor_err,
        byte_len: wc.byte_len,
        // C holds an immediate in network order, an invalidated key in host order.
        imm_data: if wc.flags.contains(WcFlags::WITH_IMM) {
            wc.imm.to_be()
        } else {
            wc.imm
        },
        qp_num: wc.qp_num,
        src_qp: wc.src_qp,
        wc_flags: wc.flags.bits(),
        pkey_index: wc.pkey_index,
        slid: 0,
        sl: wc.sl,
        dlid_path_bits: 0,
    }
}

/// From C. An unknown status counts as a general error, an unknown opcode as a receive.
pub fn wc_from_c(wc: &ibv_wc) -> Wc {
    let flags = WcFlags::from_bits_truncate(wc.wc_flags);
    Wc {
        wr_id: wc.wr_id,
        status: WcStatus::from_code(wc.status as u32).unwrap_or(WcStatus::GeneralErr),
        opcode: WcOpcode::from_code(wc.opcode as u32).unwrap_or(WcOpcode::Recv),
        vendor_err: wc.vendor_err,
        byte_len: wc.byte_len,
        imm: if flags.contains(WcFlags::WITH_IMM) {
            u32::from_be(wc.imm_data)
        } else {
            wc.imm_data
        },
        qp_num: wc.qp_num,
        src_qp: wc.src_qp,
        flags,
        pkey_index: wc.pkey_index,
        sl: wc.sl,
        timestamp_ns: 0,
    }
}

/// The opcode of C for an operation.
pub fn opcode_to_c<P: Provider>(op: &SendOp<'_, P>) -> c_int {
    match op {
        SendOp::Send { imm: None } | SendOp::SendTo { imm: None, .. } => IBV_WR_SEND,
        SendOp::Send { imm: Some(_) } | SendOp::SendTo { imm: Some(_), .. } => IBV_WR_SEND_WITH_IMM,
        SendOp::SendWithInvalidate { .. } => IBV_WR_SEND_WITH_INV,
        SendOp::Write { imm: None, .. } => IBV_WR_RDMA_WRITE,
        SendOp::Write { imm: Some(_), .. } => IBV_WR_RDMA_WRITE_WITH_IMM,
        SendOp::Read { .. } => IBV_WR_RDMA_READ,
        SendOp::CompareSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
        SendOp::FetchAdd { .. } => IBV_WR_ATOMIC_FETCH_AND_ADD,
        SendOp::AtomicWrite { .. } => IBV_WR_ATOMIC_WRITE,
        SendOp::Flush { .. } => IBV_WR_FLUSH,
        SendOp::LocalInvalidate { .. } => IBV_WR_LOCAL_INV,
        SendOp::BindMw { .. } => IBV_WR_BIND_MW,
    }
}
