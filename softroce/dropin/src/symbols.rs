//! The names that programs link against, each in its version node.
//!
//! A versioned name is a label of its own that jumps to the function behind it: `.symver` must stand in the object file
//! that defines its symbol, and where the compiler puts a function is its own affair. The hot verbs (posting, polling)
//! are not reached by name but through the tables of the context, so that the jump costs nothing that matters.
//!
//! A node in a name: `@@` is what new programs are linked against, `@` is only for programs that were linked long ago.

#[cfg(not(test))]
use std::arch::global_asm;

use crate::cm::*;
use crate::completion::*;
use crate::context::*;
use crate::datagram::*;
use crate::device::*;
use crate::import::*;
use crate::memory::*;
use crate::qp::*;
use crate::query::*;
use crate::rsocket::*;
use crate::srq::*;
use crate::texts::*;
use crate::unsupported::*;

#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! jump {
    () => {
        "jmp {target}"
    };
}
#[cfg(all(target_arch = "aarch64", not(test)))]
macro_rules! jump {
    () => {
        "b {target}"
    };
}

/// A label that jumps to a function, under one or more versioned names.
macro_rules! entry {
    ($label:expr, $target:path, $($versioned:expr),+) => {
        #[cfg(not(test))]
        global_asm!(
            ".pushsection .text.softroce_entries,\"ax\",%progbits",
            ".p2align 4",
            concat!(".globl ", $label),
            concat!(".type ", $label, ", %function"),
            concat!($label, ":"),
            jump!(),
            concat!(".size ", $label, ", . - ", $label),
            $(concat!(".symver ", $label, ", ", $versioned),)+
            ".popsection",
            target = sym $target,
        );
        // Unit tests are a program, which has no version nodes.
        #[cfg(test)]
        const _: () = {
            let _ = $target;
        };
    };
}

/// Functions that stand under their own name in a node.
macro_rules! export {
    ($node:literal: $($name:ident),* $(,)?) => {
        $(entry!(concat!("softroce_entry_", stringify!($name)), $name, concat!(stringify!($name), "@@", $node));)*
    };
}

/// Names of the first releases, with struct layouts of then.
macro_rules! historic {
    ($target:ident: $($name:ident),* $(,)?) => {
        $(
            entry!(
                concat!("softroce_historic_", stringify!($name)),
                $target,
                concat!(stringify!($name), "@IBVERBS_1.0")
            );
        )*
    };
}

/// Names that only the libraries of cards import, from a node that was renamed now and then.
macro_rules! private {
    ($target:ident: $($name:ident),* $(,)?) => {
        $(
            entry!(
                concat!("softroce_private_", stringify!($name)),
                $target,
                concat!(stringify!($name), "@@IBVERBS_PRIVATE_34"),
                concat!(stringify!($name), "@IBVERBS_PRIVATE_25"),
                concat!(stringify!($name), "@IBVERBS_PRIVATE_33"),
                concat!(stringify!($name), "@IBVERBS_PRIVATE_57"),
                concat!(stringify!($name), "@IBVERBS_PRIVATE_59"),
                concat!(stringify!($name), "@IBVERBS_PRIVATE_64"),
                concat!(stringify!($name), "@IBVERBS_PRIVATE_65")
            );
        )*
    };
}

/// Public names that lead to an error.
macro_rules! absent {
    ($node:literal, $target:ident: $($name:ident),* $(,)?) => {
        $(
            entry!(
                concat!("softroce_absent_", stringify!($name)),
                $target,
                concat!(stringify!($name), "@@", $node)
            );
        )*
    };
}

export! { "IBVERBS_1.0":
    ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_sysfs_path, ibv_rate_to_mult, ibv_read_sysfs_file,
    mult_to_ibv_rate,
}

export! { "IBVERBS_1.1":
    ibv_ack_async_event, ibv_ack_cq_events, ibv_alloc_pd, ibv_attach_mcast, ibv_close_device, ibv_create_ah,
    ibv_create_ah_from_wc, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah,
    ibv_destroy_cq, ibv_destroy_qp, ibv_destroy_srq, ibv_detach_mcast, ibv_dofork_range, ibv_dontfork_range,
    ibv_event_type_str, ibv_fork_init, ibv_free_device_list, ibv_get_async_event, ibv_get_cq_event,
    ibv_get_device_guid, ibv_get_device_list, ibv_get_device_name, ibv_init_ah_from_wc, ibv_modify_qp, ibv_modify_srq,
    ibv_node_type_str, ibv_open_device, ibv_port_state_str, ibv_query_device, ibv_query_gid, ibv_query_pkey,
    ibv_query_port, ibv_query_qp, ibv_query_srq, ibv_rate_to_mbps, ibv_reg_mr, ibv_rereg_mr, ibv_resize_cq,
    ibv_wc_status_str, mbps_to_ibv_rate,
}

export! { "IBVERBS_1.5": ibv_get_pkey_index }
export! { "IBVERBS_1.6": ibv_qp_to_qp_ex }
export! { "IBVERBS_1.7": ibv_reg_mr_iova }
export! { "IBVERBS_1.8": ibv_reg_mr_iova2 }
export! { "IBVERBS_1.9": ibv_get_device_index }
export! { "IBVERBS_1.10":
    ibv_import_device, ibv_import_mr, ibv_import_pd, ibv_query_ece, ibv_set_ece, ibv_unimport_mr, ibv_unimport_pd,
}
export! { "IBVERBS_1.11": _ibv_query_gid_ex, _ibv_query_gid_table }
export! { "IBVERBS_1.13": ibv_import_dm, ibv_is_fork_initialized, ibv_unimport_dm }
export! { "IBVERBS_1.14": ibv_query_qp_data_in_order }
export! { "IBVERBS_1.16": ibv_query_port_speed }

