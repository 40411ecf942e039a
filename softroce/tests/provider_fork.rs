//! A process with open devices forks.

#[path = "provider/child.rs"]
mod child;
#[path = "provider/pair.rs"]
mod pair;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use softroce::{Options, Softroce};
use verbs_api::{
    AddressVector, CompletionQueue, Context as _, DeviceMemory, Gid, MemoryWindow, MwType, Object,
    ProtectionDomain, Provider, QpInit, QueuePair, SharedReceiveQueue, SrqInit, Wc,
};

use child::{in_child_made_by, ping};
use pair::{End, fresh_address, over_udp};

/// Run `body` in a forked child; its exit status must be 0 within ten seconds. Meanwhile `parent` runs here.
fn in_child(body: impl FnOnce(), parent: impl FnOnce()) {
    // SAFETY: the child runs `body` and ends with `_exit`; it touches no lock of this process's other threads besides
    // the allocator's and the standard output's, of which the first is safe after fork and the second is not used.
    in_child_made_by(|| unsafe { libc::fork() }, body, parent);
}

#[test]
fn inherited_objects_answer_with_an_error_and_drop_quietly() {
    let (a, b) = over_udp();
    ping(&a, &b, 10);
    in_child(
        || {
            let mut wc = [Wc::default()];
            let error = a.cq.poll(&mut wc).unwrap_err();
            assert_eq!(error.errno(), libc::ENODEV);
            assert!(error.to_string().contains("fork"));
            assert_eq!(a.qp.query().unwrap_err().errno(), libc::ENODEV);
            assert_eq!(
                a.pd.create_qp(&QpInit::rc(&a.cq)).unwrap_err().errno(),
                libc::ENODEV
            );
            assert_eq!(a.qp.post_recv(&[]).unwrap_err().error.errno(), libc::ENODEV);
            assert_eq!(a.context.async_event().unwrap_err().errno(), libc::ENODEV);
            assert_eq!(a.context.gid_table().unwrap_err().errno(), libc::ENODEV);
            assert!(!a.context.device().progress());
            // SAFETY: the originals are forgotten with the child.
            drop(unsafe { (std::ptr::read(&raw const a), std::ptr::read(&raw const b)) });
        },
        || ping(&a, &b, 100),
    );
    ping(&a, &b, 10);
}

#[test]
fn inherited_objects_of_every_kind_are_the_parents_alone() {
    let (a, b) = over_udp();
    let domain = a.context.open_xrc_domain(None).unwrap();
    let srq = SrqInit {
        max_wr: 4,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: None,
    };
    let queue = a.pd.create_srq(&srq).unwrap();
    let xrc_queue =
        a.pd.create_srq(&SrqInit {
            xrc: Some((&domain, &a.cq)),
            ..srq
        })
        .unwrap();
    let window = a.pd.alloc_mw(MwType::Type1).unwrap();
    let memory = a.context.alloc_dm(64, 0).unwrap();
    let ah =
        a.pd.create_ah(&AddressVector {
            dgid: Some(b.gid()),
            port: 1,
            ..AddressVector::default()
        })
        .unwrap();
    let before = a.context.device().objects();
    let all = (queue, xrc_queue, window, memory, ah, domain);
    let group = Gid::from("239.77.1.11".parse::<std::net::IpAddr>().unwrap());
    in_child(
        || {
            // SAFETY: the originals are forgotten with the child.
            let (queue, xrc_queue, window, memory, ah, domain) = unsafe { std::ptr::read(&raw const all) };
            let denied = |error: verbs_api::Error| assert_eq!(error.errno(), libc::ENODEV);
            denied(queue.post_recv(&[]).unwrap_err().error);
            denied(queue.modify(None, Some(1)).unwrap_err());
            denied(queue.query().unwrap_err());
            denied(memory.write(0, &[0; 4]).unwrap_err());
            denied(a.context.open_xrc_domain(None).unwrap_err());
            denied(a.pd.alloc_mw(MwType::Type2).unwrap_err());
            denied(a.qp.attach_mcast(group, 0).unwrap_err());
            denied(a.cq.resize(4).unwrap_err());
            denied(a.pd.parent_domain().unwrap_err());
            assert_eq!(window.rkey(), window.rkey());
            drop(xrc_queue);
            for destroyed in [
                window.destroy().map_err(drop),
                ah.destroy().map_err(drop),
                domain.destroy().map_err(drop),
                queue.destroy().map_err(drop),
                memory.destroy().map_err(drop),
            ] {
                assert_eq!(destroyed, Ok(()));
            }
        },
        || ping(&a, &b, 100),
    );
    assert_eq!(a.context.device().objects(), before);
}

