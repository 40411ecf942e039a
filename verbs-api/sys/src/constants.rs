//! Numbers that have no enum in `verbs-api`: opcodes of C, and bits of masks. A test compares them with the headers.

use std::ffi::{c_int, c_uint};

/// Declare constants, and the list of their names and values.
macro_rules! constants {
    ($( $(#[$meta:meta])* $name:ident: $type:ty = $value:expr; )*) => {
        $( $(#[$meta])* pub const $name: $type = $value; )*

        /// All constants of this file with their values, for comparison with C.
        pub const CONSTANTS: &[(&str, i64)] = &[ $( (stringify!($name), $name as i64) ),* ];
    };
}

constants! {
    IBV_NODE_CA: c_int = 1;
    IBV_TRANSPORT_IB: c_int = 0;
    IBV_TRANSPORT_IWARP: c_int = 1;

    IBV_WR_RDMA_WRITE: c_int = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    IBV_WR_SEND: c_int = 2;
    IBV_WR_SEND_WITH_IMM: c_int = 3;
    IBV_WR_RDMA_READ: c_int = 4;
    IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
    IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
    IBV_WR_LOCAL_INV: c_int = 7;
    IBV_WR_BIND_MW: c_int = 8;
    IBV_WR_SEND_WITH_INV: c_int = 9;
    IBV_WR_FLUSH: c_int = 14;
    IBV_WR_ATOMIC_WRITE: c_int = 15;
    IBV_SEND_INLINE: c_uint = 1 << 3;

    IBV_QP_INIT_ATTR_PD: u32 = 1;
    IBV_QP_INIT_ATTR_XRCD: u32 = 1 << 1;
    IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

    IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
    IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
    IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
    IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
    IBV_QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
    IBV_QP_EX_WITH_BIND_MW: u64 = 1 << 8;
    IBV_QP_EX_WITH_SEND_WITH_INV: u64 = 1 << 9;
    IBV_QP_EX_WITH_FLUSH: u64 = 1 << 11;
    IBV_QP_EX_WITH_ATOMIC_WRITE: u64 = 1 << 12;

    IBV_QP_OPEN_ATTR_NUM: u32 = 1;
    IBV_QP_OPEN_ATTR_XRCD: u32 = 1 << 1;
    IBV_QP_OPEN_ATTR_CONTEXT: u32 = 1 << 2;
    IBV_QP_OPEN_ATTR_TYPE: u32 = 1 << 3;

    IBV_XRCD_INIT_ATTR_FD: u32 = 1;
    IBV_XRCD_INIT_ATTR_OFLAGS: u32 = 1 << 1;

    IBV_SRQT_XRC: c_int = 1;
    IBV_SRQ_INIT_ATTR_TYPE: u32 = 1;
    IBV_SRQ_INIT_ATTR_PD: u32 = 1 << 1;
    IBV_SRQ_INIT_ATTR_XRCD: u32 = 1 << 2;
    IBV_SRQ_INIT_ATTR_CQ: u32 = 1 << 3;
    IBV_SRQ_MAX_WR: c_int = 1;
    IBV_SRQ_LIMIT: c_int = 1 << 1;

    IBV_WC_EX_WITH_BYTE_LEN: u64 = 1;
    IBV_WC_EX_WITH_IMM: u64 = 1 << 1;
    IBV_WC_EX_WITH_QP_NUM: u64 = 1 << 2;
    IBV_WC_EX_WITH_SRC_QP: u64 = 1 << 3;
    IBV_WC_EX_WITH_SLID: u64 = 1 << 4;
    IBV_WC_EX_WITH_SL: u64 = 1 << 5;
    IBV_WC_EX_WITH_DLID_PATH_BITS: u64 = 1 << 6;
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
    IBV_CQ_ATTR_MODERATE: u32 = 1;

    IBV_REREG_MR_CHANGE_TRANSLATION: c_int = 1;
    IBV_REREG_MR_CHANGE_PD: c_int = 1 << 1;
    IBV_REREG_MR_CHANGE_ACCESS: c_int = 1 << 2;

    IBV_VALUES_MASK_RAW_CLOCK: u32 = 1;
}

/// Those of librdmacm.
pub mod cm_constants {
    use std::ffi::c_int;

    constants! {
        RDMA_PS_IPOIB: c_int = 0x0002;
        RDMA_PS_TCP: c_int = 0x0106;
        RDMA_PS_UDP: c_int = 0x0111;
        RDMA_PS_IB: c_int = 0x013F;

        RAI_PASSIVE: c_int = 1;
        RAI_NUMERICHOST: c_int = 1 << 1;
        RAI_NOROUTE: c_int = 1 << 2;
        RAI_FAMILY: c_int = 1 << 3;

        RDMA_OPTION_ID: c_int = 0;
        RDMA_OPTION_IB: c_int = 1;
        RDMA_OPTION_ID_TOS: c_int = 0;
        RDMA_OPTION_ID_REUSEADDR: c_int = 1;
        RDMA_OPTION_ID_AFONLY: c_int = 2;
        RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
        RDMA_OPTION_IB_PATH: c_int = 1;

        RDMA_CM_JOIN_MC_ATTR_ADDRESS: u32 = 1;
        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: u32 = 1 << 1;
        RDMA_MC_JOIN_FLAG_FULLMEMBER: u32 = 0;
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u32 = 1;

        /// All that the peer can, in place of a number of READs and atomics.
        RDMA_MAX_RESP_RES: u8 = 0xff;
        RDMA_MAX_INIT_DEPTH: u8 = 0xff;
    }
}
