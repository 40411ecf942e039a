//! After set-up the data path allocates nothing.

use std::net::IpAddr;

use softroce_engine::{
    Acks, Config, Engine, MrInfo, MwId, PortConfig, QpConfig, RxMeta, SendOperation, SendRequest, SrqConfig,
    SrqHandle, Time, TxBatch,
};
use verbs_api::{
    Access, AddressVector, Gid, GidEntry, GidType, Mtu, MwType, Payload, PortState, QpAttr, QpCap, QpState,
    QpType, RKey, RecvWr, RemoteAddr, SendFlags, Sge, SqSigType,
};

use crate::counting::allocations;

const BYTES: usize = 1 << 20;
const MESSAGE: usize = 100_000;
/// Requests of a queue pair in one round.
const REQUESTS: usize = 8;

struct Side {
    engine: Engine,
    ip: IpAddr,
    qpns: Vec<u32>,
    kind: Kind,
    /// All receives are taken from it.
    srq: Option<SrqHandle>,
    sge: Sge,
    remote: RemoteAddr,
    mr: MrInfo,
    /// A window of type 2 for each queue pair.
    windows: Vec<(MwId, RKey)>,
    ring: std::sync::Arc<softroce_engine::CompletionRing>,
    batch: TxBatch,
}

/// What the queue pairs of a side are.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rc,
    /// Of RC, on a shared receive queue.
    RcShared,
    XrcInitiator,
    XrcTarget,
}

