//! Objects of all kinds: who keeps whom from being destroyed, and who hears of what.

use std::thread;
use std::time::{Duration, Instant};

use softroce::{Context, Srq};
use verbs_api::{
    Access, AsyncEventGuard, BindInfo, Buffer, CompletionChannel, CompletionQueue, Context as _, CqInit,
    DeviceMemory, EventKind, EventSource, MemoryRegion, MwType, Notify, Object, ProtectionDomain, QpInit,
    QueuePair, RecvWr, SharedReceiveQueue, SrqInit,
};

use super::pair::{End, join, open};

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

const SRQ: SrqInit<'static, softroce::Softroce> = SrqInit {
    max_wr: 16,
    max_sge: 2,
    limit: 0,
    cookie: 0x5151,
    xrc: None,
};

/// An end whose queue pair takes its receives from a shared queue.
fn with_srq(context: Context) -> (End, Srq) {
    let mut end = End::new(context, None);
    let srq = end.pd.create_srq(&SRQ).unwrap();
    end.qp = end
        .pd
        .create_qp(&QpInit {
            srq: Some(&srq),
            ..QpInit::rc(&end.cq)
        })
        .unwrap();
    (end, srq)
}

fn event(context: &Context) -> AsyncEventGuard {
    let start = Instant::now();
    loop {
        if let Some(guard) = context.async_event().unwrap() {
            return guard;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no event within 10 s");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_shared_receive_queue_serves_tells_its_limit_and_waits_for_the_acknowledgement() {
    let a = End::new(open(), None);
    let (b, srq) = with_srq(open());
    join(&a, &b);
    for wr_id in 1..=3 {
        let sges = [b.sge(0, 64)];
        srq.post_recv(&[RecvWr { wr_id, sges: &sges }]).unwrap();
    }
    srq.modify(None, Some(3)).unwrap();
    a.buffer.write(0, b"shared");
    a.send(9, 0, 6);
    assert_eq!(b.success(1).qp_num, b.qp.qpn());
    assert_eq!(b.buffer.to_vec(0..6), b"shared");
    let limit = event(&b.context);
    assert_eq!(limit.event().kind, EventKind::SrqLimitReached);
    assert_eq!(limit.event().source, EventSource::Srq(0x5151));
    assert_eq!(srq.query().unwrap().limit, 0);

    let srq = srq
        .destroy()
        .map(|()| unreachable!("a queue pair uses it"))
        .unwrap_err();
    assert_eq!(srq.error.errno(), EBUSY);
    b.qp.destroy().unwrap();
    let destroying = thread::spawn(move || srq.object.destroy().unwrap());
    thread::sleep(Duration::from_millis(50));
    assert!(!destroying.is_finished(), "an event is not acknowledged");
    drop(limit);
    destroying.join().unwrap();
    assert_eq!(b.context.device().objects().srqs, 0);
}

#[test]
fn queues_on_one_channel_each_name_themselves() {
    let context = open();
    let channel = context.create_channel().unwrap();
    let ends: Vec<_> = (0..3)
        .map(|cookie| {
            let mut b = End::new(open(), None);
            let a = End::new(open(), None);
            // A context of its own for each pair, and the queue on the shared channel for none but ours.
            b.cq = b.context.create_cq(&CqInit::new(8)).unwrap();
            let pd = context.alloc_pd().unwrap();
            let cq = context
                .create_cq(&CqInit {
                    channel: Some(&channel),
                    cookie,
                    ..CqInit::new(8)
                })
                .unwrap();
            let qp = pd.create_qp(&QpInit::rc(&cq)).unwrap();
            let buffer = Buffer::new(64);
            let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE).unwrap();
            let ours = End {
                qp,
                cq,
                mr,
                buffer,
                pd,
                context: b.context,
            };
            (a, ours)
        })
        .collect();
    let gid = context.query_gid(1, 0).unwrap().gid;
    for (a, b) in &ends {
        a.connect(gid, b.qp.qpn());
        b.connect(a.gid(), a.qp.qpn());
        b.recv(5, 0, 8);
        b.cq.req_notify(Notify::Any).unwrap();
    }
    for order in [2, 0, 1] {
        let (a, b) = &ends[order];
        a.send(5, 0, 8);
        let woken = channel.wait(Some(Duration::from_secs(10))).unwrap().unwrap();
        assert_eq!(woken.cookie(), order as u64);
        drop(woken);
        b.success(5);
    }
}

#[test]
fn a_region_beneath_a_window_is_busy_and_may_yet_be_dropped_first() {
    let (a, b) = (End::new(open(), None), End::new(open(), None));
    join(&a, &b);
    let buffer = Buffer::new(4096);
    let mr =
        a.pd.reg_mr(&buffer, Access::LOCAL_WRITE | Access::MW_BIND)
            .unwrap();
    let mut mw = a.pd.alloc_mw(MwType::Type1).unwrap();
    let bind = BindInfo {
        mr: &mr,
        addr: buffer.addr(),
        length: 4096,
        access: Access::REMOTE_WRITE,
    };
    let rkey = a.qp.bind_mw(&mut mw, 3, &bind, true).unwrap();
    a.success(3);
    assert_eq!(verbs_api::MemoryWindow::rkey(&mw), rkey);
    let refused = mr.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    let before = a.context.device().objects();
    drop(refused.object);
    drop(buffer);
    assert_eq!(
        a.context.device().objects().mrs,
        before.mrs,
        "the region waits for its window"
    );
    mw.destroy().unwrap();
    assert_eq!(a.context.device().objects().mrs, before.mrs - 1);
}

#[test]
fn objects_of_another_device_are_refused_in_requests() {
    let (a, b) = (End::new(open(), None), End::new(open(), None));
    join(&a, &b);
    let mut foreign = b.pd.alloc_mw(MwType::Type1).unwrap();
    let bind = BindInfo {
        mr: &a.mr,
        addr: a.mr.addr(),
        length: 64,
        access: Access::REMOTE_READ,
    };
    let refused = a.qp.bind_mw(&mut foreign, 1, &bind, true).unwrap_err();
    assert_eq!(refused.errno(), EINVAL);
}

#[test]
fn device_memory_is_busy_beneath_a_region_and_keeps_its_bytes() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let dm = context.alloc_dm(256, 3).unwrap();
    dm.write(8, b"on the card!").unwrap();
    let mr = pd
        .reg_dm_mr(&dm, 0, 256, Access::LOCAL_WRITE | Access::ZERO_BASED)
        .unwrap();
    let dm = dm.destroy().unwrap_err();
    assert_eq!(dm.error.errno(), EBUSY);
    mr.destroy().unwrap();
    let mut bytes = [0; 12];
    dm.object.read(8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"on the card!");
    assert_eq!(dm.object.read(252, &mut bytes).unwrap_err().errno(), EINVAL);
    dm.object.destroy().unwrap();
}

#[test]
fn a_domain_is_busy_with_each_kind_of_child() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let busy = |pd: softroce::Pd, with: &str| {
        let refused = pd.destroy().expect_err(with);
        assert_eq!(refused.error.errno(), EBUSY, "{with}");
        refused.object
    };
    let mw = pd.alloc_mw(MwType::Type2).unwrap();
    let pd = busy(pd, "a window");
    mw.destroy().unwrap();
    let srq = pd.create_srq(&SRQ).unwrap();
    let pd = busy(pd, "a shared receive queue");
    srq.destroy().unwrap();
    let parent = pd.parent_domain().unwrap();
    let pd = busy(pd, "a parent domain");
    let mr = parent.reg_mr(&Buffer::new(64), Access::LOCAL_WRITE).unwrap();
    let parent = busy(parent, "a region in the parent domain");
    mr.destroy().unwrap();
    parent.destroy().unwrap();
    pd.destroy().unwrap();
    assert!(context.device().objects().is_zero());
}
