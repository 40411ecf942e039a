//! Devices in virtual time: what the world promises.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softroce::Softroce;
use softroce_sim::{Activity, Fate, Link, Stuck, Time, World};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionQueue, Context, CqInit, MemoryRegion, Mtu, ProtectionDomain,
    Provider, QpAttr, QpInit, QpState, QueuePair, RemoteAddr, SendOp, SendWr, Sge, Wc, WcStatus,
};

type Qp = <Softroce as Provider>::Qp;
type Cq = <Softroce as Provider>::Cq;
type Mr = <Softroce as Provider>::Mr;

const MILLISECOND: u64 = 1_000_000;
const LENGTH: usize = 20_000;

/// One end: a queue pair and a region.
struct End {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    buffer: Buffer,
    gid: verbs_api::Gid,
    port: u8,
}

fn end(provider: &Softroce, name: &str) -> End {
    let context = provider.open(name).expect("the device is there");
    let gid = context.query_gid(1, 0).expect("it has a GID");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(&CqInit::new(64)).expect("a completion queue");
    let qp = pd.create_qp(&QpInit::rc(&cq)).expect("a queue pair");
    let buffer = Buffer::new(LENGTH);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.reg_mr(&buffer, access).expect("a region");
    End {
        qp,
        cq,
        mr,
        buffer,
        gid: gid.gid,
        port: gid.port,
    }
}

fn connect(own: &End, peer: &End) {
    let modify = |attr: QpAttr| own.qp.modify(&attr).expect("a legal transition");
    modify(QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(own.port),
        access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
        ..QpAttr::default()
    });
    modify(QpAttr {
        state: Some(QpState::Rtr),
        av: Some(AddressVector {
            dgid: Some(peer.gid),
            port: own.port,
            hop_limit: 64,
            ..AddressVector::default()
        }),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qpn: Some(peer.qp.qpn()),
        rq_psn: Some(100),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(12),
        ..QpAttr::default()
    });
    modify(QpAttr {
        state: Some(QpState::Rts),
        timeout: Some(12),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        sq_psn: Some(100),
        max_rd_atomic: Some(4),
        ..QpAttr::default()
    });
}

/// Two connected ends in a world of this seed.
fn pair(seed: u64) -> (World, End, End) {
    let mut world = World::new(seed);
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let devices = vec![
        world.add_device("sim0", address(1)),
        world.add_device("sim1", address(2)),
    ];
    let provider = Softroce::from_devices(devices);
    let (left, right) = (end(&provider, "sim0"), end(&provider, "sim1"));
    connect(&left, &right);
    connect(&right, &left);
    (world, left, right)
}

fn write(from: &End, to: &End) {
    let sges = [Sge {
        addr: from.mr.addr(),
        length: LENGTH as u32,
        lkey: from.mr.lkey(),
    }];
    let remote = RemoteAddr {
        addr: to.mr.addr(),
        rkey: to.mr.rkey(),
    };
    from.qp
        .post_send(&[SendWr::new(1, SendOp::Write { remote, imm: None }, &sges)])
        .expect("a post");
}

fn completion(world: &mut World, cq: &Cq) -> Result<Wc, Stuck> {
    let mut wc = [Wc::default()];
    world.run_until(10_000 * MILLISECOND, || cq.poll(&mut wc).expect("a poll") == 1)?;
    Ok(wc[0])
}

/// A WRITE under bad weather; the trace's hash and the time that it took.
fn stormy(seed: u64) -> (u64, Time) {
    let (mut world, left, right) = pair(seed);
    world.set_all_links(Link {
        loss_per_mille: 100,
        duplication_per_mille: 100,
        reordering_per_mille: 100,
        corruption_per_mille: 50,
        jitter_ns: 1_000,
        ..Link::default()
    });
    left.buffer.fill(0..LENGTH, 0x5a);
    for _ in 0..5 {
        write(&left, &right);
        assert_eq!(
            completion(&mut world, &left.cq).map(|wc| wc.status),
            Ok(WcStatus::Success)
        );
    }
    assert_eq!(right.buffer.to_vec(0..LENGTH), vec![0x5a; LENGTH]);
    (world.trace_hash(), world.now())
}

#[test]
fn the_same_seed_gives_the_same_packets_at_the_same_times() {
    assert_eq!(stormy(42), stormy(42));
    assert_ne!(stormy(42), stormy(43));
}

