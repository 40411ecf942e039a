//! The engine: one port of one device of one process.
#![deny(unsafe_code)]

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

use verbs_api::{
    Access, Advice, AtomicCap, DeviceAttr, EventKind, GidEntry, LinkLayer, Mtu, PortAttr, PortState, QpCap,
    QpType, Result, Sge, SqSigType, device_caps,
};

use crate::budget::{Peers, ReadBudget};
use crate::cq::{self, CompletionQueues};
use crate::groups::{self, Groups};
use crate::integrity::Senders;
use crate::management::Management;
use crate::memory::{self, HostMemory, Memory};
use crate::pacer::Pacer;
use crate::pd::{self, ProtectionDomains};
use crate::qp::{ReceivePools, SendPools};
use crate::qp_table::QpTable;
use crate::shared::Shared;
use crate::srq::SharedReceiveQueues;
use crate::xrc::XrcDomains;
use crate::{
    CompletionJudge, Config, Counters, CqId, EngineEvent, Failure, MrId, MrInfo, PdId, PortConfig,
    ReceivedMad, SentMad, SrqId, Time, Waiting, XrcDomainId,
};

mod address;
mod capabilities;
mod completion_queue;
mod device_memory;
mod dispatch;
mod modify;
mod multicast;
mod objects;
mod parts;
mod post;
mod queue_pair;
mod srq;
mod transmit;
mod windows;
mod xrc;

use address::AddressHandles;

pub use address::AddressHandle;
pub use multicast::Membership;
pub use objects::ObjectCounts;
pub use srq::{SrqConfig, SrqHandle};
pub use windows::BindRequest;

/// Receive or send requests that a queue may hold.
const MAX_WR: u32 = 1 << 15;
const MAX_SGE: u32 = 32;
/// Bytes inline in a send request.
const MAX_INLINE_BYTES: u32 = 512;
/// READs and atomics outstanding, as requester and as responder.
const MAX_RD_ATOMIC: u8 = 128;
/// The longest message, bytes.
const MAX_MESSAGE_BYTES: u32 = 1 << 31;
/// ACK delay that peers should count with: 4.096 µs · 2^code.
const CA_ACK_DELAY_CODE: u8 = 15;

/// What the device can do besides (`IBV_DEVICE_*`): it counts foreign P_Keys and wrong Q_Keys, migrates paths, checks the
/// port of address handles and the current state that a caller believes in, tells when its port comes up, has a system
/// image GUID, sends RNR NAKs, and has the features that follow.
const DEVICE_CAPS: u64 =
    1 << 1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 11 | 1 << 12 | SERVICE_CAPS | MEMORY_CAPS;
/// Of these, shared receive queues and services.
const SERVICE_CAPS: u64 = device_caps::SRQ_RESIZE | device_caps::XRC;
/// Of these, those of memory. FLUSH to persistence is none: the engine cannot tell what memory is persistent.
const MEMORY_CAPS: u64 = device_caps::MEM_WINDOW
    | device_caps::MEM_WINDOW_TYPE_2B
    | device_caps::MEM_MGT_EXTENSIONS
    | device_caps::FLUSH_GLOBAL
    | device_caps::ATOMIC_WRITE;

/// The protocol core: no socket, no clock, no thread.
///
/// Its methods are of four families. *Commands* are the verbs. *Inputs* ([`Engine::handle_datagram`],
/// [`Engine::handle_timeout`]) come from the network and the clock. *Outputs* ([`Engine::poll_transmit`],
/// [`Engine::poll_timeout`], [`Engine::poll_event`]) must be drained after any command or input: that is the
/// contract. *Getters* change nothing. Time is an argument, and never runs backwards.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    port: PortConfig,
    /// The addresses of the GID table.
    addresses: Vec<IpAddr>,
    pds: ProtectionDomains,
    xrc_domains: XrcDomains,
    qps: QpTable,
    shared: Shared,
    address_handles: AddressHandles,
    groups: Groups,
    senders: Senders,
    management: Management,
    bad_pkeys: u16,
    bad_qkeys: u16,
}

