//! An engine with a protection domain, a completion queue and some registered memory.

use std::net::IpAddr;
use std::sync::Arc;

use softroce_engine::{
    Acks, CompletionRing, Config, CqId, Engine, EngineEvent, MrInfo, PdId, PortConfig, QpConfig, RxMeta,
    SendOperation, SendRequest, Time, TxBatch,
};
use verbs_api::{
    Access, AddressVector, EventKind, Gid, GidEntry, GidType, Mtu, Payload, PortState, QpAttr, QpCap,
    QpState, QpType, RKey, RecvWr, RemoteAddr, SendFlags, Sge, SqSigType, Wc, WcStatus,
};

/// Bytes of registered memory of a node.
pub const MEMORY_BYTES: usize = 4 << 20;

/// All rights that a region can have.
pub fn all_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
        | Access::FLUSH_GLOBAL
}

/// Attributes of a connection; a test changes what it is about.
#[derive(Clone, Copy)]
pub struct Connection {
    pub qp_type: QpType,
    pub mtu: Mtu,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub access: Access,
    pub first_psn: u32,
    pub peer_first_psn: u32,
    pub cap: QpCap,
    pub sq_sig: SqSigType,
}

impl Default for Connection {
    fn default() -> Self {
        Connection {
            qp_type: QpType::Rc,
            mtu: Mtu::Mtu1024,
            timeout: 14,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            access: all_access(),
            first_psn: 0,
            peer_first_psn: 0xab_cdef,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            sq_sig: SqSigType::OnRequest,
        }
    }
}

/// A node.
pub struct Node {
    pub engine: Engine,
    pub ip: IpAddr,
    pub pd: PdId,
    pub cq: CqId,
    pub ring: Arc<CompletionRing>,
    pub mr: MrInfo,
    words: *mut u64,
    batch: TxBatch,
}

impl Node {
    pub fn new(ip: &str, seed: u64) -> Node {
        Node::with_window(ip, seed, 212_992, 64 << 10)
    }

    /// `window_bytes` of 0 is the engine's own choice.
    pub fn with_window(ip: &str, seed: u64, receive_buffer_bytes: u32, window_bytes: u32) -> Node {
        let ip: IpAddr = ip.parse().unwrap();
        let mut engine = Engine::new(Config {
            seed,
            qpn_base: 0,
            qpn_count: 1 << 16,
            ack_delay_ns: 50_000,
            receive_buffer_bytes,
            initial_window_bytes: window_bytes,
            node_guid: seed,
        });
        let gid = GidEntry {
            gid: Gid::from(ip),
            index: 0,
            port: 1,
            gid_type: GidType::RoceV2,
            interface_index: 1,
        };
        engine.set_port(PortConfig {
            state: PortState::Active,
            active_mtu: Mtu::Mtu4096,
            gids: vec![gid],
        });
        while engine.poll_event().is_some() {}
        let pd = engine.alloc_pd().unwrap();
        let (cq, ring) = engine.create_cq(4096).unwrap();
        let words = Box::leak(vec![0u64; MEMORY_BYTES / 8].into_boxed_slice()).as_mut_ptr();
        // SAFETY: the memory is never freed, and the test touches it through `read` and `write` only, between calls.
        let mr =
            unsafe { engine.reg_mr(pd, words.cast(), MEMORY_BYTES, words as u64, all_access()) }.unwrap();
        Node {
            engine,
            ip,
            pd,
            cq,
            ring,
            mr,
            words,
            batch: TxBatch::new(1 << 20, 1024),
        }
    }