#[test]
fn a_write_takes_a_round_trip_of_virtual_time() {
    let (mut world, left, right) = pair(1);
    write(&left, &right);
    assert_eq!(
        completion(&mut world, &left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
    let took = world.now().as_nanos();
    assert!(
        (4_000..100_000).contains(&took),
        "{took} ns over two ways of 2000 ns"
    );
}

#[test]
fn a_link_has_the_rate_that_it_was_given() {
    let (mut world, left, right) = pair(1);
    world.set_link(
        0,
        1,
        Link {
            rate_bps: Some(1_000_000_000),
            ..Link::default()
        },
    );
    write(&left, &right);
    completion(&mut world, &left.cq).expect("it arrives");
    let least = LENGTH as u64 * 8;
    let took = world.now().as_nanos();
    assert!(
        (least..2 * least).contains(&took),
        "{took} ns for {LENGTH} bytes at 1 Gbit/s"
    );
}

#[test]
fn waiting_for_what_cannot_come_is_a_dead_lock_at_once() {
    let (mut world, left, _right) = pair(1);
    let stuck = completion(&mut world, &left.cq);
    assert!(matches!(stuck, Err(Stuck::DeadLock { .. })), "{stuck:?}");
    let later = world.now() + MILLISECOND;
    assert_eq!(world.advance(later), Activity::Dead);
}

#[test]
fn waiting_too_long_is_no_dead_lock() {
    let (mut world, left, right) = pair(1);
    world.set_link(
        0,
        1,
        Link {
            up: false,
            ..Link::default()
        },
    );
    write(&left, &right);
    let stuck = world.run_until(MILLISECOND, || false);
    assert!(matches!(stuck, Err(Stuck::TimeOver { .. })), "{stuck:?}");
}

#[test]
fn a_link_that_is_down_loses_everything_until_it_is_up() {
    let (mut world, left, right) = pair(1);
    world.set_link(
        0,
        1,
        Link {
            up: false,
            ..Link::default()
        },
    );
    write(&left, &right);
    world.run_for(30 * MILLISECOND);
    assert_eq!(world.counters().delivered, 0);
    world.set_link(0, 1, Link::default());
    assert_eq!(
        completion(&mut world, &left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
}

#[test]
fn a_rule_sees_each_transmission_of_a_packet_by_its_number() {
    let (mut world, left, right) = pair(1);
    let dropped = Arc::new(AtomicU32::new(0));
    let count = dropped.clone();
    world.set_rule(Some(Box::new(move |transit| {
        let third = transit
            .headers
            .is_some_and(|headers| headers.bth.psn.value() == 102);
        if transit.from == 0 && third && transit.transmission <= 2 {
            count.fetch_add(1, Ordering::Relaxed);
            return Fate::Drop;
        }
        Fate::Deliver
    })));
    write(&left, &right);
    assert_eq!(
        completion(&mut world, &left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    let (sent, _) = world.sent_since(0);
    let third: Vec<_> = sent
        .iter()
        .filter(|s| s.from == 0 && s.bytes[11] == 102)
        .collect();
    assert_eq!(
        third.iter().map(|s| (s.transmission, s.lost)).collect::<Vec<_>>(),
        [(1, true), (2, true), (3, false)]
    );
}

#[test]
fn the_capture_holds_every_packet_with_a_valid_icrc() {
    let (mut world, left, right) = pair(1);
    write(&left, &right);
    completion(&mut world, &left.cq).expect("it arrives");
    let mut file = Vec::new();
    world.write_capture(&mut file).expect("writing to memory");
    let mut reader = roce_wire::pcap::Reader::new(file.as_slice()).expect("a capture");
    let mut packets = 0;
    while let Some(record) = reader.next_record().expect("a record") {
        let frame = roce_wire::frame::parse_ip(record.data).expect("an IP packet");
        assert_eq!(frame.verdict(), roce_wire::icrc::Verdict::Valid);
        packets += 1;
    }
    assert_eq!(packets, world.counters().sent);
    assert!(
        packets >= 21,
        "{packets} packets for a WRITE of 20 packets and its acknowledgement"
    );
}

#[test]
fn a_full_inbox_loses_what_comes_on_top() {
    let (mut world, left, right) = pair(1);
    world.set_inbox_capacity(1, Some(3_000));
    write(&left, &right);
    assert_eq!(
        completion(&mut world, &left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
    assert!(world.devices()[1].counters().fabric.receive_overflows > 0);
}
