//! The shared object, driven through the real C ABI by the provider that drives libibverbs.

#[path = "support/common.rs"]
mod common;
#[path = "native/connections.rs"]
mod connections;

use std::sync::Once;
use std::time::{Duration, Instant};

use verbs_api::*;
use verbs_native::{DropIn, Native};

fn open() -> (Native, verbs_native::Context) {
    static ENVIRONMENT: Once = Once::new();
    // SAFETY: one thread of this test program touches the environment, before the library first reads it.
    ENVIRONMENT
        .call_once(|| unsafe { std::env::set_var("SOFTROCE_ADDRESS", common::address(1).to_string()) });
    let native = Native::open_library(&common::drop_in(), DropIn::Accepted).expect("the drop-in loads");
    let context = native.open("softroce0").expect("the device opens");
    (native, context)
}

fn connect(qp: &verbs_native::Qp, peer: &verbs_native::Qp, gid: Gid) {
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    qp.modify(&QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(access),
        ..QpAttr::default()
    })
    .expect("INIT");
    qp.modify(&QpAttr {
        state: Some(QpState::Rtr),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qpn: Some(peer.qpn()),
        rq_psn: Some(7),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        av: Some(AddressVector {
            dgid: Some(gid),
            hop_limit: 1,
            port: 1,
            ..AddressVector::default()
        }),
        ..QpAttr::default()
    })
    .expect("RTR");
    qp.modify(&QpAttr {
        state: Some(QpState::Rts),
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        sq_psn: Some(7),
        max_rd_atomic: Some(1),
        ..QpAttr::default()
    })
    .expect("RTS");
}

fn next_completion(cq: &verbs_native::Cq) -> Wc {
    let until = Instant::now() + Duration::from_secs(10);
    let mut wc = [Wc::default(); 1];
    while cq.poll(&mut wc).expect("polling") == 0 {
        assert!(Instant::now() < until, "no completion within ten seconds");
    }
    wc[0]
}