/// What a queue pair is created from.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Its protection domain. What comes in at an XRC target touches the memory of other domains: those of the shared
    /// receive queues that it names.
    pub pd: PdId,
    /// Its service.
    pub qp_type: QpType,
    /// Where send requests complete; `None` for an XRC target alone.
    pub send_cq: Option<CqId>,
    /// Where receive requests complete; `None` for XRC alone, whose receives complete where the shared receive queue
    /// says.
    pub recv_cq: Option<CqId>,
    /// A shared receive queue in place of its own.
    pub srq: Option<SrqId>,
    /// XRC targets: their domain.
    pub xrc_domain: Option<XrcDomainId>,
    /// Capacities wanted.
    pub cap: QpCap,
    /// Which send requests complete visibly.
    pub sq_sig: SqSigType,
}

/// A queue pair that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpHandle {
    /// Its number.
    pub qpn: u32,
    /// Capacities granted.
    pub cap: QpCap,
}

impl Engine {
    /// An engine whose port is down and has no addresses yet (see [`Engine::set_port`]).
    pub fn new(config: Config) -> Engine {
        let start = (config.seed ^ (config.seed >> 32)) as u32;
        let shared = Shared {
            now: Time::ZERO,
            memory: Memory::new(config.seed),
            cqs: CompletionQueues::new(),
            srqs: SharedReceiveQueues::new(config.qpn_base, config.qpn_count),
            sends: SendPools::new(),
            receives: ReceivePools::new(),
            counters: Counters::default(),
            events: VecDeque::new(),
            failures: Default::default(),
            judge: Default::default(),
            timers: Default::default(),
            peers: Peers::new(config.initial_window_bytes),
            pacer: Pacer::new(),
            reads: ReadBudget::new(config.receive_buffer_bytes),
            ready: Default::default(),
            acks: Default::default(),
            acks_ripen: Time::ZERO,
            overflowed: VecDeque::with_capacity(8),
            ack_delay_ns: config.ack_delay_ns,
            is_pressed: false,
            port_mtu_bytes: Mtu::Mtu1024.bytes(),
            batch_number: 0,
        };
        Engine {
            port: PortConfig {
                state: PortState::Down,
                active_mtu: Mtu::Mtu1024,
                gids: Vec::new(),
            },
            addresses: Vec::new(),
            pds: ProtectionDomains::new(),
            xrc_domains: XrcDomains::new(),
            qps: QpTable::new(config.qpn_base, config.qpn_count, start),
            shared,
            address_handles: AddressHandles::new(address::MAX_AH),
            groups: Groups::default(),
            senders: Senders::new(),
            management: Management::default(),
            bad_pkeys: 0,
            bad_qkeys: 0,
            config,
        }
    }

    /// The interface changed. Raises PORT_ACTIVE, PORT_ERR and GID_CHANGE as needed.
    pub fn set_port(&mut self, port: PortConfig) {
        let mut raise = |kind| self.shared.events.push_back(EngineEvent::Port(kind));
        if port.state != self.port.state {
            if port.state == PortState::Active {
                raise(EventKind::PortActive);
            } else if self.port.state == PortState::Active {
                raise(EventKind::PortErr);
                self.shared.counters.link_downed += 1;
            }
        }
        if port.gids != self.port.gids {
            self.shared
                .events
                .push_back(EngineEvent::Port(EventKind::GidChange));
        }
        self.shared.port_mtu_bytes = port.active_mtu.bytes();
        self.addresses = port.gids.iter().map(|entry| entry.gid.ip()).collect();
        self.port = port;
    }

    /// Ask this one about completions from now on, or nobody.
    pub fn set_completion_judge(&mut self, judge: Option<CompletionJudge>) {
        self.shared.judge.set(judge);
    }

