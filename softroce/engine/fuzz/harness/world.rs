//! The engine under test: its memory, its queue pairs, and what must always hold for them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use roce_wire::{Operation, Packet, Transport, parse};
use softroce_engine::{
    Acks, AddressHandle, CompletionRing, Config, CqId, Engine, MrInfo, MwId, PdId, PortConfig, QpConfig,
    RxMeta, SrqConfig, SrqHandle, Time, TxBatch, XrcDomainId,
};
use verbs_api::{
    Access, Gid, GidEntry, GidType, Mtu, MwType, PortState, QpCap, QpState, QpType, SqSigType, WcOpcode,
    WcStatus,
};

use super::kind::{KINDS, ON_SMALL_CQ, Receives, attributes, peer_qpn, vector};
use super::memory::{ALL_REGIONS, Memory, REGION_BYTES, REGIONS, Region, iova_of};
use super::windows::{self, WINDOWS, Window};

pub const OWN_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const PEER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The ends of alternate paths.
pub const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
pub const ALT_OWN_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
pub const ALT_PEER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
/// Places in the completion queue that is polled seldom.
const SMALL_CQ: u32 = 6;
/// Packets after which the engine must have said everything.
const PACKETS_MAX: usize = 4096;
/// Set in the `wr_id` of receives.
pub const RECEIVE: u64 = 1 << 63;
/// Set besides in that of receives of a shared queue.
const SHARED: u64 = 1 << 62;

/// A queue pair, and what its peer and its owner have a right to.
pub struct Tracked {
    pub qpn: u32,
    pub uses_small_cq: bool,
    /// Requests posted since RESET, and completed; for the small completion queue too, as far as it tells.
    pub sends: Progress,
    pub receives: Progress,
    /// Packets that may still be answered by an acknowledgement of any kind.
    acks_allowed: u64,
    /// READ response and atomic response packets that were asked for.
    responses_allowed: u64,
    /// Congestion notifications that may be sent.
    notifications_allowed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub posted: u64,
    pub completed: u64,
}

pub struct World {
    pub engine: Engine,
    pub now: Time,
    pub acks: Acks,
    pub pd: PdId,
    pub cq: CqId,
    pub small_cq: CqId,
    ring: Arc<CompletionRing>,
    small_ring: Arc<CompletionRing>,
    pub qps: Vec<Tracked>,
    pub ah: AddressHandle,
    pub mw: MwId,
    pub srq: SrqHandle,
    pub xrc_srq: SrqHandle,
    xrc_domain: XrcDomainId,
    /// Receives that were posted to shared queues, and numbers of those that completed.
    shared_posted: u64,
    shared_completed: BTreeSet<u64>,
    pub regions: [MrInfo; REGIONS],
    pub windows: Vec<Window>,
    /// What the doomed region held when it was deregistered, or lost the right to be written.
    pub doomed: Option<Vec<u8>>,
    memory: Memory,
    batch: TxBatch,
}

pub fn all_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
        | Access::FLUSH_GLOBAL
}