fn side(ip: &str, qps: usize, kind: Kind) -> Side {
    let ip: IpAddr = ip.parse().unwrap();
    let mut engine = Engine::new(Config {
        seed: 1,
        qpn_base: 0,
        qpn_count: 4096,
        ack_delay_ns: 20_000,
        receive_buffer_bytes: 212_992,
        initial_window_bytes: 0,
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
    let pd = engine.alloc_pd().unwrap();
    let (cq, ring) = engine.create_cq(1024).unwrap();
    let memory = Box::leak(vec![0u64; BYTES / 8].into_boxed_slice())
        .as_mut_ptr()
        .cast::<u8>();
    let access = Access::LOCAL_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_WRITE
        | Access::REMOTE_ATOMIC
        | Access::FLUSH_GLOBAL
        | Access::MW_BIND;
    // SAFETY: the memory is never freed and nobody else touches it.
    let mr = unsafe { engine.reg_mr(pd, memory, BYTES, memory as u64, access) }.unwrap();
    let xrc_domain = (kind == Kind::XrcTarget).then(|| engine.alloc_xrc_domain().unwrap());
    let srq_config = SrqConfig {
        pd,
        max_wr: 64,
        max_sge: 1,
        limit: 0,
        xrc: xrc_domain.map(|domain| (domain, cq)),
    };
    let srq = match kind {
        Kind::Rc | Kind::XrcInitiator => None,
        Kind::RcShared | Kind::XrcTarget => Some(engine.create_srq(&srq_config).unwrap()),
    };
    let init = QpConfig {
        pd,
        qp_type: match kind {
            Kind::Rc | Kind::RcShared => QpType::Rc,
            Kind::XrcInitiator => QpType::XrcInitiator,
            Kind::XrcTarget => QpType::XrcTarget,
        },
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: srq.map(|srq| srq.id),
        xrc_domain,
        cap: QpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        },
        sq_sig: SqSigType::All,
    };
    let qpns = (0..qps).map(|_| engine.create_qp(&init).unwrap().qpn).collect();
    let windows = (0..qps)
        .map(|_| engine.alloc_mw(pd, MwType::Type2).unwrap())
        .collect();
    Side {
        mr,
        windows,
        engine,
        ip,
        qpns,
        kind,
        srq,
        sge: Sge {
            addr: memory as u64,
            length: MESSAGE as u32,
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

fn connect(own: &mut Side, peer_ip: IpAddr, peer_qpns: &[u32]) {
    let now = Time::ZERO;
    let av = AddressVector {
        dgid: Some(Gid::from(peer_ip)),
        port: 1,
        ..AddressVector::default()
    };
    let sends = own.kind != Kind::XrcTarget;
    let responds = own.kind != Kind::XrcInitiator;
    for (qpn, peer) in own.qpns.iter().zip(peer_qpns) {
        let access =
            Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::FLUSH_GLOBAL;
        let steps = [
            QpAttr {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(access),
                ..QpAttr::default()
            },
            QpAttr {
                state: Some(QpState::Rtr),
                av: Some(av),
                path_mtu: Some(Mtu::Mtu4096),
                dest_qpn: Some(*peer),
                rq_psn: Some(0),
                max_dest_rd_atomic: responds.then_some(16),
                min_rnr_timer: responds.then_some(1),
                ..QpAttr::default()
            },
            QpAttr {
                state: Some(QpState::Rts),
                timeout: Some(14),
                retry_cnt: sends.then_some(7),
                rnr_retry: sends.then_some(7),
                sq_psn: Some(0),
                max_rd_atomic: sends.then_some(16),
                ..QpAttr::default()
            },
        ];
        for attr in steps {
            own.engine.modify_qp(now, *qpn, &attr).unwrap();
        }
    }
}

fn post_all(a: &mut Side, b: &mut Side, now: Time) {
    if let Some(srq) = b.srq {
        // Its limit fires on the way.
        b.engine.modify_srq(now, srq.id, None, Some(5)).unwrap();
    }
    for ((qa, qb), (mw, rkey)) in a.qpns.iter().zip(&b.qpns).zip(&a.windows) {
        let receive = RecvWr {
            wr_id: 1,
            sges: &[b.sge],
        };
        match b.srq {
            Some(srq) => b.engine.post_srq_recv(now, srq.id, &receive).unwrap(),
            None => b.engine.post_recv(now, *qb, &receive).unwrap(),
        }
        let word = Sge { length: 8, ..a.sge };
        let operations = [
            (SendOperation::Send { imm: Some(1) }, a.sge),
            (
                SendOperation::Write {
                    remote: b.remote,
                    imm: None,
                },
                a.sge,
            ),
            (SendOperation::Read { remote: b.remote }, a.sge),
            (
                SendOperation::FetchAdd {
                    remote: b.remote,
                    add: 1,
                },
                word,
            ),
            (SendOperation::AtomicWrite { remote: b.remote }, word),
            (
                SendOperation::Flush {
                    remote: b.remote,
                    length: 8,
                    placement: 1,
                    whole_mr: false,
                },
                word,
            ),
            (
                SendOperation::BindMw {
                    mw: *mw,
                    rkey: *rkey,
                    mr: a.mr.id,
                    addr: a.sge.addr,
                    length: 64,
                    access: Access::REMOTE_WRITE,
                },
                word,
            ),
            (SendOperation::LocalInvalidate { rkey: *rkey }, word),
        ];
        assert_eq!(operations.len(), REQUESTS);
        for (op, sge) in operations {
            let flags = SendFlags::empty();
            let request = SendRequest {
                wr_id: 2,
                op,
                payload: Payload::Sges(&[sge]),
                flags,
                xrc_srqn: b.srq.map(|srq| srq.srqn),
            };
            a.engine.post_send(now, *qa, &request).unwrap();
        }
    }
}

/// Carry what `from` has to say over; every `lose`th packet is lost. How many were carried.
fn carry(from: &mut Side, to: &mut Side, now: Time, counter: &mut u64, lose: u64) -> usize {
    from.batch.clear();
    from.engine.poll_transmit(now, &mut from.batch, Acks::Flush);
    let count = from.batch.packets().len();
    for index in 0..count {
        let packet = from.batch.packets()[index];
        let path = packet.path;
        let flow = roce_wire::icrc::Flow {
            src: path.src,
            dst: path.dst,
            source_port: path.source_port,
            dest_port: roce_wire::ROCE_V2_PORT,
        };
        let bytes = from.batch.run_mut(index, 1);
        roce_wire::icrc::seal(&flow, 0, bytes);
        *counter += 1;
        if !counter.is_multiple_of(lose) {
            let meta = RxMeta {
                src: path.src,
                dst: path.dst,
                source_port: path.source_port,
                segment: 0,
                traffic_class: 0,
                hop_limit: 64,
            };
            to.engine.handle_datagram(now, &meta, bytes);
        }
    }
    count
}

/// Run until both rings have all completions. Drains events too.
fn run(a: &mut Side, b: &mut Side, now: &mut Time, counter: &mut u64, lose: u64) {
    let (mut sent, mut received) = (0, 0);
    let wanted = a.qpns.len();
    while sent < REQUESTS * wanted || received < wanted {
        let carried = carry(a, b, *now, counter, lose) + carry(b, a, *now, counter, lose);
        *now = *now + 2_000;
        // A bind or an invalidation moves nothing.
        if carried == 0 && a.ring.is_empty() && b.ring.is_empty() {
            let due = [a.engine.poll_timeout(), b.engine.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            *now = (*now).max(due.expect("something must be due when nothing moves"));
            a.engine.handle_timeout(*now);
            b.engine.handle_timeout(*now);
        }
        sent += std::iter::from_fn(|| a.ring.pop())
            .inspect(|wc| assert_eq!(wc.status as u32, 0))
            .count();
        received += std::iter::from_fn(|| b.ring.pop()).count();
        while a.engine.poll_event().is_some() || b.engine.poll_event().is_some() {}
    }
}

#[test]
fn the_data_path_allocates_nothing_not_even_after_losses() {
    check(Kind::Rc, Kind::Rc);
}

#[test]
fn nor_does_a_shared_receive_queue_whose_limit_fires() {
    check(Kind::RcShared, Kind::RcShared);
}

#[test]
fn nor_does_xrc() {
    check(Kind::XrcInitiator, Kind::XrcTarget);
}

fn check(a: Kind, b: Kind) {
    let (mut a, mut b) = (side("10.0.0.1", 20, a), side("10.0.0.2", 20, b));
    let (ip_a, ip_b) = (a.ip, b.ip);
    let (qpns_a, qpns_b) = (a.qpns.clone(), b.qpns.clone());
    connect(&mut a, ip_b, &qpns_b);
    connect(&mut b, ip_a, &qpns_a);
    let (mut now, mut counter) = (Time::ZERO, 0);
    let before = allocations();
    for lose in [u64::MAX, 97, 31] {
        post_all(&mut a, &mut b, now);
        run(&mut a, &mut b, &mut now, &mut counter, lose);
    }
    assert_eq!(allocations() - before, 0);
    assert!(a.engine.counters().retransmitted_bytes > 0);
}

/// Every queue pair of both sides fails before anybody looks at the events.
#[test]
fn nor_do_many_queue_pairs_that_fail_at_once() {
    let (mut a, mut b) = (side("10.0.0.1", 200, Kind::Rc), side("10.0.0.2", 200, Kind::Rc));
    let (ip_a, ip_b) = (a.ip, b.ip);
    let (qpns_a, qpns_b) = (a.qpns.clone(), b.qpns.clone());
    connect(&mut a, ip_b, &qpns_b);
    connect(&mut b, ip_a, &qpns_a);
    while a.engine.poll_event().is_some() || b.engine.poll_event().is_some() {}
    let now = Time::ZERO;
    let nowhere = RemoteAddr {
        addr: 0,
        rkey: RKey(!b.remote.rkey.0),
    };
    let before = allocations();
    for qpn in &a.qpns {
        let request = SendRequest {
            wr_id: 1,
            op: SendOperation::Write {
                remote: nowhere,
                imm: None,
            },
            payload: Payload::Sges(&[Sge { length: 8, ..a.sge }]),
            flags: SendFlags::empty(),
            xrc_srqn: None,
        };
        a.engine.post_send(now, *qpn, &request).unwrap();
    }
    let mut counter = 0;
    let mut turn = || {
        carry(&mut a, &mut b, now, &mut counter, u64::MAX)
            + carry(&mut b, &mut a, now, &mut counter, u64::MAX)
    };
    while turn() > 0 {}
    assert_eq!(allocations() - before, 0);
    let state = |side: &Side, qpn: &u32| side.engine.query_qp(*qpn).unwrap().state;
    assert!(a.qpns.iter().all(|qpn| state(&a, qpn) == Some(QpState::Err)));
    let events = std::iter::from_fn(|| b.engine.poll_event()).count();
    assert!(events >= b.qpns.len(), "{events} events");
}
