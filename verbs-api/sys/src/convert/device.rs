//! Devices, ports, GID table entries.

use std::ffi::c_int;

use verbs_api::{AtomicCap, DeviceAttr, Gid, GidEntry, GidType, LinkLayer, Mtu, PortAttr, PortState};

use super::{text_from_c, text_to_c};
use crate::{ibv_device_attr, ibv_gid, ibv_gid_entry, ibv_port_attr};

fn to_int(count: u32) -> c_int {
    count.try_into().unwrap_or(c_int::MAX)
}

fn from_int(count: c_int) -> u32 {
    count.try_into().unwrap_or(0)
}

/// For C. Counts beyond an `int` become its maximum.
pub fn device_attr_to_c(attr: &DeviceAttr) -> ibv_device_attr {
    ibv_device_attr {
        fw_ver: text_to_c(&attr.fw_ver),
        node_guid: attr.node_guid.to_be(),
        sys_image_guid: attr.sys_image_guid.to_be(),
        max_mr_size: attr.max_mr_size,
        page_size_cap: attr.page_size_cap,
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        hw_ver: attr.hw_ver,
        max_qp: to_int(attr.max_qp),
        max_qp_wr: to_int(attr.max_qp_wr),
        // The upper half is for `ibv_device_attr_ex`.
        device_cap_flags: attr.device_cap_flags as u32,
        max_sge: to_int(attr.max_sge),
        max_sge_rd: to_int(attr.max_sge_rd),
        max_cq: to_int(attr.max_cq),
        max_cqe: to_int(attr.max_cqe),
        max_mr: to_int(attr.max_mr),
        max_pd: to_int(attr.max_pd),
        max_qp_rd_atom: to_int(attr.max_qp_rd_atom),
        max_ee_rd_atom: to_int(attr.max_ee_rd_atom),
        max_res_rd_atom: to_int(attr.max_res_rd_atom),
        max_qp_init_rd_atom: to_int(attr.max_qp_init_rd_atom),
        max_ee_init_rd_atom: 0,
        atomic_cap: attr.atomic_cap as c_int,
        max_ee: 0,
        max_rdd: 0,
        max_mw: to_int(attr.max_mw),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: to_int(attr.max_mcast_grp),
        max_mcast_qp_attach: to_int(attr.max_mcast_qp_attach),
        max_total_mcast_qp_attach: to_int(attr.max_total_mcast_qp_attach),
        max_ah: to_int(attr.max_ah),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: to_int(attr.max_srq),
        max_srq_wr: to_int(attr.max_srq_wr),
        max_srq_sge: to_int(attr.max_srq_sge),
        max_pkeys: attr.max_pkeys,
        local_ca_ack_delay: attr.local_ca_ack_delay,
        phys_port_cnt: attr.phys_port_cnt,
    }
}

/// From C. What C does not state there (inline data, device memory, completion vectors) is 0.
pub fn device_attr_from_c(attr: &ibv_device_attr) -> DeviceAttr {
    DeviceAttr {
        fw_ver: text_from_c(&attr.fw_ver),
        node_guid: u64::from_be(attr.node_guid),
        sys_image_guid: u64::from_be(attr.sys_image_guid),
        max_mr_size: attr.max_mr_size,
        page_size_cap: attr.page_size_cap,
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        hw_ver: attr.hw_ver,
        max_qp: from_int(attr.max_qp),
        max_qp_wr: from_int(attr.max_qp_wr),
        device_cap_flags: attr.device_cap_flags.into(),
        max_sge: from_int(attr.max_sge),
        max_sge_rd: from_int(attr.max_sge_rd),
        max_cq: from_int(attr.max_cq),
        max_cqe: from_int(attr.max_cqe),
        max_mr: from_int(attr.max_mr),
        max_pd: from_int(attr.max_pd),
        max_qp_rd_atom: from_int(attr.max_qp_rd_atom),
        max_ee_rd_atom: from_int(attr.max_ee_rd_atom),
        max_res_rd_atom: from_int(attr.max_res_rd_atom),
        max_qp_init_rd_atom: from_int(attr.max_qp_init_rd_atom),
        atomic_cap: AtomicCap::from_code(from_int(attr.atomic_cap)).unwrap_or_default(),
        max_mw: from_int(attr.max_mw),
        max_mcast_grp: from_int(attr.max_mcast_grp),
        max_mcast_qp_attach: from_int(attr.max_mcast_qp_attach),
        max_total_mcast_qp_attach: from_int(attr.max_total_mcast_qp_attach),
        max_ah: from_int(attr.max_ah),
        max_srq: from_int(attr.max_srq),
        max_srq_wr: from_int(attr.max_srq_wr),
        max_srq_sge: from_int(attr.max_srq_sge),
        max_pkeys: attr.max_pkeys,
        local_ca_ack_delay: attr.local_ca_ack_delay,
        phys_port_cnt: attr.phys_port_cnt,
        max_inline_data: 0,
        max_dm_bytes: 0,
        num_comp_vectors: 0,
    }
}

