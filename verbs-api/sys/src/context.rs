//! The open device: its two tables of operations, which inline functions of the C header call.

use std::ffi::{c_int, c_uint, c_void};

use crate::mirror::mirror;
use crate::*;

/// A slot of a table that this crate gives no type: nobody calls it through here.
pub type Slot = Option<unsafe extern "C" fn()>;

mirror! {
    /// The first table. Members named `_compat_…` were called by programs of long ago.
    #[derive(Clone, Copy)]
    struct ibv_context_ops {
        _compat_query_device: Slot,
        _compat_query_port: Slot,
        _compat_alloc_pd: Slot,
        _compat_dealloc_pd: Slot,
        _compat_reg_mr: Slot,
        _compat_rereg_mr: Slot,
        _compat_dereg_mr: Slot,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
        bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: Slot,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: Slot,
        _compat_resize_cq: Slot,
        _compat_destroy_cq: Slot,
        _compat_create_srq: Slot,
        _compat_modify_srq: Slot,
        _compat_query_srq: Slot,
        _compat_destroy_srq: Slot,
        post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_qp: Slot,
        _compat_query_qp: Slot,
        _compat_modify_qp: Slot,
        _compat_destroy_qp: Slot,
        post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_ah: Slot,
        _compat_destroy_ah: Slot,
        _compat_attach_mcast: Slot,
        _compat_detach_mcast: Slot,
        _compat_async_event: Slot,
    }

    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        /// All ones when the context is the tail of a [`verbs_context`].
        abi_compat: *mut c_void,
    }

    /// The second table, found by stepping back from the context. It grows at its head: an operation is there when `sz`
    /// (bytes from the operation to the end) covers it and it is not null.
    struct verbs_context {
        free_buf: Slot,
        alloc_buf: Slot,
        dm_export_dmabuf_fd: Slot,
        reg_mr_ex: Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_mr_init_attr) -> *mut ibv_mr>,
        dealloc_dmah: Slot,
        alloc_dmah: Slot,
        query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
        advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int>,
        alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
        read_counters: Slot,
        attach_counters_point_flow: Slot,
        create_counters: Slot,
        destroy_counters: Slot,
        reg_dm_mr: Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr>,
        alloc_dm: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
        free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
        modify_flow_action_esp: Slot,
        destroy_flow_action: Slot,
        create_flow_action_esp: Slot,
        modify_qp_rate_limit: Slot,
        alloc_parent_domain:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
        dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
        alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
        modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
        post_srq_ops: Slot,
        destroy_rwq_ind_table: Slot,
        create_rwq_ind_table: Slot,
        destroy_wq: Slot,
        modify_wq: Slot,
        create_wq: Slot,
        query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
        create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
        /// The library's own.
        r#priv: *mut c_void,
        query_device_ex: Option<
            unsafe extern "C" fn(
                *mut ibv_context,
                *const ibv_query_device_ex_input,
                *mut ibv_device_attr_ex,
                usize,
            ) -> c_int,
        >,
        ibv_destroy_flow: Slot,
        ABI_placeholder2: Slot,
        ibv_create_flow: Slot,
        ABI_placeholder1: Slot,
        open_qp: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
        create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
        get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
        open_xrcd: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
        close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }
}

impl ibv_context {
    /// What `abi_compat` holds in the tail of a [`verbs_context`].
    pub const EXTENDED: *mut c_void = usize::MAX as *mut c_void;
}

impl verbs_context {
    /// Bytes from the member at `offset` to the end of the struct: what `sz` must reach for it to be there.
    pub const fn reach(offset: usize) -> usize {
        size_of::<verbs_context>() - offset
    }
}
