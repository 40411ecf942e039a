//! How fast the engine alone is: two of them in one thread, packets handed over in memory, sealed and verified.
//!
//! `cargo run --release -p softroce-engine --example throughput`

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use softroce_engine::{
    Acks, CompletionRing, Config, Engine, PortConfig, QpConfig, RxMeta, SendOperation, SendRequest, Time,
    TxBatch,
};
use verbs_api::{
    Access, AddressVector, Gid, GidEntry, GidType, Mtu, Payload, PortState, QpAttr, QpCap, QpState, QpType,
    RecvWr, RemoteAddr, SendFlags, Sge, SqSigType,
};

const MEMORY_BYTES: usize = 8 << 20;
const DEPTH: u32 = 128;

struct Side {
    engine: Engine,
    ip: IpAddr,
    qpn: u32,
    sge: Sge,
    remote: RemoteAddr,
    ring: Arc<CompletionRing>,
    batch: TxBatch,
}

fn side(ip: &str) -> Side {
    let ip: IpAddr = ip.parse().expect("an address");
    let mut engine = Engine::new(Config {
        seed: 1,
        qpn_base: 0,
        qpn_count: 4096,
        ack_delay_ns: 20_000,
        receive_buffer_bytes: 212_992,
        initial_window_bytes: 160 << 10,
        node_guid: 1,
    });
    let gid = GidEntry {
        gid: ip.into(),
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
    let pd = engine.alloc_pd().expect("a domain");
    let (cq, ring) = engine.create_cq(1024).expect("a queue");
    let memory = Box::leak(vec![0u64; MEMORY_BYTES / 8].into_boxed_slice())
        .as_mut_ptr()
        .cast::<u8>();
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    // SAFETY: the memory is never freed and nobody else touches it.
    let mr = unsafe { engine.reg_mr(pd, memory, MEMORY_BYTES, memory as u64, access) }.expect("a region");
    let cap = QpCap {
        max_send_wr: DEPTH,
        max_recv_wr: DEPTH,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 64,
    };
    let init = QpConfig {
        pd,
        qp_type: QpType::Rc,
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        xrc_domain: None,
        cap,
        sq_sig: SqSigType::All,
    };
    let qpn = engine.create_qp(&init).expect("a queue pair").qpn;
    Side {
        engine,
        ip,
        qpn,
        sge: Sge {
            addr: memory as u64,
            length: 0,
            lkey: mr.lkey,
        },
        remote: RemoteAddr {
            addr: memory as u64,
            rkey: mr.rkey,
        },
        ring,
        batch: TxBatch::new(256 << 10, 256),
    }
}

fn connect(own: &mut Side, peer_ip: IpAddr, peer_qpn: u32) {
    let av = AddressVector {
        dgid: Some(Gid::from(peer_ip)),
        port: 1,
        ..AddressVector::default()
    };
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let init = QpAttr {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(access),
        ..QpAttr::default()
    };
    let rtr = QpAttr {
        av: Some(av),
        path_mtu: Some(Mtu::Mtu4096),
        dest_qpn: Some(peer_qpn),
        rq_psn: Some(0),
        max_dest_rd_atomic: Some(16),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    };
    let rts = QpAttr {
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        sq_psn: Some(0),
        max_rd_atomic: Some(16),
        ..QpAttr::default()
    };
    for (state, attr) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
        let attr = QpAttr {
            state: Some(state),
            ..attr
        };
        own.engine
            .modify_qp(Time::ZERO, own.qpn, &attr)
            .expect("a legal step");
    }
}

fn carry(from: &mut Side, to: &mut Side, now: Time, acks: Acks) -> usize {
    from.batch.clear();
    from.engine.poll_transmit(now, &mut from.batch, acks);
    let count = from.batch.packets().len();
    let flow = roce_wire::icrc::Flow {
        src: from.ip,
        dst: to.ip,
        source_port: 0xc000,
        dest_port: roce_wire::ROCE_V2_PORT,
    };
    let crc = roce_wire::icrc::FlowCrc::new(&flow);
    let meta = RxMeta {
        src: from.ip,
        dst: to.ip,
        source_port: 0xc000,
        segment: 0,
        traffic_class: 0,
        hop_limit: 64,
    };
    for index in 0..count {
        let bytes = from.batch.run_mut(index, 1);
        crc.seal(0, bytes);
        to.engine.handle_datagram(now, &meta, bytes);
    }
    count
}

fn measure(name: &str, op: impl Fn(&Side) -> SendOperation, length: u32, messages: u64) {
    let (mut a, mut b) = (side("10.0.0.1"), side("10.0.0.2"));
    let (ip_a, ip_b, qpn_a, qpn_b) = (a.ip, b.ip, a.qpn, b.qpn);
    connect(&mut a, ip_b, qpn_b);
    connect(&mut b, ip_a, qpn_a);
    let op = op(&b);
    let is_send = matches!(op, SendOperation::Send { .. });
    let (mut posted, mut done, mut packets) = (0u64, 0u64, 0usize);
    let mut now = Time::ZERO;
    let begin = Instant::now();
    while done < messages {
        while posted < messages && posted - done < u64::from(DEPTH) {
            if is_send {
                let sge = Sge { length, ..b.sge };
                b.engine
                    .post_recv(
                        now,
                        b.qpn,
                        &RecvWr {
                            wr_id: 0,
                            sges: &[sge],
                        },
                    )
                    .expect("room");
            }
            let sge = Sge { length, ..a.sge };
            let payload = Payload::Sges(std::slice::from_ref(&sge));
            let request = SendRequest {
                wr_id: posted,
                op,
                payload,
                flags: SendFlags::empty(),
                xrc_srqn: None,
            };
            a.engine.post_send(now, a.qpn, &request).expect("room");
            posted += 1;
        }
        now = now + 10_000;
        packets += carry(&mut a, &mut b, now, Acks::Defer);
        packets += carry(&mut b, &mut a, now, Acks::Defer);
        while a.ring.pop().is_some() {
            done += 1;
        }
        while b.ring.pop().is_some() {}
    }
    let nanos = begin.elapsed().as_nanos() as f64;
    let again = a.engine.counters().retransmitted_bytes;
    println!(
        "{name:>6} {length:>8} B: {:7.1} ns a message, {:6.1} ns a packet, {:6.1} Gbit/s, {again} bytes again",
        nanos / messages as f64,
        nanos / packets as f64,
        f64::from(length) * 8.0 * messages as f64 / nanos,
    );
}

fn main() {
    for length in [8, 64] {
        measure("send", |_| SendOperation::Send { imm: None }, length, 2_000_000);
        measure(
            "write",
            |b| SendOperation::Write {
                remote: b.remote,
                imm: None,
            },
            length,
            2_000_000,
        );
    }
    for (length, messages) in [(4096, 500_000), (65_536, 40_000), (1 << 20, 3_000)] {
        measure("send", |_| SendOperation::Send { imm: None }, length, messages);
        measure(
            "write",
            |b| SendOperation::Write {
                remote: b.remote,
                imm: None,
            },
            length,
            messages,
        );
        measure(
            "read",
            |b| SendOperation::Read { remote: b.remote },
            length,
            messages,
        );
    }
}