/// For C.
pub fn port_attr_to_c(attr: &PortAttr) -> ibv_port_attr {
    ibv_port_attr {
        state: attr.state as c_int,
        max_mtu: attr.max_mtu as c_int,
        active_mtu: attr.active_mtu as c_int,
        gid_tbl_len: to_int(attr.gid_tbl_len),
        port_cap_flags: attr.port_cap_flags,
        max_msg_sz: attr.max_msg_sz,
        bad_pkey_cntr: attr.bad_pkey_cntr,
        qkey_viol_cntr: attr.qkey_viol_cntr,
        pkey_tbl_len: attr.pkey_tbl_len,
        lid: attr.lid,
        sm_lid: attr.sm_lid,
        lmc: attr.lmc,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: attr.active_width,
        active_speed: attr.active_speed,
        phys_state: attr.phys_state,
        link_layer: attr.link_layer as u8,
        flags: 0,
        port_cap_flags2: 0,
        active_speed_ex: u32::from(attr.active_speed),
    }
}

/// From C. Unknown states count as down, unknown MTUs as the smallest.
pub fn port_attr_from_c(attr: &ibv_port_attr) -> PortAttr {
    let mtu = |code: c_int| Mtu::from_code(from_int(code)).unwrap_or(Mtu::Mtu256);
    PortAttr {
        state: PortState::from_code(from_int(attr.state)).unwrap_or(PortState::Down),
        max_mtu: mtu(attr.max_mtu),
        active_mtu: mtu(attr.active_mtu),
        gid_tbl_len: from_int(attr.gid_tbl_len),
        port_cap_flags: attr.port_cap_flags,
        max_msg_sz: attr.max_msg_sz,
        bad_pkey_cntr: attr.bad_pkey_cntr,
        qkey_viol_cntr: attr.qkey_viol_cntr,
        pkey_tbl_len: attr.pkey_tbl_len,
        lid: attr.lid,
        sm_lid: attr.sm_lid,
        lmc: attr.lmc,
        active_width: attr.active_width,
        active_speed: attr.active_speed,
        phys_state: attr.phys_state,
        link_layer: LinkLayer::from_code(u32::from(attr.link_layer)).unwrap_or(LinkLayer::Unspecified),
    }
}

/// For C.
pub fn gid_entry_to_c(entry: &GidEntry) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index: entry.index,
        port_num: u32::from(entry.port),
        gid_type: entry.gid_type as u32,
        ndev_ifindex: entry.interface_index,
    }
}

/// From C; `None` when its kind or port is unknown.
pub fn gid_entry_from_c(entry: &ibv_gid_entry) -> Option<GidEntry> {
    Some(GidEntry {
        gid: Gid(entry.gid.raw),
        index: entry.gid_index,
        port: entry.port_num.try_into().ok()?,
        gid_type: GidType::from_code(entry.gid_type)?,
        interface_index: entry.ndev_ifindex,
    })
}