    pub fn address(&self, offset: usize) -> u64 {
        self.words as u64 + offset as u64
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= MEMORY_BYTES);
        // SAFETY: in bounds of the leaked memory; the engine runs only inside of calls of this same thread.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.words.cast::<u8>().add(offset), bytes.len())
        }
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= MEMORY_BYTES);
        let mut out = vec![0; len];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.words.cast::<u8>().add(offset), out.as_mut_ptr(), len) }
        out
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: self.address(offset),
            length: length as u32,
            lkey: self.mr.lkey,
        }
    }

    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.address(offset),
            rkey: self.mr.rkey,
        }
    }

    pub fn create_qp(&mut self, connection: &Connection) -> u32 {
        let init = QpConfig {
            pd: self.pd,
            qp_type: connection.qp_type,
            send_cq: Some(self.cq),
            recv_cq: Some(self.cq),
            srq: None,
            xrc_domain: None,
            cap: connection.cap,
            sq_sig: connection.sq_sig,
        };
        self.engine.create_qp(&init).unwrap().qpn
    }

    pub fn modify(&mut self, now: Time, qpn: u32, attr: QpAttr) {
        self.engine.modify_qp(now, qpn, &attr).unwrap();
    }

    pub fn enter_init(&mut self, now: Time, qpn: u32, c: &Connection) {
        let attr = QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(c.access),
            ..QpAttr::default()
        };
        self.modify(now, qpn, attr);
    }

    pub fn enter_rtr(&mut self, now: Time, qpn: u32, peer: IpAddr, peer_qpn: u32, c: &Connection) {
        let av = AddressVector {
            dgid: Some(Gid::from(peer)),
            port: 1,
            ..AddressVector::default()
        };
        let is_reliable = c.qp_type == QpType::Rc;
        let attr = QpAttr {
            state: Some(QpState::Rtr),
            av: Some(av),
            path_mtu: Some(c.mtu),
            dest_qpn: Some(peer_qpn),
            rq_psn: Some(c.peer_first_psn),
            max_dest_rd_atomic: is_reliable.then_some(c.max_dest_rd_atomic),
            min_rnr_timer: is_reliable.then_some(c.min_rnr_timer),
            ..QpAttr::default()
        };
        self.modify(now, qpn, attr);
    }

    pub fn enter_rts(&mut self, now: Time, qpn: u32, c: &Connection) {
        let is_reliable = c.qp_type == QpType::Rc;
        let attr = QpAttr {
            state: Some(QpState::Rts),
            timeout: is_reliable.then_some(c.timeout),
            retry_cnt: is_reliable.then_some(c.retry_cnt),
            rnr_retry: is_reliable.then_some(c.rnr_retry),
            sq_psn: Some(c.first_psn),
            max_rd_atomic: is_reliable.then_some(c.max_rd_atomic),
            ..QpAttr::default()
        };
        self.modify(now, qpn, attr);
    }

    pub fn state(&self, qpn: u32) -> QpState {
        self.engine.query_qp(qpn).unwrap().state.unwrap()
    }

    pub fn post(&mut self, now: Time, qpn: u32, wr_id: u64, op: SendOperation, sges: &[Sge]) {
        self.post_with(now, qpn, wr_id, op, sges, SendFlags::SIGNALED);
    }

    pub fn post_with(
        &mut self,
        now: Time,
        qpn: u32,
        wr_id: u64,
        op: SendOperation,
        sges: &[Sge],
        flags: SendFlags,
    ) {
        let request = SendRequest {
            wr_id,
            op,
            payload: Payload::Sges(sges),
            flags,
            xrc_srqn: None,
        };
        self.engine.post_send(now, qpn, &request).unwrap();
    }

    pub fn recv(&mut self, now: Time, qpn: u32, wr_id: u64, sges: &[Sge]) {
        self.engine.post_recv(now, qpn, &RecvWr { wr_id, sges }).unwrap();
    }

    pub fn completions(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.ring.pop()).collect()
    }

    /// Number and status of all completions waiting.
    pub fn outcomes(&self) -> Vec<(u64, WcStatus)> {
        self.completions()
            .iter()
            .map(|wc| (wc.wr_id, wc.status))
            .collect()
    }

    /// Asynchronous events of queue pairs.
    pub fn qp_events(&mut self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.engine.poll_event())
            .filter_map(|event| match event {
                EngineEvent::Qp(_, kind) => Some(kind),
                EngineEvent::CqNotify(_)
                | EngineEvent::Cq(..)
                | EngineEvent::Srq(..)
                | EngineEvent::Port(_) => None,
            })
            .collect()
    }

    /// All packets that may go now, sealed.
    pub fn transmit(&mut self, now: Time, acks: Acks) -> Vec<(RxMeta, Vec<u8>)> {
        let mut out = Vec::new();
        loop {
            self.batch.clear();
            let more = self.engine.poll_transmit(now, &mut self.batch, acks);
            for packet in self.batch.packets() {
                let mut bytes = self.batch.bytes(packet).to_vec();
                let path = packet.path;
                let flow = roce_wire::icrc::Flow {
                    src: path.src,
                    dst: path.dst,
                    source_port: path.source_port,
                    dest_port: roce_wire::ROCE_V2_PORT,
                };
                roce_wire::icrc::seal(&flow, 0, &mut bytes);
                let meta = RxMeta {
                    src: path.src,
                    dst: path.dst,
                    source_port: path.source_port,
                    segment: 0,
                    traffic_class: path.traffic_class,
                    hop_limit: path.hop_limit,
                };
                out.push((meta, bytes));
            }
            assert!(
                !more || !self.batch.is_empty(),
                "more was promised, and nothing came"
            );
            if !more {
                return out;
            }
        }
    }
}

/// A key that no region has.
pub const BAD_RKEY: RKey = RKey(0xdead_be00);

/// Bytes that tell their place.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 31) ^ (at >> 8) ^ (seed * 131)) as u8)
        .collect()
}
