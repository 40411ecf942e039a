//! Completion channels and asynchronous events.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use verbs_api::{
    CompletionChannel, CompletionQueue, Context as _, CqInit, EventKind, EventSource, Notify, Object, QpAttr,
    QpState, QueuePair, Wc,
};

use super::pair::{End, join, open, over_udp};

const SECONDS: Option<Duration> = Some(Duration::from_secs(10));

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live entry, no waiting.
    unsafe { libc::poll(&raw mut entry, 1, 0) == 1 }
}

fn ends_with_channel() -> (End, End, softroce::Channel) {
    let context = open();
    let channel = context.create_channel().unwrap();
    let (a, b) = (End::new(open(), None), End::new(context, Some(&channel)));
    join(&a, &b);
    (a, b, channel)
}

#[test]
fn a_sleeping_program_is_woken_by_a_completion() {
    let (a, b, channel) = ends_with_channel();
    for round in 0..20 {
        b.recv(round, 0, 64);
        b.cq.req_notify(Notify::Any).unwrap();
        let sender = thread::spawn({
            let sge = [a.sge(0, 8)];
            let request = verbs_api::SendWr::new(round, verbs_api::SendOp::Send { imm: None }, &sge);
            a.qp.post_send(&[request]).unwrap();
            move || thread::sleep(Duration::from_millis(1))
        });
        let event = channel.wait(SECONDS).unwrap().expect("an event within 10 s");
        assert_eq!(event.cookie(), 77);
        drop(event);
        b.success(round);
        a.success(round);
        sender.join().unwrap();
    }
    assert!(channel.wait(Some(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn the_descriptor_is_readable_exactly_while_an_event_waits() {
    let (a, b, channel) = ends_with_channel();
    b.cq.req_notify(Notify::Any).unwrap();
    assert!(!readable(channel.fd()));
    b.recv(1, 0, 8);
    a.send(1, 0, 8);
    a.success(1);
    let start = Instant::now();
    while !readable(channel.fd()) {
        assert!(start.elapsed() < Duration::from_secs(10));
        thread::yield_now();
    }
    channel.wait(Some(Duration::ZERO)).unwrap().expect("the event");
    assert!(!readable(channel.fd()));
    b.success(1);
}

#[test]
fn an_unarmed_queue_raises_no_event() {
    let (a, b, channel) = ends_with_channel();
    b.recv(1, 0, 8);
    a.send(1, 0, 8);
    a.success(1);
    b.success(1);
    assert!(channel.wait(Some(Duration::from_millis(20))).unwrap().is_none());
}

#[test]
fn a_non_blocking_channel_says_try_again() {
    let context = open();
    let channel = context.create_channel().unwrap();
    // SAFETY: sets a flag on a live descriptor.
    unsafe { libc::fcntl(channel.fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(channel.wait(None).unwrap_err().errno(), libc::EAGAIN);
}

#[test]
fn destroying_a_queue_waits_for_acknowledgements_and_drops_events_not_taken() {
    let (a, b, channel) = ends_with_channel();
    b.recv(1, 0, 8);
    b.recv(2, 0, 8);
    b.cq.req_notify(Notify::Any).unwrap();
    a.send(1, 0, 8);
    let event = channel.wait(SECONDS).unwrap().expect("an event");
    b.cq.req_notify(Notify::Any).unwrap();
    a.send(2, 0, 8);
    a.success(1);
    a.success(2);
    let start = Instant::now();
    while !readable(channel.fd()) {
        assert!(start.elapsed() < Duration::from_secs(10));
        thread::yield_now();
    }
    let End { qp, cq, .. } = b;
    qp.destroy().unwrap();
    let acknowledger = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(event);
    });
    let start = Instant::now();
    cq.destroy().unwrap();
    assert!(
        start.elapsed() >= Duration::from_millis(40),
        "{:?}",
        start.elapsed()
    );
    acknowledger.join().unwrap();
    assert!(!readable(channel.fd()) && channel.wait(Some(Duration::ZERO)).unwrap().is_none());
    channel.destroy().unwrap();
}

#[test]
fn a_channel_serves_several_queues_in_turn() {
    let context = open();
    let channel = context.create_channel().unwrap();
    let cqs: Vec<_> = (0..5)
        .map(|cookie| {
            context
                .create_cq(&CqInit {
                    channel: Some(&channel),
                    cookie,
                    ..CqInit::new(8)
                })
                .unwrap()
        })
        .collect();
    assert_eq!(channel.clone().destroy().unwrap_err().error.errno(), libc::EBUSY);
    drop(cqs);
    channel.destroy().unwrap();
}

#[test]
fn the_first_packet_raises_communication_established() {
    let (a, b) = (End::new(open(), None), End::new(open(), None));
    // b stays in RTR, where the event is due.
    a.connect(b.gid(), b.qp.qpn());
    let (init, rtr) = attributes(&a);
    b.qp.modify(&init).unwrap();
    b.qp.modify(&rtr).unwrap();
    b.recv(1, 0, 8);
    a.send(1, 0, 8);
    b.success(1);
    let event = asynchronous_event(&b.context);
    assert_eq!(
        (event.kind, event.source),
        (EventKind::CommEst, EventSource::Qp(b.qp.qpn()))
    );
    assert!(!readable(b.context.async_fd()));
}

/// The next event. The thread that raised it may have shown the completion before it.
fn asynchronous_event(context: &softroce::Context) -> verbs_api::AsyncEvent {
    let start = Instant::now();
    loop {
        if let Some(event) = context.async_event().unwrap() {
            return event.event();
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no event");
        thread::yield_now();
    }
}

fn attributes(peer: &End) -> (QpAttr, QpAttr) {
    let init = QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(verbs_api::Access::empty()),
        ..QpAttr::default()
    };
    let rtr = QpAttr {
        state: Some(QpState::Rtr),
        av: Some(verbs_api::AddressVector {
            dgid: Some(peer.gid()),
            port: 1,
            ..Default::default()
        }),
        path_mtu: Some(verbs_api::Mtu::Mtu1024),
        dest_qpn: Some(peer.qp.qpn()),
        rq_psn: Some(0),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    };
    (init, rtr)
}

#[test]
fn an_overflowing_queue_raises_its_error_once() {
    let (a, b) = over_udp();
    let small = b
        .context
        .create_cq(&CqInit {
            cookie: 5,
            ..CqInit::new(1)
        })
        .unwrap();
    drop(b.qp);
    let qp = {
        use verbs_api::ProtectionDomain;
        b.pd.create_qp(&verbs_api::QpInit::rc(&small)).unwrap()
    };
    let (init, _) = attributes(&a);
    qp.modify(&init).unwrap();
    for wr_id in 0..4 {
        qp.post_recv(&[verbs_api::RecvWr { wr_id, sges: &[] }]).unwrap();
    }
    qp.modify(&QpAttr {
        state: Some(QpState::Err),
        ..QpAttr::default()
    })
    .unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = b.context.async_event().unwrap() {
        kinds.push((event.event().kind, event.event().source));
    }
    assert!(
        kinds.contains(&(EventKind::CqErr, EventSource::Cq(5))),
        "{kinds:?}"
    );
    assert_eq!(
        kinds.iter().filter(|(kind, _)| *kind == EventKind::CqErr).count(),
        1
    );
    let mut wc = [Wc::default(); 4];
    assert_eq!(small.poll(&mut wc).unwrap(), 1);
}