#[test]
fn a_living_child_takes_no_packet_from_its_parent() {
    let (a, b) = over_udp();
    in_child(
        || thread::sleep(Duration::from_millis(300)),
        || {
            ping(&a, &b, 2_000);
            assert_eq!(a.context.device().counters().engine.retransmitted_bytes, 0);
            assert_eq!(b.context.device().counters().engine.retransmitted_bytes, 0);
        },
    );
}

#[test]
fn a_child_holds_no_socket_of_its_parent() {
    let sockets = || {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        entries
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count()
    };
    // Other tests of this binary run at the same time: their devices are closed in the child as well.
    let (_a, _b) = over_udp();
    assert!(sockets() >= 2);
    in_child(|| assert_eq!(sockets(), 0), || ());
}

#[test]
fn a_child_opens_devices_of_its_own_from_the_inherited_provider() {
    let provider = Softroce::new(Options {
        addresses: vec![fresh_address()],
        ..Options::default()
    })
    .unwrap();
    let parent_end = End::new(provider.open("softroce0").unwrap(), None);
    in_child(
        || {
            let end = End::new(provider.open("softroce0").unwrap(), None);
            assert_ne!(end.qp.qpn(), parent_end.qp.qpn());
            end.connect(end.gid(), end.qp.qpn());
            end.recv(1, 64, 64);
            end.send(2, 0, 64);
            end.completion();
            end.completion();
        },
        || (),
    );
}

#[test]
fn forks_beside_busy_threads_never_hang() {
    let (a, b) = over_udp();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ping(&a, &b, 10);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(a.pd.create_qp(&QpInit::rc(&a.cq)).unwrap());
            }
        });
        for round in 0..40 {
            in_child(
                || {
                    assert!(a.cq.poll(&mut [Wc::default()]).is_err());
                    if round % 4 == 0 {
                        drop(pair::open());
                    }
                },
                || (),
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(a.context.device().counters().engine.retransmitted_bytes, 0);
}

#[test]
fn a_program_whose_main_thread_ends_alone_ends_with_its_last_thread() {
    let started = Instant::now();
    in_child(
        || {
            let (a, b) = over_udp();
            ping(&a, &b, 10);
            let other = thread::spawn(|| thread::sleep(Duration::from_millis(20)));
            std::mem::forget((a, b, other));
            // SAFETY: ends this thread alone, which is the child's main one; what it uses is never freed.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        },
        || (),
    );
    assert!(started.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_program_whose_main_thread_has_ended_is_served_while_another_thread_lives() {
    let (_a, _b) = over_udp();
    in_child(
        || {
            let (a, b) = over_udp();
            ping(&a, &b, 10);
            let other = thread::spawn(|| {
                thread::sleep(Duration::from_secs(3));
                // The main thread, this one, and those of two devices.
                let threads = std::fs::read_dir("/proc/thread-self/../").unwrap().count();
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(threads != 4)) };
            });
            std::mem::forget((a, b, other));
            // SAFETY: ends this thread alone, which is the child's main one; what it uses is never freed.
            unsafe { libc::syscall(libc::SYS_exit, 5) };
        },
        || (),
    );
}