impl World {
    pub fn new() -> World {
        let mut engine = Engine::new(Config {
            seed: 0x5eed,
            qpn_base: 0x40,
            qpn_count: 64,
            ack_delay_ns: 20_000,
            receive_buffer_bytes: 212_992,
            initial_window_bytes: 0,
            node_guid: 1,
        });
        let pd = engine.alloc_pd().unwrap();
        let foreign = engine.alloc_pd().unwrap();
        let (cq, ring) = engine.create_cq(1024).unwrap();
        let (small_cq, small_ring) = engine.create_cq(SMALL_CQ).unwrap();
        let memory = Memory::new();
        let regions = ALL_REGIONS.map(|region| {
            let (pd, access) = match region {
                Region::Open | Region::Doomed => (pd, all_access()),
                Region::ReadOnly => (pd, Access::REMOTE_READ | Access::MW_BIND),
                Region::Local => (pd, Access::LOCAL_WRITE),
                Region::Foreign => (foreign, all_access()),
            };
            // SAFETY: the memory lives as long as the world, and nothing else touches it while the engine runs.
            let mr =
                unsafe { engine.reg_mr(pd, memory.start_of(region), REGION_BYTES, iova_of(region), access) };
            mr.unwrap()
        });
        set_port(&mut engine, PortState::Active, &[OWN_IP, ALT_OWN_IP]);
        let xrc_domain = engine.alloc_xrc_domain().unwrap();
        let srq_config = SrqConfig {
            pd,
            max_wr: 8,
            max_sge: 2,
            limit: 2,
            xrc: None,
        };
        let xrc_config = SrqConfig {
            xrc: Some((xrc_domain, cq)),
            ..srq_config
        };
        let mut world = World {
            ah: engine.create_ah(pd, &vector(PEER_IP, 0)).unwrap(),
            mw: engine.alloc_mw(pd, MwType::Type2).unwrap().0,
            srq: engine.create_srq(&srq_config).unwrap(),
            xrc_srq: engine.create_srq(&xrc_config).unwrap(),
            xrc_domain,
            shared_posted: 0,
            shared_completed: BTreeSet::new(),
            engine,
            now: Time::from_nanos(1_000_000),
            acks: Acks::Flush,
            pd,
            cq,
            small_cq,
            ring,
            small_ring,
            qps: Vec::new(),
            regions,
            windows: Vec::new(),
            doomed: None,
            memory,
            batch: TxBatch::new(64 << 10, 64),
        };
        world.windows = (0..WINDOWS)
            .map(|index| windows::alloc(&mut world, index))
            .collect();
        for (index, kind) in KINDS.into_iter().enumerate() {
            world.create_qp(index);
            world.lead_to(index, kind.start);
        }
        world
    }

    /// The interface is as given from now on.
    pub fn set_port(&mut self, state: PortState, addresses: &[IpAddr]) {
        set_port(&mut self.engine, state, addresses);
    }

    /// Create queue pair `index`, or create it anew.
    pub fn create_qp(&mut self, index: usize) {
        let uses_small_cq = index == ON_SMALL_CQ;
        let cq = if uses_small_cq { self.small_cq } else { self.cq };
        let kind = KINDS[index];
        let has_sends = kind.qp_type != QpType::XrcTarget;
        let has_receives = matches!(kind.receives, Receives::Own | Receives::Shared);
        let init = QpConfig {
            pd: self.pd,
            qp_type: kind.qp_type,
            send_cq: has_sends.then_some(cq),
            recv_cq: has_receives.then_some(cq),
            srq: (kind.receives == Receives::Shared).then_some(self.srq.id),
            xrc_domain: (kind.receives == Receives::Xrc).then_some(self.xrc_domain),
            cap: QpCap {
                max_send_wr: if has_sends { 8 } else { 0 },
                max_recv_wr: if kind.receives == Receives::Own { 8 } else { 0 },
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 64,
            },
            sq_sig: SqSigType::All,
        };
        let tracked = Tracked {
            qpn: self.engine.create_qp(&init).unwrap().qpn,
            uses_small_cq,
            sends: Progress::default(),
            receives: Progress::default(),
            acks_allowed: 0,
            responses_allowed: 0,
            notifications_allowed: 0,
        };
        if index < self.qps.len() {
            self.qps[index] = tracked;
        } else {
            self.qps.push(tracked);
        }
        self.join_group(index);
    }

    /// Those of UD are in the group from the start.
    pub fn join_group(&mut self, index: usize) {
        let joined = self.engine.attach_mcast(self.qps[index].qpn, Gid::from(GROUP));
        assert_eq!(joined.is_ok(), KINDS[index].qp_type == QpType::Ud);
    }

    pub fn leave_group(&mut self, index: usize) {
        // It may have left before.
        let _ = self.engine.detach_mcast(self.qps[index].qpn, Gid::from(GROUP));
    }

