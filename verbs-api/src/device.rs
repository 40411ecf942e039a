//! Devices and ports: what they are and what they can do.

use crate::codes::codes;

/// A device in the list of a provider, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name, such as `softroce0` or `mlx5_0`.
    pub name: String,
    /// Node GUID, as a number (big endian on the wire).
    pub guid: u64,
}

/// What atomics are atomic with; the numbers are those of `ibv_atomic_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AtomicCap {
    #[default]
    None = 0,
    Hca = 1,
    Glob = 2,
}

codes!(AtomicCap: None, Hca, Glob);

/// Limits and abilities of a device (`ibv_device_attr_ex`, the part that providers share). Counts unless a unit is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of ibv_query_device(3).
pub struct DeviceAttr {
    pub fw_ver: String,
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    /// `IBV_DEVICE_*`. The lower half is what `ibv_device_attr` has room for.
    pub device_cap_flags: u64,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_ee_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub atomic_cap: AtomicCap,
    pub max_mw: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
    /// Bytes that a work request may carry inline.
    pub max_inline_data: u32,
    /// Bytes of device memory.
    pub max_dm_bytes: u64,
    /// Completion vectors.
    pub num_comp_vectors: u32,
}

/// Bits of [`DeviceAttr::device_cap_flags`] that providers of ours set; the numbers are `IBV_DEVICE_*`, and of the upper
/// half those of the kernel's interface, which C programs meet as bare numbers.
pub mod device_caps {
    /// A shared receive queue can be resized.
    pub const SRQ_RESIZE: u64 = 1 << 13;
    /// XRC queue pairs.
    pub const XRC: u64 = 1 << 20;
    /// Memory windows.
    pub const MEM_WINDOW: u64 = 1 << 17;
    /// Invalidation, local and by SEND.
    pub const MEM_MGT_EXTENSIONS: u64 = 1 << 21;
    /// Windows of type 2 are of kind 2B: open through one queue pair, within a protection domain.
    pub const MEM_WINDOW_TYPE_2B: u64 = 1 << 24;
    /// FLUSH to global visibility.
    pub const FLUSH_GLOBAL: u64 = 1 << 38;
    /// FLUSH to persistence.
    pub const FLUSH_PERSISTENT: u64 = 1 << 39;
    /// ATOMIC WRITE.
    pub const ATOMIC_WRITE: u64 = 1 << 40;
}

/// A path MTU: payload bytes a packet. The numbers are those of `ibv_mtu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
#[repr(u32)]
pub enum Mtu {
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

codes!(Mtu: Mtu256, Mtu512, Mtu1024, Mtu2048, Mtu4096);

impl Mtu {
    /// Payload bytes a packet.
    pub const fn bytes(self) -> usize {
        128 << self as usize
    }

    /// From payload bytes (256, 512, 1024, 2048 or 4096).
    pub fn from_bytes(bytes: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|m| m.bytes() == bytes)
    }
}

/// State of a port; the numbers are those of `ibv_port_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PortState {
    Nop = 0,
    Down = 1,
    Init = 2,
    Armed = 3,
    Active = 4,
    ActiveDefer = 5,
}

codes!(PortState: Nop, Down, Init, Armed, Active, ActiveDefer);

/// The link layer of a port; the numbers are `IBV_LINK_LAYER_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LinkLayer {
    Unspecified = 0,
    InfiniBand = 1,
    Ethernet = 2,
}

codes!(LinkLayer: Unspecified, InfiniBand, Ethernet);

/// A port (`ibv_port_attr`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of ibv_query_port(3).
pub struct PortAttr {
    pub state: PortState,
    pub max_mtu: Mtu,
    pub active_mtu: Mtu,
    pub gid_tbl_len: u32,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: LinkLayer,
}