    /// The device's limits and abilities.
    pub fn device_attr(&self) -> DeviceAttr {
        DeviceAttr {
            fw_ver: env!("CARGO_PKG_VERSION").to_owned(),
            node_guid: self.config.node_guid,
            sys_image_guid: self.config.node_guid,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            vendor_id: 0xff_ffff,
            max_qp: self.qps.limit(),
            max_qp_wr: MAX_WR,
            device_cap_flags: DEVICE_CAPS,
            max_sge: MAX_SGE,
            max_sge_rd: MAX_SGE,
            max_cq: cq::MAX_CQ as u32,
            max_cqe: cq::MAX_CQE,
            max_mr: memory::MAX_MR as u32,
            max_mw: memory::MAX_MW as u32,
            max_dm_bytes: memory::MAX_DEVICE_BYTES as u64,
            max_pd: pd::MAX_PD as u32,
            max_qp_rd_atom: MAX_RD_ATOMIC.into(),
            max_qp_init_rd_atom: MAX_RD_ATOMIC.into(),
            max_res_rd_atom: u32::from(MAX_RD_ATOMIC) * self.qps.limit(),
            atomic_cap: AtomicCap::Glob,
            max_mcast_grp: groups::MAX_GROUPS as u32,
            max_mcast_qp_attach: groups::MAX_MEMBERS as u32,
            max_total_mcast_qp_attach: groups::MAX_ATTACHMENTS as u32,
            max_ah: address::MAX_AH as u32,
            max_srq: self.shared.srqs.limit(),
            max_srq_wr: MAX_WR,
            max_srq_sge: MAX_SGE,
            max_pkeys: 1,
            local_ca_ack_delay: CA_ACK_DELAY_CODE,
            phys_port_cnt: 1,
            max_inline_data: MAX_INLINE_BYTES,
            num_comp_vectors: 1,
            ..DeviceAttr::default()
        }
    }

    /// The port.
    pub fn port_attr(&self) -> PortAttr {
        PortAttr {
            state: self.port.state,
            max_mtu: Mtu::Mtu4096,
            active_mtu: self.port.active_mtu,
            gid_tbl_len: self
                .port
                .gids
                .iter()
                .map(|entry| entry.index + 1)
                .max()
                .unwrap_or(0),
            port_cap_flags: 0,
            max_msg_sz: MAX_MESSAGE_BYTES,
            bad_pkey_cntr: self.bad_pkeys.into(),
            qkey_viol_cntr: self.bad_qkeys.into(),
            pkey_tbl_len: 1,
            lid: 0,
            sm_lid: 0,
            lmc: 0,
            active_width: 1,
            active_speed: 32,
            phys_state: if self.port.state == PortState::Active {
                5
            } else {
                3
            },
            link_layer: LinkLayer::Ethernet,
        }
    }

    /// The port's GID table.
    pub fn gid_table(&self) -> &[GidEntry] {
        &self.port.gids
    }

    /// Bytes in flight toward a peer address and its window, as the kernel counts bytes; `None` when no queue pair
    /// leads there.
    pub fn window(&self, peer: IpAddr) -> Option<(u32, u32)> {
        self.shared.peers.window_of(peer)
    }

    /// What happened so far, in numbers.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// A new protection domain. ENOMEM at the device's limit.
    pub fn alloc_pd(&mut self) -> Result<PdId> {
        self.pds.alloc()
    }