export! { "RDMACM_1.0":
    rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_connect, rdma_create_ep, rdma_create_event_channel,
    rdma_create_id, rdma_create_qp, rdma_create_qp_ex, rdma_create_srq, rdma_create_srq_ex, rdma_destroy_ep,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_destroy_qp, rdma_destroy_srq, rdma_disconnect, rdma_event_str,
    rdma_free_devices, rdma_freeaddrinfo, rdma_get_cm_event, rdma_get_devices, rdma_get_dst_port, rdma_get_request,
    rdma_get_src_port, rdma_getaddrinfo, rdma_join_multicast, rdma_leave_multicast, rdma_listen, rdma_migrate_id,
    rdma_notify, rdma_reject, rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
}
export! { "RDMACM_1.1": rdma_join_multicast_ex }
export! { "RDMACM_1.2": rdma_establish, rdma_init_qp_attr }
export! { "RDMACM_1.3": rdma_get_remote_ece, rdma_reject_ece, rdma_set_local_ece }
export! { "RDMACM_1.4": rdma_query_addrinfo, rdma_resolve_addrinfo, rdma_write_cm_event }

// Sockets over RDMA.
export! { "RDMACM_1.0":
    raccept, rbind, rclose, rconnect, rfcntl, rgetpeername, rgetsockname, rgetsockopt, riomap, riounmap, riowrite,
    rlisten, rpoll, rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rselect, rsend, rsendmsg, rsendto, rsetsockopt,
    rshutdown, rsocket, rwrite, rwritev,
}

absent! { "IBVERBS_1.12", unsupported_pointer: ibv_reg_dmabuf_mr }
absent! { "IBVERBS_1.1", unsupported_number: ibv_resolve_eth_l2_from_gid }
// They convert structs of the kernel's interface, which no program here receives.
absent! { "IBVERBS_1.0", ignored: ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern, ibv_copy_qp_attr_from_kern }
absent! { "IBVERBS_1.1", ignored: ibv_copy_ah_attr_from_kern }

historic! { unsupported_number:
    ibv_attach_mcast, ibv_close_device, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah, ibv_destroy_cq, ibv_destroy_qp,
    ibv_destroy_srq, ibv_detach_mcast, ibv_get_async_event, ibv_get_cq_event, ibv_modify_qp, ibv_modify_srq,
    ibv_query_device, ibv_query_gid, ibv_query_pkey, ibv_query_port, ibv_query_qp, ibv_query_srq, ibv_resize_cq,
}
historic! { unsupported_pointer:
    ibv_alloc_pd, ibv_create_ah, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_get_device_guid,
    ibv_get_device_list, ibv_get_device_name, ibv_open_device, ibv_reg_mr,
}
historic! { ignored: ibv_ack_async_event, ibv_ack_cq_events, ibv_free_device_list }

private! { ibv_query_gid_type: ibv_query_gid_type }
private! { ignored:
    __ioctl_final_num_attrs, __verbs_log, verbs_init_cq, verbs_register_driver_34, verbs_set_ops, verbs_uninit_context,
}
private! { unsupported_pointer: _verbs_init_and_alloc_context, verbs_open_device }
private! { unsupported_number:
    execute_ioctl, ibv_cmd_advise_mr, ibv_cmd_alloc_dm, ibv_cmd_alloc_mw, ibv_cmd_alloc_pd, ibv_cmd_attach_mcast,
    ibv_cmd_close_xrcd, ibv_cmd_create_ah, ibv_cmd_create_counters, ibv_cmd_create_cq, ibv_cmd_create_cq_ex,
    ibv_cmd_create_flow, ibv_cmd_create_flow_action_esp, ibv_cmd_create_qp, ibv_cmd_create_qp_ex,
    ibv_cmd_create_qp_ex2, ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq, ibv_cmd_create_srq_ex, ibv_cmd_create_wq,
    ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, ibv_cmd_destroy_ah, ibv_cmd_destroy_counters,
    ibv_cmd_destroy_cq, ibv_cmd_destroy_flow, ibv_cmd_destroy_flow_action, ibv_cmd_destroy_qp,
    ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, ibv_cmd_destroy_wq, ibv_cmd_detach_mcast, ibv_cmd_free_dm,
    ibv_cmd_get_context, ibv_cmd_modify_cq, ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex,
    ibv_cmd_modify_srq, ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_poll_cq, ibv_cmd_post_recv,
    ibv_cmd_post_send, ibv_cmd_post_srq_recv, ibv_cmd_query_context, ibv_cmd_query_device_any, ibv_cmd_query_mr,
    ibv_cmd_query_port, ibv_cmd_query_qp, ibv_cmd_query_srq, ibv_cmd_read_counters, ibv_cmd_reg_dm_mr,
    ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr, ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, ibv_cmd_resize_cq,
    ibv_read_ibdev_sysfs_file,
}

// The registration of vendor libraries of the first releases; one flag that later ones read.
#[cfg(not(test))]
global_asm!(
    ".pushsection .bss.softroce_flags,\"aw\",%nobits",
    ".globl softroce_private_allow_disassociate_destroy",
    ".type softroce_private_allow_disassociate_destroy, %object",
    ".size softroce_private_allow_disassociate_destroy, 1",
    "softroce_private_allow_disassociate_destroy:",
    ".zero 1",
    ".symver softroce_private_allow_disassociate_destroy, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34",
    ".popsection",
);
entry!(
    "softroce_historic_ibv_register_driver",
    ignored,
    "ibv_register_driver@IBVERBS_1.1"
);
