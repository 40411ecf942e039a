//! Work requests and completions.

use std::ffi::{c_int, c_uint, c_void};

use crate::mirror::mirror;
use crate::{ibv_ah, ibv_mr, ibv_mw};

mirror! {
    #[derive(Clone, Copy)]
    struct ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: c_uint,
        /// The immediate in network order, or the key to invalidate in host order: an anonymous union in C.
        imm_data: u32,
        wr: ibv_send_wr_op,
        qp_type: ibv_send_wr_qp_type,
        /// A window to bind, or TSO parameters: an anonymous union in C.
        bind_mw: ibv_send_wr_bind_mw,
    }

    #[derive(Clone, Copy)]
    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    #[derive(Clone, Copy)]
    struct ibv_wc {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        /// The immediate in network order, or the invalidated key in host order: an anonymous union in C.
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    #[derive(Clone, Copy)]
    struct ibv_mw_bind_info {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }

    #[derive(Clone, Copy)]
    struct ibv_mw_bind {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }
}

/// `wr` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_send_wr_op {
    pub rdma: ibv_send_wr_rdma,
    pub atomic: ibv_send_wr_atomic,
    pub ud: ibv_send_wr_ud,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `qp_type` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr_qp_type {
    pub remote_srqn: u32,
}

/// `bind_mw` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// TSO parameters, in the place of [`ibv_send_wr_bind_mw`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr_tso {
    pub hdr: *mut c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}
