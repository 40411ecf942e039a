//! Many threads on one device, and a program that makes no calls at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use softroce::{Options, ProgressMode, Softroce};
use verbs_api::{CompletionQueue, Context as _, CqInit, Object, ProtectionDomain, Provider, QpInit, Wc};

use super::pair::{End, connected, fresh_address, open, over_udp};

#[test]
fn spinning_pollers_do_not_hold_up_a_thread_that_creates_queue_pairs() {
    const QUEUE_PAIRS: usize = 10_000;
    let context = open();
    let cq = context.create_cq(&CqInit::new(64)).unwrap();
    let pd = context.alloc_pd().unwrap();
    let stop = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut wc = [Wc::default()];
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(cq.poll(&mut wc).unwrap(), 0);
                }
            });
        }
        let mut times: Vec<Duration> = (0..QUEUE_PAIRS)
            .map(|_| {
                let start = Instant::now();
                let qp = pd.create_qp(&QpInit::rc(&cq)).unwrap();
                let created = start.elapsed();
                let start = Instant::now();
                qp.destroy().unwrap();
                created.max(start.elapsed())
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        times.sort();
        times
    });
    let (median, p999, max) = (
        longest[QUEUE_PAIRS / 2],
        longest[QUEUE_PAIRS - QUEUE_PAIRS / 1000],
        longest[QUEUE_PAIRS - 1],
    );
    println!("create or destroy: median {median:?}, 99.9 % {p999:?}, longest {max:?}");
    // A busy machine may take the processor away from any call; a starved call would wait for ever.
    assert!(
        p999 < Duration::from_millis(50) && max < Duration::from_secs(2),
        "{p999:?} {max:?}"
    );
}

#[test]
fn two_threads_post_and_poll_at_once() {
    let (a, b) = over_udp();
    const MESSAGES: u64 = 2_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for wr_id in 0..MESSAGES {
                b.recv(wr_id, 0, 64);
                if wr_id >= 100 {
                    b.success(wr_id - 100);
                }
            }
            for wr_id in MESSAGES - 100..MESSAGES {
                b.success(wr_id);
            }
        });
        scope.spawn(|| {
            for wr_id in 0..MESSAGES {
                a.send(wr_id, 0, 64);
                a.success(wr_id);
            }
        });
    });
}

#[test]
fn a_target_that_makes_no_calls_serves_its_peer() {
    let (a, b) = over_udp();
    b.recv(1, 64, 64);
    for wr_id in 0..1_000 {
        a.buffer.store_u64(0, wr_id + 1);
        a.post(
            wr_id,
            verbs_api::SendOp::Write {
                remote: b.remote(0),
                imm: None,
            },
            0,
            8,
        );
        a.success(wr_id);
        assert_eq!(b.buffer.load_u64(0), wr_id + 1);
    }
    a.post(5_000, verbs_api::SendOp::Read { remote: b.remote(0) }, 128, 8);
    a.success(5_000);
    assert_eq!(a.buffer.load_u64(128), 1_000);
}

#[test]
fn a_program_that_stops_polling_still_serves_its_peer() {
    let (a, b) = over_udp();
    for wr_id in 0..50 {
        // As a program that is busy polling, and then leaves off without a word.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1) {
            assert_eq!(b.cq.poll(&mut [Wc::default()]).unwrap(), 0);
        }
        a.post(wr_id, verbs_api::SendOp::Read { remote: b.remote(0) }, 0, 4096);
        a.success(wr_id);
    }
}

#[test]
fn a_device_in_thread_only_mode_serves_calls_that_touch_no_socket() {
    let open = || {
        let options = Options {
            addresses: vec![fresh_address()],
            progress: ProgressMode::ThreadOnly,
            ..Options::default()
        };
        Softroce::new(options).unwrap().open("softroce0").unwrap()
    };
    let (a, b) = connected(open(), open());
    for wr_id in 0..500 {
        b.recv(wr_id, 0, 2000);
        a.send(wr_id, 0, 2000);
        b.success(wr_id);
        a.success(wr_id);
    }
}

#[test]
fn a_program_that_watches_memory_sees_what_its_peer_writes() {
    let (a, b) = over_udp();
    let start = Instant::now();
    for wr_id in 0..500 {
        a.buffer.store_u64(0, wr_id + 1);
        a.post(
            wr_id,
            verbs_api::SendOp::Write {
                remote: b.remote(0),
                imm: None,
            },
            0,
            8,
        );
        while b.buffer.load_u64(0) != wr_id + 1 {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::hint::spin_loop();
        }
        if wr_id % 64 == 63 {
            (wr_id - 63..=wr_id).for_each(|id| assert_eq!(a.success(id).wr_id, id));
        }
    }
}

#[test]
fn twenty_devices_open_and_close() {
    let ends: Vec<_> = (0..20).map(|_| End::new(open(), None)).collect();
    drop(ends);
}