    /// From RESET to a state, by the shortest way.
    ///
    /// It stops halfway when the port has no address just now.
    fn lead_to(&mut self, index: usize, state: QpState) {
        let way: &[QpState] = match state {
            QpState::Reset => &[],
            QpState::Init => &[QpState::Init],
            QpState::Rtr => &[QpState::Init, QpState::Rtr],
            QpState::Rts => &[QpState::Init, QpState::Rtr, QpState::Rts],
            QpState::Sqd => &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd],
            QpState::Sqe | QpState::Err => &[QpState::Init, QpState::Err],
        };
        for state in way {
            let attr = attributes(index, *state);
            if self
                .engine
                .modify_qp(self.now, self.qps[index].qpn, &attr)
                .is_err()
            {
                assert!(self.engine.gid_table().is_empty(), "{state:?} is refused");
                return;
            }
        }
    }

    /// Through RESET to RTS, wherever it was.
    pub fn revive(&mut self, index: usize) {
        let qpn = self.qps[index].qpn;
        let reset = attributes(index, QpState::Reset);
        self.engine.modify_qp(self.now, qpn, &reset).unwrap();
        self.note_reset(index);
        let up = match KINDS[index].start {
            QpState::Rtr if index > ON_SMALL_CQ => QpState::Rtr,
            _ => QpState::Rts,
        };
        self.lead_to(index, up);
    }

    /// Everything that the world was before is forgotten: the queue pair is in RESET.
    pub fn note_reset(&mut self, index: usize) {
        let qp = &mut self.qps[index];
        qp.sends.completed = qp.sends.posted;
        qp.receives.completed = qp.receives.posted;
    }

    /// A receive request is queued at `index`, wherever its receives come from.
    pub fn post_recv(&mut self, index: usize, sges: &[verbs_api::Sge]) -> verbs_api::Result<()> {
        let srq = match KINDS[index].receives {
            Receives::Own | Receives::None => {
                let request = verbs_api::RecvWr {
                    wr_id: RECEIVE | self.qps[index].receives.posted,
                    sges,
                };
                self.engine.post_recv(self.now, self.qps[index].qpn, &request)?;
                self.qps[index].receives.posted += 1;
                return Ok(());
            }
            Receives::Shared => self.srq,
            Receives::Xrc => self.xrc_srq,
        };
        let request = verbs_api::RecvWr {
            wr_id: RECEIVE | SHARED | self.shared_posted,
            sges,
        };
        self.engine.post_srq_recv(self.now, srq.id, &request)?;
        self.shared_posted += 1;
        Ok(())
    }

    /// A datagram arrives from an address for another.
    pub fn take_in(&mut self, (src, dst): (IpAddr, IpAddr), datagram: &[u8]) {
        if let Ok(packet) = parse(datagram) {
            let dest = packet.headers.bth.dest_qp.value();
            let index = self.qps.iter().position(|qp| qp.qpn == dest);
            if let Some(index) = index {
                self.note_taken_in(index, &packet);
            }
            // Receivers that are not asked for acknowledgements may still say that they fall behind.
            if let Some(index) = index.filter(|index| KINDS[*index].qp_type == QpType::Uc) {
                self.qps[index].notifications_allowed += 1;
            }
        }
        let meta = RxMeta {
            src,
            dst,
            source_port: 0xc000,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        self.engine.handle_datagram(self.now, &meta, datagram);
    }

    /// What a packet for queue pair `index` may be answered with. Unreliable services only ask to slow down.
    fn note_taken_in(&mut self, index: usize, packet: &Packet<'_>) {
        let qp = &mut self.qps[index];
        let (asks_to_slow_down, answers) = match (packet.headers.bth.opcode.transport(), KINDS[index].qp_type)
        {
            (Transport::Rc, QpType::Rc) | (Transport::Xrc, QpType::XrcTarget) => (1, 1),
            (Transport::Uc, QpType::Uc) => (1, 0),
            _ => (0, 0),
        };
        qp.notifications_allowed += asks_to_slow_down;
        qp.acks_allowed += answers;
        let reth = packet.headers.reth;
        qp.responses_allowed +=
            answers * reth.map_or(1, |reth| u64::from(reth.dma_length.div_ceil(256)).max(1));
    }

    /// Take all outputs, and check them.
    pub fn drain(&mut self) {
        let mut count = 0;
        loop {
            self.batch.clear();
            let more = self.engine.poll_transmit(self.now, &mut self.batch, self.acks);
            for packet in self.batch.packets() {
                note_sent(&mut self.qps, self.batch.bytes(packet));
            }
            count += self.batch.packets().len();
            assert!(count < PACKETS_MAX, "the engine does not come to rest");
            if !more {
                break;
            }
            assert!(!self.batch.is_empty(), "more was promised, and nothing came");
        }
        for _ in 0..PACKETS_MAX {
            if self.engine.poll_event().is_none() {
                break;
            }
        }
        assert_eq!(self.engine.poll_event(), None, "events do not end");
        if let Some(deadline) = self.engine.poll_timeout() {
            assert!(deadline > self.now, "{deadline} is due at {} still", self.now);
        }
        self.check_completions();
    }

    /// Each request of a queue pair completes once, in the order of its queue.
    fn check_completions(&mut self) {
        while let Some(wc) = self.ring.pop() {
            if wc.wr_id & SHARED != 0 {
                let number = wc.wr_id & !RECEIVE & !SHARED;
                assert!(number < self.shared_posted, "{wc:?}");
                assert!(self.shared_completed.insert(number), "twice: {wc:?}");
                continue;
            }
            let qp = self.qps.iter_mut().find(|qp| qp.qpn == wc.qp_num).unwrap();
            let progress = if wc.wr_id & RECEIVE == 0 {
                &mut qp.sends
            } else {
                &mut qp.receives
            };
            assert_eq!(wc.wr_id & !RECEIVE, progress.completed, "{wc:?}");
            progress.completed += 1;
            assert!(progress.completed <= progress.posted, "{wc:?}");
            let is_receive = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
            if wc.status == WcStatus::Success {
                assert_eq!(is_receive, wc.wr_id & RECEIVE != 0, "{wc:?}");
            }
        }
    }

    /// Take from the completion queue that is polled seldom.
    pub fn poll_small_cq(&mut self, count: usize) {
        for _ in 0..count {
            if self.small_ring.pop().is_none() {
                return;
            }
        }
    }

    /// All work ends when its queue pair fails, and nobody wrote where nobody may.
    pub fn finish(&mut self) {
        for index in 0..self.qps.len() {
            let qpn = self.qps[index].qpn;
            let attr = attributes(index, QpState::Err);
            if self.engine.modify_qp(self.now, qpn, &attr).is_ok() {
                self.drain();
                let qp = &self.qps[index];
                if !qp.uses_small_cq {
                    assert_eq!(qp.sends.completed, qp.sends.posted, "sends of {qpn:#x}");
                    assert_eq!(qp.receives.completed, qp.receives.posted, "receives of {qpn:#x}");
                }
            }
        }
        self.check_memory();
        windows::finish(self);
    }

    fn check_memory(&self) {
        self.memory.check_canaries();
        for region in [Region::ReadOnly, Region::Foreign] {
            self.memory.check_untouched(region);
        }
        if let Some(before) = &self.doomed {
            assert!(
                *before == self.region(Region::Doomed),
                "memory was written after its right had gone"
            );
        }
    }

    /// A copy of a region.
    pub fn region(&self, region: Region) -> Vec<u8> {
        self.memory.region(region)
    }
}