#[test]
fn the_whole_of_a_conversation_goes_through_the_c_abi() {
    let (native, context) = open();
    let info = &native.devices().expect("listing")[0];
    assert_eq!(info.name, "softroce0");
    let device = context.query_device().expect("device attributes");
    assert_eq!((device.node_guid, device.phys_port_cnt), (info.guid, 1));
    let port = context.query_port(1).expect("port attributes");
    assert_eq!(
        (port.state, port.link_layer),
        (PortState::Active, LinkLayer::Ethernet)
    );
    assert_eq!(context.query_port(2).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(context.query_pkey(1, 0).expect("a P_Key"), 0xffff);
    let gid = context.query_gid(1, 0).expect("a GID").gid;
    assert_eq!(gid, Gid::from(common::address(1)));

    let pd = context.alloc_pd().expect("a domain");
    let channel = context.create_channel().expect("a channel");
    let cq = context
        .create_cq(&CqInit {
            channel: Some(&channel),
            cookie: 0xC0,
            ..CqInit::new(64)
        })
        .expect("a queue");
    let (one, two) = (
        pd.create_qp(&QpInit::rc(&cq)).expect("one"),
        pd.create_qp(&QpInit::rc(&cq)).expect("two"),
    );
    assert_eq!(one.state().expect("its state"), QpState::Reset);
    connect(&one, &two, gid);
    connect(&two, &one, gid);
    let attr = one.query().expect("attributes");
    assert_eq!(
        (attr.state, attr.dest_qpn, attr.sq_psn),
        (Some(QpState::Rts), Some(two.qpn()), Some(7))
    );

    let (source, target) = (Buffer::from_bytes(&[0xA5; 5000]), Buffer::new(5000));
    let everything = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let source_mr = pd.reg_mr(&source, everything).expect("a region");
    let target_mr = pd.reg_mr(&target, everything).expect("a region");
    let source_sge = [Sge {
        addr: source.addr(),
        length: 5000,
        lkey: source_mr.lkey(),
    }];
    let target_sge = [Sge {
        addr: target.addr(),
        length: 5000,
        lkey: target_mr.lkey(),
    }];

    // SEND with an immediate, and the event that it raises.
    cq.req_notify(Notify::Any).expect("arming");
    two.post_recv(&[RecvWr {
        wr_id: 1,
        sges: &target_sge,
    }])
    .expect("a receive");
    one.post_send(&[SendWr::new(
        2,
        SendOp::Send {
            imm: Some(0x0102_0304),
        },
        &source_sge,
    )])
    .expect("a send");
    let event = channel
        .wait(Some(Duration::from_secs(10)))
        .expect("waiting")
        .expect("an event");
    assert_eq!(event.cookie(), 0xC0);
    drop(event);
    let mut ends = [next_completion(&cq), next_completion(&cq)];
    ends.sort_by_key(|wc| wc.wr_id);
    assert_eq!(ends.map(|wc| wc.status), [WcStatus::Success; 2]);
    assert_eq!(
        (ends[0].byte_len, ends[0].immediate(), ends[0].qp_num),
        (5000, Some(0x0102_0304), two.qpn())
    );
    assert_eq!(target.to_vec(0..5000), vec![0xA5; 5000]);

    // Inline WRITE, READ, and an atomic.
    let remote = RemoteAddr {
        addr: target.addr(),
        rkey: target_mr.rkey(),
    };
    one.post_send(&[SendWr::inline(3, SendOp::Write { remote, imm: None }, b"inline")])
        .expect("a write");
    assert_eq!(next_completion(&cq).status, WcStatus::Success);
    assert_eq!(target.to_vec(0..6), b"inline");
    let eight = [Sge {
        length: 8,
        ..source_sge[0]
    }];
    one.post_send(&[SendWr::new(4, SendOp::Read { remote }, &eight)])
        .expect("a read");
    assert_eq!(next_completion(&cq).status, WcStatus::Success);
    assert_eq!(source.to_vec(0..6), b"inline");
    target.store_u64(8, 40);
    let counter = RemoteAddr {
        addr: target.addr() + 8,
        ..remote
    };
    one.post_send(&[SendWr::new(
        5,
        SendOp::FetchAdd {
            remote: counter,
            add: 2,
        },
        &eight,
    )])
    .expect("an atomic");
    assert_eq!(next_completion(&cq).status, WcStatus::Success);
    assert_eq!((source.load_u64(0), target.load_u64(8)), (40, 42));

    // What is refused, and how.
    let refused = pd.destroy().expect_err("a domain in use");
    assert_eq!(refused.error.kind(), ErrorKind::Busy);
    let too_many = vec![source_sge[0]; 64];
    let error = one
        .post_send(&[SendWr::new(6, SendOp::Send { imm: None }, &too_many)])
        .unwrap_err();
    assert_eq!((error.posted, error.error.kind()), (0, ErrorKind::Invalid));
    // SAFETY: nothing is mapped there, which is the point.
    let fault = unsafe {
        refused
            .object
            .reg_mr_raw(std::ptr::without_provenance_mut(4096), 4096, 4096, everything)
    };
    assert_eq!(fault.unwrap_err().kind(), ErrorKind::Fault);
    assert!(context.async_event().expect("looking for events").is_none());

    for qp in [one, two] {
        qp.destroy().expect("destroying a queue pair");
    }
    cq.destroy().expect("destroying a completion queue");
    channel.destroy().expect("destroying a channel");
}

#[test]
fn the_provider_for_the_system_library_refuses_the_drop_in_unless_told_otherwise() {
    let error = Native::open_library(&common::drop_in(), DropIn::Refused).unwrap_err();
    assert!(error.to_string().contains("drop-in"), "{error}");
}

#[test]
fn the_system_librdmacm_is_refused_beside_the_drop_in() {
    let native = Native::open_library(&common::drop_in(), DropIn::Accepted).expect("the drop-in loads");
    let error = match native.connection_manager_of(std::path::Path::new("librdmacm.so.1")) {
        Ok(_) => panic!("ids of one world in another"),
        Err(error) if error.kind() == ErrorKind::Unsupported => return println!("skipped: {error}"),
        Err(error) => error,
    };
    assert!(error.to_string().contains("another libibverbs"), "{error}");
}
