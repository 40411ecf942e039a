//! An engine in the place of one of the two devices.

use std::collections::VecDeque;
use std::sync::Arc;

use roce_wire::frame::Frame;
use softroce_engine::{
    Acks, CompletionRing, Config, Engine, MrInfo, PortConfig, QpConfig, RxMeta, SendRequest, Time, TxBatch,
    TxPacket,
};
use verbs_api::{
    AddressVector, Gid, GidEntry, GidType, Mtu, Payload, PortState, QpAttr, QpCap, QpState, QpType, RecvWr,
    Sge, SqSigType, Wc,
};

use super::capture::{Case, Side};
use super::script::{MEMORY_BYTES, Script, Send, all_access};

/// A packet that the engine built: what the fabric knows of it, and its UDP payload, not yet sealed.
pub struct Built {
    pub packet: TxPacket,
    pub bytes: Vec<u8>,
}

/// One end of the conversation.
pub struct End {
    pub engine: Engine,
    pub mr: MrInfo,
    pub ring: Arc<CompletionRing>,
    /// Built and not yet compared.
    pub outbox: VecDeque<Built>,
    qpn: u32,
    /// Address of the memory as requests name it.
    va: u64,
    memory: *mut u8,
    batch: TxBatch,
}

struct Identity {
    qpn: u32,
    peer_qpn: u32,
    sq_psn: u32,
    rq_psn: u32,
    va: u64,
    seed: usize,
}