fn set_port(engine: &mut Engine, state: PortState, addresses: &[IpAddr]) {
    let gids = addresses.iter().zip(0..).map(|(address, index)| GidEntry {
        gid: Gid::from(*address),
        index,
        port: 1,
        gid_type: GidType::RoceV2,
        interface_index: 1,
    });
    engine.set_port(PortConfig {
        state,
        active_mtu: Mtu::Mtu1024,
        gids: gids.collect(),
    });
}

/// A packet left: it must have been asked for. Unreliable services answer nothing, but for UC's congestion notifications.
fn note_sent(qps: &mut [Tracked], bytes: &[u8]) {
    let packet = parse(bytes).expect("what the engine sends can be read");
    let bth = packet.headers.bth;
    let index = bth.dest_qp.value() - peer_qpn(0);
    let qp = &mut qps[index as usize];
    let info = bth
        .opcode
        .info()
        .expect("what the engine sends is no reserved opcode");
    let allowance = match info.operation {
        Operation::Acknowledge => &mut qp.acks_allowed,
        Operation::AtomicAcknowledge | Operation::ReadResponse => &mut qp.responses_allowed,
        Operation::CongestionNotification => &mut qp.notifications_allowed,
        _ => return,
    };
    *allowance = allowance
        .checked_sub(1)
        .unwrap_or_else(|| panic!("nothing asked for {packet}"));
}
