//! XRC domains, targets and their handles.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use softroce::{Context, Qp, Softroce, XrcOpen};
use verbs_api::{
    Access, AddressVector, Context as _, CqInit, EventKind, EventSource, Mtu, Object, ProtectionDomain,
    Provider, QpAttr, QpCap, QpInit, QpState, QpType, QueuePair, RecvWr, SendOp, SendWr, SharedReceiveQueue,
    SrqInit,
};

use super::pair::{End, fresh_address, open};

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EAGAIN: i32 = 11;
const EBADF: i32 = 9;

/// Two contexts of one device.
fn twice() -> (Context, Context) {
    let options = softroce::Options {
        addresses: vec![fresh_address()],
        ..softroce::Options::default()
    };
    let provider = Softroce::new(options).unwrap();
    (
        provider.open("softroce0").unwrap(),
        provider.open("softroce0").unwrap(),
    )
}

fn target(context: &Context, domain: &softroce::XrcDomain) -> Qp {
    context
        .alloc_pd()
        .unwrap()
        .create_qp(&QpInit {
            qp_type: QpType::XrcTarget,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrc_domain: Some(domain),
            cap: QpCap::default(),
            sq_sig: Default::default(),
        })
        .unwrap()
}

#[test]
fn a_domain_is_shared_through_a_file_between_contexts_and_closes_last_of_all() {
    let (one, two) = twice();
    let (file, again, other) = (
        File::open("/proc/self/exe").unwrap(),
        File::open("/proc/self/exe").unwrap(),
        File::open("/proc/self/maps").unwrap(),
    );
    let open =
        |context: &Context, file: &File, mode| context.open_xrc_domain_as(Some(file.as_raw_fd()), mode);
    assert_eq!(open(&one, &file, XrcOpen::Existing).unwrap_err().errno(), EAGAIN);
    let first = open(&one, &file, XrcOpen::New).unwrap();
    assert_eq!(open(&two, &again, XrcOpen::New).unwrap_err().errno(), EINVAL);
    let second = open(&two, &again, XrcOpen::Existing).unwrap();
    let elsewhere = open(&two, &other, XrcOpen::Either).unwrap();
    assert_eq!(one.device().objects().xrc_domains, 2);
    elsewhere.destroy().unwrap();
    assert_eq!(
        one.open_xrc_domain_as(None, XrcOpen::Existing)
            .unwrap_err()
            .errno(),
        EINVAL
    );
    assert_eq!(
        one.open_xrc_domain_as(Some(9_999), XrcOpen::Either)
            .unwrap_err()
            .errno(),
        EBADF
    );

    let qp = target(&one, &first);
    // Not the last handle, so it closes with the target in the domain.
    first.destroy().unwrap();
    let refused = second.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    // A second handle of the target, on the other context, outlives the first.
    let opened = two.open_qp(&refused.object, qp.qpn()).unwrap();
    assert_eq!((opened.qpn(), opened.qp_type()), (qp.qpn(), QpType::XrcTarget));
    assert_eq!(
        two.open_qp(&refused.object, qp.qpn() + 1).unwrap_err().errno(),
        EINVAL
    );
    qp.destroy().unwrap();
    assert_eq!(opened.state().unwrap(), QpState::Reset);
    one.destroy().unwrap();
    let refused = refused.object.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    opened.destroy().unwrap();
    refused.object.destroy().unwrap();
    assert!(two.device().objects().is_zero());
}

#[test]
fn a_domain_that_was_dropped_lives_on_with_what_stands_in_it() {
    let context = open();
    let domain = context.open_xrc_domain(None).unwrap();
    let qp = target(&context, &domain);
    drop(domain);
    assert_eq!(context.device().objects().xrc_domains, 1);
    drop(qp);
    assert!(context.device().objects().is_zero());
}

fn reach(qp: &Qp, peer: &End, peer_qpn: u32) {
    let base = QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::REMOTE_WRITE),
        ..QpAttr::default()
    };
    qp.modify(&base).unwrap();
    let is_target = qp.qp_type() == QpType::XrcTarget;
    qp.modify(&QpAttr {
        state: Some(QpState::Rtr),
        av: Some(AddressVector {
            dgid: Some(peer.gid()),
            port: 1,
            ..AddressVector::default()
        }),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qpn: Some(peer_qpn),
        rq_psn: Some(0),
        max_dest_rd_atomic: is_target.then_some(1),
        min_rnr_timer: is_target.then_some(1),
        ..QpAttr::default()
    })
    .unwrap();
    if !is_target {
        qp.modify(&QpAttr {
            state: Some(QpState::Rts),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            sq_psn: Some(0),
            max_rd_atomic: Some(1),
            ..QpAttr::default()
        })
        .unwrap();
    }
}

#[test]
fn a_message_finds_its_queue_through_the_target_and_every_handle_hears_of_its_events() {
    let (here, there) = twice();
    let (a, b) = (End::new(open(), None), End::new(here, None));
    let domain = b.context.open_xrc_domain(None).unwrap();
    let cq = b.context.create_cq(&CqInit::new(8)).unwrap();
    let srq =
        b.pd.create_srq(&SrqInit {
            max_wr: 4,
            max_sge: 1,
            limit: 0,
            cookie: 0,
            xrc: Some((&domain, &cq)),
        })
        .unwrap();
    let qp = target(&b.context, &domain);
    let elsewhere = there.open_qp(&domain, qp.qpn()).unwrap();
    let initiator =
        a.pd.create_qp(&QpInit {
            qp_type: QpType::XrcInitiator,
            recv_cq: None,
            ..QpInit::rc(&a.cq)
        })
        .unwrap();
    reach(&qp, &a, initiator.qpn());
    reach(&initiator, &b, qp.qpn());
    let sges = [b.sge(0, 64)];
    srq.post_recv(&[RecvWr {
        wr_id: 8,
        sges: &sges,
    }])
    .unwrap();
    a.buffer.write(0, b"through the target");
    let sges = [a.sge(0, 18)];
    let mut request = SendWr::new(7, SendOp::Send { imm: None }, &sges);
    request.xrc_srqn = Some(srq.srqn());
    initiator.post_send(&[request]).unwrap();
    a.success(7);
    let received = End { cq, ..b };
    received.success(8);
    assert_eq!(received.buffer.to_vec(0..18), b"through the target");

    // COMM_EST reaches both handles of the target, each on its own context.
    for context in [&received.context, &there] {
        let start = Instant::now();
        let guard = loop {
            if let Some(guard) = context.async_event().unwrap() {
                break guard;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "no event within 10 s");
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(guard.event().kind, EventKind::CommEst);
        assert_eq!(guard.event().source, EventSource::Qp(qp.qpn()));
    }
    drop(elsewhere);
}
