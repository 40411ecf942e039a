//! What librdmacm adds: ids, events and the addresses in them.

use std::ffi::{c_char, c_int, c_void};

use crate::mirror::mirror;
use crate::{ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq};

/// Room for an address of any family, aligned as C does. The first two bytes are the family.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct sockaddr_storage {
    pub bytes: [u8; 128],
}

mirror! {
    #[derive(Clone, Copy)]
    struct ibv_sa_path_rec {
        dgid: ibv_gid,
        sgid: ibv_gid,
        /// Big endian, as all numbers here of two and more bytes but the `int`s.
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }

    /// Vendor options for a connection (enhanced connection establishment).
    #[derive(Clone, Copy)]
    struct ibv_ece {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct rdma_ib_addr {
        sgid: ibv_gid,
        dgid: ibv_gid,
        /// Big endian.
        pkey: u16,
    }

    #[derive(Clone, Copy)]
    struct rdma_addr {
        /// A union in C.
        src_addr: sockaddr_storage,
        /// A union in C.
        dst_addr: sockaddr_storage,
        addr: rdma_ib_addr,
    }

    #[derive(Clone, Copy)]
    struct rdma_route {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec,
        num_paths: c_int,
    }

    #[derive(Clone, Copy)]
    struct rdma_event_channel {
        fd: c_int,
    }

    #[derive(Clone, Copy)]
    struct rdma_cm_id {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
        route: rdma_route,
        ps: c_int,
        port_num: u8,
        event: *mut rdma_cm_event,
        send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq,
        recv_cq_channel: *mut ibv_comp_channel,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        pd: *mut ibv_pd,
        qp_type: c_int,
    }

    #[derive(Clone, Copy)]
    struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    #[derive(Clone, Copy)]
    struct rdma_ud_param {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }

    #[derive(Clone, Copy)]
    struct rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: c_int,
        status: c_int,
        param: rdma_cm_event_param,
    }

    #[derive(Clone, Copy)]
    struct rdma_addrinfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: u32,
        ai_dst_len: u32,
        ai_src_addr: *mut c_void,
        ai_dst_addr: *mut c_void,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }

    #[derive(Clone, Copy)]
    struct rdma_cm_join_mc_attr_ex {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut c_void,
    }
}

/// What an event says, by the type of its id. Both structs begin with private data and its length.
#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_cm_event_param {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
    /// Of events that a program made itself (newer than rdma-core 44).
    pub arg: u64,
}

impl Default for sockaddr_storage {
    fn default() -> Self {
        sockaddr_storage { bytes: [0; 128] }
    }
}
