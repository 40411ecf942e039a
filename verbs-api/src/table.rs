//! Where each operation of the C API is in the traits, or why it is not there.
//!
//! Three lists: the two tables of an open device that inline functions of the C header call ([`CONTEXT_OPS`],
//! [`VERBS_CONTEXT`]), and the functions that the library exports ([`EXPORTED`]). A test compares the names with those
//! of the C library; that the methods exist, the compiler sees to.

use crate::{
    CompletionChannel, CompletionQueue, Context, DeviceMemory, MemoryRegion, Object, ProtectionDomain,
    Provider, QueuePair, SharedReceiveQueue,
};

/// Where an operation of C is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// In this trait method.
    Method(&'static str),
    /// Not offered, for this reason.
    NotOffered(&'static str),
}

macro_rules! mapping {
    (method($_:ty, $trait:ident :: $method:ident)) => {
        Mapping::Method(concat!(stringify!($trait), "::", stringify!($method)))
    };
    (none($reason:expr)) => {
        Mapping::NotOffered($reason)
    };
}

macro_rules! reference {
    (method($type:ty, $trait:ident :: $method:ident)) => {
        let _ = <$type as $trait>::$method;
    };
    (none($reason:expr)) => {};
}

macro_rules! table {
    ($(#[$meta:meta])* $name:ident, $exists:ident { $($operation:ident => $kind:ident $where:tt,)* }) => {
        $(#[$meta])*
        pub const $name: &[(&str, Mapping)] = &[ $( (stringify!($operation), mapping!($kind $where)) ),* ];

        /// Never called: that it compiles shows that the methods exist.
        #[allow(dead_code)]
        fn $exists<P: Provider>() {
            $( reference!($kind $where); )*
        }
    };
}

const HISTORIC: &str = "a slot that only programs of long ago call; the exported function does the same";
const RAW: &str = "for raw Ethernet packets, which have no part in RDMA";
const VENDOR: &str = "an arrangement between a vendor's card and its own library";
const PROCESSES: &str = "objects are not shared between processes";
const TEXT: &str = "a text or a conversion: see the Display of the value, or its from_code";
const FORK: &str = "fork is made safe by the provider, without being asked";
const SYSFS: &str = "files of the kernel's own drivers";
const COUNTERS: &str = "counters of a flow or of completions; a provider's own counters are its own API";
const KERNEL: &str = "copies a struct of the kernel's interface";

table! {
    /// `struct ibv_context_ops`.
    CONTEXT_OPS, context_ops_exist {
        _compat_query_device => none(HISTORIC),
        _compat_query_port => none(HISTORIC),
        _compat_alloc_pd => none(HISTORIC),
        _compat_dealloc_pd => none(HISTORIC),
        _compat_reg_mr => none(HISTORIC),
        _compat_rereg_mr => none(HISTORIC),
        _compat_dereg_mr => none(HISTORIC),
        alloc_mw => method(P::Pd, ProtectionDomain::alloc_mw),
        bind_mw => method(P::Qp, QueuePair::bind_mw),
        dealloc_mw => method(P::Mw, Object::destroy),
        _compat_create_cq => none(HISTORIC),
        poll_cq => method(P::Cq, CompletionQueue::poll),
        req_notify_cq => method(P::Cq, CompletionQueue::req_notify),
        _compat_cq_event => none(HISTORIC),
        _compat_resize_cq => none(HISTORIC),
        _compat_destroy_cq => none(HISTORIC),
        _compat_create_srq => none(HISTORIC),
        _compat_modify_srq => none(HISTORIC),
        _compat_query_srq => none(HISTORIC),
        _compat_destroy_srq => none(HISTORIC),
        post_srq_recv => method(P::Srq, SharedReceiveQueue::post_recv),
        _compat_create_qp => none(HISTORIC),
        _compat_query_qp => none(HISTORIC),
        _compat_modify_qp => none(HISTORIC),
        _compat_destroy_qp => none(HISTORIC),
        post_send => method(P::Qp, QueuePair::post_send),
        post_recv => method(P::Qp, QueuePair::post_recv),
        _compat_create_ah => none(HISTORIC),
        _compat_destroy_ah => none(HISTORIC),
        _compat_attach_mcast => none(HISTORIC),
        _compat_detach_mcast => none(HISTORIC),
        _compat_async_event => none(HISTORIC),
    }
}

table! {
    /// `struct verbs_context`, without the members that are no operations.
    VERBS_CONTEXT, verbs_context_exists {
        free_buf => none(VENDOR),
        alloc_buf => none(VENDOR),
        dm_export_dmabuf_fd => none("device memory is not handed to other drivers"),
        reg_mr_ex => method(P::Pd, ProtectionDomain::reg_mr_iova),
        dealloc_dmah => none("hints for the caches of a PCIe card"),
        alloc_dmah => none("hints for the caches of a PCIe card"),
        query_port => method(P::Context, Context::query_port),
        advise_mr => method(P::Pd, ProtectionDomain::advise_mr),
        alloc_null_mr => method(P::Pd, ProtectionDomain::alloc_null_mr),
        read_counters => none(COUNTERS),
        attach_counters_point_flow => none(COUNTERS),
        create_counters => none(COUNTERS),
        destroy_counters => none(COUNTERS),
        reg_dm_mr => method(P::Pd, ProtectionDomain::reg_dm_mr),
        alloc_dm => method(P::Context, Context::alloc_dm),
        free_dm => method(P::Dm, Object::destroy),
        modify_flow_action_esp => none(RAW),
        destroy_flow_action => none(RAW),
        create_flow_action_esp => none(RAW),
        modify_qp_rate_limit => method(P::Qp, QueuePair::modify),
        alloc_parent_domain => method(P::Pd, ProtectionDomain::parent_domain),
        dealloc_td => none("a thread domain only says that locks may be left out; a parent domain needs none"),
        alloc_td => none("a thread domain only says that locks may be left out; a parent domain needs none"),
        modify_cq => method(P::Cq, CompletionQueue::moderate),
        post_srq_ops => none("tag matching, which one vendor's cards alone offered"),
        destroy_rwq_ind_table => none(RAW),
        create_rwq_ind_table => none(RAW),
        destroy_wq => none(RAW),
        modify_wq => none(RAW),
        create_wq => none(RAW),
        query_rt_values => method(P::Context, Context::clock_ns),
        create_cq_ex => method(P::Context, Context::create_cq),
        query_device_ex => method(P::Context, Context::query_device),
        ibv_destroy_flow => none(RAW),
        ibv_create_flow => none(RAW),
        open_qp => method(P::Context, Context::open_qp),
        create_qp_ex => method(P::Pd, ProtectionDomain::create_qp),
        get_srq_num => method(P::Srq, SharedReceiveQueue::srqn),
        create_srq_ex => method(P::Pd, ProtectionDomain::create_srq),
        open_xrcd => method(P::Context, Context::open_xrc_domain),
        close_xrcd => method(P::XrcDomain, Object::destroy),
    }
}

table! {
    /// The public functions that libibverbs exports.
    EXPORTED, exported_exist {
        _ibv_query_gid_ex => method(P::Context, Context::query_gid),
        _ibv_query_gid_table => method(P::Context, Context::gid_table),
        ibv_ack_async_event => none("dropping the AsyncEventGuard does it"),
        ibv_ack_cq_events => none("dropping the CqEvent does it"),
        ibv_alloc_pd => method(P::Context, Context::alloc_pd),
        ibv_attach_mcast => method(P::Qp, QueuePair::attach_mcast),
        ibv_close_device => method(P::Context, Object::destroy),
        ibv_copy_ah_attr_from_kern => none(KERNEL),
        ibv_copy_path_rec_from_kern => none(KERNEL),
        ibv_copy_path_rec_to_kern => none(KERNEL),
        ibv_copy_qp_attr_from_kern => none(KERNEL),
        ibv_create_ah => method(P::Pd, ProtectionDomain::create_ah),
        ibv_create_ah_from_wc => method(P::Pd, ProtectionDomain::create_ah_from_wc),
        ibv_create_comp_channel => method(P::Context, Context::create_channel),
        ibv_create_cq => method(P::Context, Context::create_cq),
        ibv_create_qp => method(P::Pd, ProtectionDomain::create_qp),
        ibv_create_srq => method(P::Pd, ProtectionDomain::create_srq),
        ibv_dealloc_pd => method(P::Pd, Object::destroy),
        ibv_dereg_mr => method(P::Mr, Object::destroy),
        ibv_destroy_ah => method(P::Ah, Object::destroy),
        ibv_destroy_comp_channel => method(P::Channel, Object::destroy),
        ibv_destroy_cq => method(P::Cq, Object::destroy),
        ibv_destroy_qp => method(P::Qp, Object::destroy),
        ibv_destroy_srq => method(P::Srq, Object::destroy),
        ibv_detach_mcast => method(P::Qp, QueuePair::detach_mcast),
        ibv_dofork_range => none(FORK),
        ibv_dontfork_range => none(FORK),
        ibv_event_type_str => none(TEXT),
        ibv_fork_init => none(FORK),
        ibv_free_device_list => none("the list is a Vec"),
        ibv_get_async_event => method(P::Context, Context::async_event),
        ibv_get_cq_event => method(P::Channel, CompletionChannel::wait),
        ibv_get_device_guid => method(P, Provider::devices),
        ibv_get_device_index => none("a number of the kernel's; devices are named"),
        ibv_get_device_list => method(P, Provider::devices),
        ibv_get_device_name => method(P::Context, Context::name),
        ibv_get_pkey_index => method(P::Context, Context::query_pkey),
        ibv_get_sysfs_path => none(SYSFS),
        ibv_import_device => none(PROCESSES),
        ibv_import_dm => none(PROCESSES),
        ibv_import_mr => none(PROCESSES),
        ibv_import_pd => none(PROCESSES),
        ibv_init_ah_from_wc => method(P::Pd, ProtectionDomain::create_ah_from_wc),
        ibv_is_fork_initialized => none(FORK),
        ibv_modify_qp => method(P::Qp, QueuePair::modify),
        ibv_modify_srq => method(P::Srq, SharedReceiveQueue::modify),
        ibv_node_type_str => none(TEXT),
        ibv_open_device => method(P, Provider::open),
        ibv_port_state_str => none(TEXT),
        ibv_qp_to_qp_ex => none("the builder of work requests is a C convenience over post_send"),
        ibv_query_device => method(P::Context, Context::query_device),
        ibv_query_ece => none(VENDOR),
        ibv_query_gid => method(P::Context, Context::query_gid),
        ibv_query_pkey => method(P::Context, Context::query_pkey),
        ibv_query_port => method(P::Context, Context::query_port),
        ibv_query_qp => method(P::Qp, QueuePair::query),
        ibv_query_qp_data_in_order => method(P::Qp, QueuePair::data_in_order),
        ibv_query_srq => method(P::Srq, SharedReceiveQueue::query),
        ibv_rate_to_mbps => none(TEXT),
        ibv_rate_to_mult => none(TEXT),
        ibv_read_sysfs_file => none(SYSFS),
        ibv_reg_dmabuf_mr => none("memory of other drivers"),
        ibv_reg_mr => method(P::Pd, ProtectionDomain::reg_mr_raw),
        ibv_reg_mr_iova => method(P::Pd, ProtectionDomain::reg_mr_iova),
        ibv_reg_mr_iova2 => method(P::Pd, ProtectionDomain::reg_mr_iova),
        ibv_register_driver => none(VENDOR),
        ibv_rereg_mr => method(P::Mr, MemoryRegion::rereg),
        ibv_resize_cq => method(P::Cq, CompletionQueue::resize),
        ibv_resolve_eth_l2_from_gid => none("the fabric finds the way to an address"),
        ibv_set_ece => none(VENDOR),
        ibv_unimport_dm => none(PROCESSES),
        ibv_unimport_mr => none(PROCESSES),
        ibv_unimport_pd => none(PROCESSES),
        ibv_wc_status_str => none(TEXT),
        mbps_to_ibv_rate => none(TEXT),
        mult_to_ibv_rate => none(TEXT),
    }
}

table! {
    /// Functions that lie in an object of C rather than in a table.
    OBJECT_OPS, object_ops_exist {
        memcpy_to_dm => method(P::Dm, DeviceMemory::write),
        memcpy_from_dm => method(P::Dm, DeviceMemory::read),
    }
}