impl End {
    /// The engine as `side` of the case, ready to send.
    pub fn new(case: &Case, script: &Script, side: Side) -> End {
        let (identity, peer) = match side {
            Side::Client => (
                Identity {
                    qpn: case.client_qpn,
                    peer_qpn: case.server_qpn,
                    sq_psn: case.client_psn,
                    rq_psn: case.server_psn,
                    va: case.client_va,
                    seed: 1,
                },
                Side::Server,
            ),
            Side::Server => (
                Identity {
                    qpn: case.server_qpn,
                    peer_qpn: case.client_qpn,
                    sq_psn: case.server_psn,
                    rq_psn: case.client_psn,
                    va: case.server_va,
                    seed: 101,
                },
                Side::Client,
            ),
        };
        let mut engine = Engine::new(Config {
            seed: 1,
            qpn_base: identity.qpn,
            qpn_count: 1,
            ack_delay_ns: 0,
            receive_buffer_bytes: 212_992,
            initial_window_bytes: 64 << 10,
            node_guid: 1,
        });
        engine.set_port(PortConfig {
            state: PortState::Active,
            active_mtu: Mtu::Mtu4096,
            gids: vec![GidEntry {
                gid: Gid::from(case.ip(side)),
                index: 0,
                port: 1,
                gid_type: GidType::RoceV2,
                interface_index: 1,
            }],
        });
        let pd = engine.alloc_pd().unwrap();
        let (cq, ring) = engine.create_cq(64).unwrap();
        let memory = Box::leak(vec![0u64; MEMORY_BYTES / 8].into_boxed_slice())
            .as_mut_ptr()
            .cast();
        // SAFETY: the memory is never freed; the test touches it by `write` and `memory` only, between calls.
        let mr = unsafe { engine.reg_mr(pd, memory, MEMORY_BYTES, identity.va, all_access()) }.unwrap();
        let init = QpConfig {
            pd,
            qp_type: QpType::Rc,
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrc_domain: None,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 0,
            },
            sq_sig: SqSigType::All,
        };
        let qpn = engine.create_qp(&init).unwrap().qpn;
        assert_eq!(qpn, identity.qpn);
        let mut end = End {
            engine,
            mr,
            ring,
            outbox: VecDeque::new(),
            qpn,
            va: identity.va,
            memory,
            batch: TxBatch::new(1 << 18, 64),
        };
        end.write(&pattern(identity.seed));
        if let (Side::Server, Some(word)) = (side, script.server_word) {
            end.write(&word.to_le_bytes());
        }
        end.connect(case, script, &identity, peer);
        end
    }

    fn connect(&mut self, case: &Case, script: &Script, identity: &Identity, peer: Side) {
        let access = match peer {
            Side::Client => script.server_access,
            Side::Server => all_access(),
        };
        let attributes = [
            QpAttr {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(access),
                ..QpAttr::default()
            },
            QpAttr {
                state: Some(QpState::Rtr),
                av: Some(AddressVector {
                    dgid: Some(Gid::from(case.ip(peer))),
                    hop_limit: 64,
                    port: 1,
                    ..AddressVector::default()
                }),
                path_mtu: Mtu::from_bytes(case.mtu_bytes),
                dest_qpn: Some(identity.peer_qpn),
                rq_psn: Some(identity.rq_psn),
                max_dest_rd_atomic: Some(1),
                min_rnr_timer: Some(1),
                ..QpAttr::default()
            },
            QpAttr {
                state: Some(QpState::Rts),
                timeout: Some(14),
                retry_cnt: Some(7),
                rnr_retry: Some(script.rnr_retry),
                sq_psn: Some(identity.sq_psn),
                max_rd_atomic: Some(1),
                ..QpAttr::default()
            },
        ];
        for attr in &attributes {
            self.engine.modify_qp(Time::ZERO, self.qpn, attr).unwrap();
        }
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.va + offset as u64,
            length: len as u32,
            lkey: self.mr.lkey,
        }
    }

    pub fn post(&mut self, now: Time, wr_id: u64, send: &Send) {
        let sges = [self.sge(send.offset, send.len)];
        let request = SendRequest {
            wr_id,
            op: send.op,
            payload: Payload::Sges(&sges),
            flags: send.flags,
            xrc_srqn: None,
        };
        self.engine.post_send(now, self.qpn, &request).unwrap();
    }

    pub fn receive_into(&mut self, now: Time, offset: usize, len: usize) {
        let sges = [self.sge(offset, len)];
        let request = RecvWr {
            wr_id: 99,
            sges: &sges,
        };
        self.engine.post_recv(now, self.qpn, &request).unwrap();
    }

    /// A packet of the peer's arrives: the captured one with this UDP payload.
    pub fn take_in(&mut self, now: Time, frame: &Frame<'_>, payload: &[u8]) {
        let meta = RxMeta {
            src: frame.ip.src(),
            dst: frame.ip.dst(),
            source_port: frame.udp.source_port,
            segment: 0,
            traffic_class: frame.ip.traffic_class(),
            hop_limit: frame.ip.hop_limit(),
        };
        self.engine.handle_datagram(now, &meta, payload);
    }

    /// Everything that may go now goes to the outbox.
    pub fn transmit(&mut self, now: Time) {
        loop {
            self.batch.clear();
            let more = self.engine.poll_transmit(now, &mut self.batch, Acks::Flush);
            for packet in self.batch.packets() {
                self.outbox.push_back(Built {
                    packet: *packet,
                    bytes: self.batch.bytes(packet).to_vec(),
                });
            }
            if !more {
                return;
            }
        }
    }

    pub fn completions(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.ring.pop()).collect()
    }

    fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= MEMORY_BYTES);
        // SAFETY: within the leaked memory, which the engine touches only inside of calls of this same thread.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory, bytes.len()) }
    }

    /// A copy of the memory.
    pub fn memory(&self) -> Vec<u8> {
        let mut out = vec![0; MEMORY_BYTES];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.memory, out.as_mut_ptr(), MEMORY_BYTES) }
        out
    }
}

/// How a buffer begins: byte `i` is `7 i + seed`, modulo 256.
pub fn pattern(seed: usize) -> Vec<u8> {
    (0..MEMORY_BYTES).map(|i| (7 * i + seed) as u8).collect()
}