    /// Free a protection domain. EBUSY while something stands in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<()> {
        self.pds.dealloc(pd)
    }

    /// Register `length` bytes from `addr`; peers and work requests address them from `iova`.
    ///
    /// # Errors
    /// EINVAL: no bytes, addresses that wrap around, remote write or atomics without local write, unknown rights, no
    /// such protection domain. EOPNOTSUPP: on-demand paging. ENOMEM: the device's limit.
    ///
    /// # Safety
    /// Until the region is deregistered, re-registered with another translation or the engine is dropped, the bytes
    /// can be read, and written if `access` has `LOCAL_WRITE`; the program accesses them only in ways that tolerate
    /// another party's reads and writes at any moment.
    #[allow(unsafe_code)]
    pub unsafe fn reg_mr(
        &mut self,
        pd: PdId,
        addr: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<MrInfo> {
        // SAFETY: the caller's promise is the one that `HostMemory` asks for.
        let host = unsafe { HostMemory::new(addr, length) };
        self.shared.memory.register(&mut self.pds, pd, host, iova, access)
    }

    /// Where the bytes of an entry are that a program gives advice about: of a region that is on demand.
    ///
    /// # Errors
    /// EFAULT: a key that opens nothing here or does not grant writing, bytes outside. EINVAL: not on demand.
    pub fn advised(&self, pd: PdId, advice: Advice, sge: &Sge) -> Result<Range<usize>> {
        self.shared.memory.advised(pd, advice, sge)
    }

    /// The null region: any address, reads as zeros, swallows writes; local use only.
    pub fn alloc_null_mr(&mut self, pd: PdId) -> Result<MrInfo> {
        self.shared.memory.register_null(&mut self.pds, pd)
    }

    /// Change protection domain, translation (address, length, iova) or access of a region. Another translation gives it
    /// new keys and a new id; otherwise those stay.
    ///
    /// # Errors
    /// EBUSY while memory windows are bound to it; as [`Engine::reg_mr`] otherwise. The region is then as before.
    ///
    /// # Safety
    /// As [`Engine::reg_mr`], for the new translation, or with the new access for the old one.
    #[allow(unsafe_code)]
    pub unsafe fn rereg_mr(
        &mut self,
        mr: MrId,
        pd: Option<PdId>,
        translation: Option<(*mut u8, usize, u64)>,
        access: Option<Access>,
    ) -> Result<MrInfo> {
        let translation = translation.map(|(addr, length, iova)| {
            // SAFETY: the caller's promise is the one that `HostMemory` asks for.
            (unsafe { HostMemory::new(addr, length) }, iova)
        });
        self.shared
            .memory
            .reregister(&mut self.pds, mr, pd, translation, access)
    }

    /// Forget a region. When this returns nothing touches its bytes any more. EBUSY while memory windows are bound to it.
    pub fn dereg_mr(&mut self, mr: MrId) -> Result<()> {
        self.shared.memory.deregister(&mut self.pds, mr)
    }

    /// The next event for the driver to pass on.
    pub fn poll_event(&mut self) -> Option<EngineEvent> {
        self.shared.events.pop_front()
    }

    /// From now on datagrams to queue pair 1 wait for [`poll_mad`](Engine::poll_mad), whether or not a program has made a
    /// queue pair of that number (which gets them too).
    pub fn serve_management(&mut self) {
        self.management.is_served = true;
    }

    /// Whether one has arrived.
    pub fn has_mads(&self) -> bool {
        self.management.has_received()
    }

    /// The next management datagram that arrived.
    pub fn poll_mad(&mut self) -> Option<ReceivedMad> {
        self.management.poll()
    }

    /// Send a management datagram. It is lost when too many wait already.
    pub fn send_mad(&mut self, mad: SentMad) {
        self.management.send(mad);
    }

    /// The next failure that was noted, for a person to read. Those that nobody takes are forgotten in time.
    pub fn poll_failure(&mut self) -> Option<Failure> {
        self.shared.failures.take()
    }

    /// What each queue pair waits for at `now`.
    pub fn waiting(&mut self, now: Time) -> Vec<Waiting> {
        self.shared.now = now;
        let shared = &self.shared;
        self.qps.iter_mut().map(|qp| qp.waiting(shared)).collect()
    }

    /// So many bytes of UC and UD lie unread at a peer, by the count of [`packet_cost`](crate::packet_cost): as far as the
    /// driver knows, just now.
    pub fn note_unread(&mut self, bytes: u64) {
        self.shared.pacer.note_unread(bytes);
    }

    /// The driver's receive buffer is filling up (or no longer): ask senders to slow down.
    pub fn note_receive_pressure(&mut self, is_pressed: bool) {
        self.shared.is_pressed = is_pressed;
    }
}
