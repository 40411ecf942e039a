//! Datagrams on the real provider, in this process, each socket on a card of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use softroce::Cm;
use softroce_rsocket::{DatagramSocket, Family, Patience, Ready};

#[path = "../support/hosts.rs"]
mod hosts;

use hosts::*;

type Socket = DatagramSocket<Cm>;

fn socket(host: &Host, family: Family) -> Socket {
    DatagramSocket::new(&host.open, family).unwrap()
}

/// A socket that is bound to an address of its own, and its address.
fn bound() -> (Socket, SocketAddr) {
    let address = fresh_address();
    let socket = socket(&Host::on(address), Family::V4);
    socket.bind((address, 0).into()).unwrap();
    let local = socket.local_addr();
    (socket, local)
}

fn receive(socket: &Socket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 5000];
    let (count, from) = socket.receive(&mut bytes, false, Patience::OfSocket).unwrap();
    (bytes[..count].to_vec(), from)
}

/// Sleep until it is ready for something, as `poll` does.
fn wait_for(socket: &Socket, wanted: impl Fn(Ready) -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let (ready, watch) = socket.watch().unwrap();
        if wanted(ready) {
            return;
        }
        assert!(Instant::now() < until, "{ready:?}");
        let mut entries: Vec<_> = watch.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        poll(&mut entries, 100_u16).unwrap();
    }
}

/// An echo of so many datagrams.
fn echo(socket: &Socket, count: usize) {
    for _ in 0..count {
        let (bytes, from) = receive(socket);
        socket.send(Some(from), &bytes, Patience::OfSocket).unwrap();
    }
}

#[test]
fn datagrams_go_there_and_back_with_the_addresses_of_their_senders() {
    let ((a, at_a), (b, at_b)) = (bound(), bound());
    thread::scope(|scope| {
        scope.spawn(|| echo(&b, 3));
        for length in [0, 1, 4000] {
            let data = vec![7; length];
            assert_eq!(a.send(Some(at_b), &data, Patience::OfSocket).unwrap(), length);
            assert_eq!(receive(&a), (data, at_b));
        }
    });
    assert_eq!(a.local_addr(), at_a);
}

#[test]
fn a_service_on_all_addresses_answers_from_the_one_that_was_asked() {
    let address = fresh_address();
    let server = socket(&Host::on(address), Family::V6);
    server.bind("[::]:0".parse().unwrap()).unwrap();
    let to = SocketAddr::from((address, server.local_addr().port()));
    let client = socket(&Host::on(fresh_address()), Family::V4);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (bytes, from) = receive(&server);
            assert!(from.to_string().starts_with("[::ffff:127."), "{from}");
            server.send(Some(from), &bytes, Patience::OfSocket).unwrap();
        });
        client.connect(Some(to)).unwrap();
        client.send(None, b"hello", Patience::OfSocket).unwrap();
        assert_eq!(receive(&client), (b"hello".to_vec(), to));
    });
    assert_eq!(client.peer_addr().unwrap(), to);
    assert!(!client.local_addr().ip().is_unspecified());
}

#[test]
fn both_work_over_ipv6() {
    let host = Host::on("::1".parse().unwrap());
    let (a, b) = (socket(&host, Family::V6), socket(&host, Family::V6));
    b.bind("[::1]:0".parse().unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&b, 1));
        a.send(Some(b.local_addr()), b"six", Patience::OfSocket).unwrap();
        assert_eq!(receive(&a).0, b"six");
    });
}

/// It waited for an answer that only another call of its own could have given.
#[test]
fn one_thread_talks_to_its_own_other_sockets_and_to_itself() {
    let address = fresh_address();
    let host = Host::on(address);
    let beside = socket(&host, Family::V4);
    beside.bind((address, 0).into()).unwrap();
    let at_beside = beside.local_addr();
    let (far, at_far) = bound();
    let own = socket(&host, Family::V4);
    own.bind((address, 0).into()).unwrap();
    for (peer, at_peer) in [(&beside, at_beside), (&far, at_far), (&own, own.local_addr())] {
        own.send(Some(at_peer), b"there", Patience::OfSocket).unwrap();
        assert_eq!(receive(peer), (b"there".to_vec(), own.local_addr()));
        peer.send(Some(own.local_addr()), b"back", Patience::OfSocket)
            .unwrap();
        assert_eq!(receive(&own), (b"back".to_vec(), at_peer));
    }
    // Also one that has never done anything else, and that may not wait.
    let shy = socket(&host, Family::V4);
    shy.settings().set_nonblocking(true);
    shy.connect(Some(at_far)).unwrap();
    wait_for(&shy, |ready| ready.output);
    shy.send(None, b"now", Patience::OfSocket).unwrap();
    assert_eq!(receive(&far).0, b"now");
}

#[test]
fn who_asks_a_socket_whose_program_is_busy_is_answered() {
    let ((a, _), (b, at_b)) = (bound(), bound());
    a.send(Some(at_b), b"x", Patience::OfSocket).unwrap();
    // All that b's program has done since it bound it.
    assert_eq!(receive(&b).0, b"x");
    b.close();
    assert_eq!(
        errno(bound().0.send(Some(at_b), b"x", Patience::OfSocket)),
        libc_errno::ECONNREFUSED
    );
}

#[test]
fn the_thread_of_a_socket_leaves_signals_to_the_program() {
    const SIGSEGV: u32 = 11;
    let _kept = bound();
    let masks = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let own = statuses.filter(|status| status.starts_with("Name:\tsoftroce-socket\n"));
        let blocked = own.filter_map(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"))?;
            u64::from_str_radix(mask, 16).ok()
        });
        blocked.collect::<Vec<_>>()
    };
    let until = Instant::now() + Duration::from_secs(10);
    while masks().is_empty() {
        assert!(Instant::now() < until, "no thread of this name");
    }
    for mask in masks() {
        for signal in [1, 2, 10, 12, 14, 15, 17] {
            assert_eq!(mask >> (signal - 1) & 1, 1, "{signal}");
        }
        assert_eq!(mask >> (SIGSEGV - 1) & 1, 0);
    }
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    let ((a, at_a), (b, at_b), (c, _)) = (bound(), bound(), bound());
    a.connect(Some(at_b)).unwrap();
    // Whoever sends asks first, which somebody must answer.
    thread::scope(|scope| {
        scope.spawn(|| {
            let (bytes, from) = receive(&a);
            assert_eq!((&bytes[..], from), (&b"friend"[..], at_b));
        });
        c.send(Some(at_a), b"stranger", Patience::OfSocket).unwrap();
        b.send(Some(at_a), b"friend", Patience::OfSocket).unwrap();
    });
    a.connect(None).unwrap();
    assert_eq!(errno(a.peer_addr()), libc_errno::ENOTCONN);
    assert_eq!(
        errno(a.send(None, b"x", Patience::OfSocket)),
        libc_errno::EDESTADDRREQ
    );
    c.send(Some(at_a), b"again", Patience::OfSocket).unwrap();
    assert_eq!(receive(&a).0, b"again");
}

#[test]
fn looking_leaves_a_datagram_and_what_does_not_fit_is_lost() {
    let ((a, at_a), (b, _)) = (bound(), bound());
    thread::scope(|scope| {
        scope.spawn(|| {
            b.send(Some(at_a), b"first", Patience::OfSocket).unwrap();
            b.send(Some(at_a), b"second", Patience::OfSocket).unwrap();
        });
        let mut bytes = [0; 3];
        for is_peek in [true, false] {
            assert_eq!(a.receive(&mut bytes, is_peek, Patience::OfSocket).unwrap().0, 3);
            assert_eq!(&bytes, b"fir");
        }
        assert_eq!(receive(&a).0, b"second");
    });
    let mut bytes = [0; 3];
    assert_eq!(
        errno(a.receive(&mut bytes, false, Patience::None)),
        libc_errno::EAGAIN
    );
}

#[test]
fn more_than_a_packet_holds_is_refused() {
    let ((a, at_a), (b, _)) = (bound(), bound());
    thread::scope(|scope| {
        scope.spawn(|| receive(&a));
        b.send(Some(at_a), &[0; 4088], Patience::OfSocket).unwrap();
    });
    assert_eq!(
        errno(b.send(Some(at_a), &[0; 4089], Patience::OfSocket)),
        libc_errno::EMSGSIZE
    );
}

#[test]
fn one_who_may_not_wait_is_told_and_can_poll() {
    let ((a, at_a), (b, _)) = (bound(), bound());
    b.settings().set_nonblocking(true);
    // A first datagram waits for the answer where to send to, which may be there at once.
    while let Err(refused) = b.send(Some(at_a), b"x", Patience::OfSocket) {
        assert_eq!(refused.errno(), libc_errno::EAGAIN);
        wait_for(&b, |ready| ready.output);
    }
    wait_for(&a, |ready| ready.input);
    assert_eq!(receive(&a).0, b"x");
    a.settings().set_nonblocking(true);
    assert_eq!(
        errno(a.receive(&mut [0; 4], false, Patience::OfSocket)),
        libc_errno::EAGAIN
    );
}

#[test]
fn a_port_without_a_socket_refuses() {
    let ((_a, at_a), (b, _)) = (bound(), bound());
    let nobody = SocketAddr::new(at_a.ip(), 7599);
    assert_eq!(
        errno(b.send(Some(nobody), b"x", Patience::OfSocket)),
        libc_errno::ECONNREFUSED
    );
    b.settings().set_nonblocking(true);
    match errno(b.send(Some(nobody), b"x", Patience::OfSocket)) {
        libc_errno::EAGAIN => {
            wait_for(&b, |ready| ready.error);
            assert_eq!(b.take_error(), Some(libc_errno::ECONNREFUSED));
        }
        // The answer was that quick.
        early => assert_eq!(early, libc_errno::ECONNREFUSED),
    }
    let other = socket(&Host::on(fresh_address()), Family::V4);
    assert_eq!(
        errno(other.bind("192.0.2.1:5".parse().unwrap())),
        libc_errno::EADDRNOTAVAIL
    );
}

/// `rpoll` said that there was input for ever, and `rrecv` that there was none.
#[test]
fn a_refusal_is_told_once_by_whatever_call_comes_first_and_shows_until_then() {
    let ((_a, at_a), (b, _)) = (bound(), bound());
    let nobody = SocketAddr::new(at_a.ip(), 7598);
    b.settings().set_nonblocking(true);
    let receive = |is_peek| b.receive(&mut [0; 4], is_peek, Patience::OfSocket);
    type Taker<'a> = (&'static str, &'a dyn Fn() -> i32);
    let takers: [Taker<'_>; 5] = [
        ("receive", &|| errno(receive(false))),
        ("peek", &|| errno(receive(true))),
        ("send", &|| errno(b.send(None, b"x", Patience::OfSocket))),
        ("send to", &|| {
            errno(b.send(Some(nobody), b"x", Patience::OfSocket))
        }),
        ("SO_ERROR", &|| b.take_error().unwrap()),
    ];
    for (name, take) in takers {
        b.connect(Some(nobody)).unwrap();
        // As Linux has it for UDP: no input.
        let failed = Ready {
            output: true,
            error: true,
            ..Ready::default()
        };
        wait_for(&b, |ready| ready == failed);
        assert_eq!(b.ready().unwrap(), failed, "{name}: looking takes nothing");
        assert_eq!(take(), libc_errno::ECONNREFUSED, "{name}");
        let at_rest = Ready {
            output: true,
            ..Ready::default()
        };
        assert_eq!(b.ready().unwrap(), at_rest, "{name}");
        assert_eq!(b.take_error(), None, "{name}");
        assert_eq!(errno(receive(false)), libc_errno::EAGAIN, "{name}");
    }
}

/// Its question was answered to somebody else, and it would have asked again and again.
#[test]
fn who_waits_to_send_is_refused_although_another_thread_has_taken_the_refusal() {
    let ((_a, at_a), (b, _)) = (bound(), bound());
    let nobody = SocketAddr::new(at_a.ip(), 7597);
    let sent = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while sent.load(Ordering::Relaxed) < 20 {
                let _ = b.receive(&mut [0; 4], false, Patience::None);
            }
        });
        for _ in 0..20 {
            let refused = b.send(Some(nobody), b"x", Patience::OfSocket);
            assert_eq!(errno(refused), libc_errno::ECONNREFUSED);
            sent.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[test]
fn every_call_says_that_the_card_is_gone_and_who_waits_is_told() {
    // One that has a queue pair, since it was asked, and one that has none.
    for is_asked in [true, false] {
        let address = fresh_address();
        let host = Host::that_may_fail(address);
        let b = socket(&host, Family::V4);
        b.bind((address, 0).into()).unwrap();
        let (a, at_a) = bound();
        if is_asked {
            a.send(Some(b.local_addr()), b"x", Patience::OfSocket).unwrap();
            assert_eq!(receive(&b).0, b"x");
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| errno(b.receive(&mut [0; 4], false, Patience::OfSocket)));
            thread::sleep(Duration::from_millis(20));
            host.fail();
            assert_eq!(waits.join().unwrap(), libc_errno::ENETDOWN);
        });
        for _ in 0..3 {
            let received = b.receive(&mut [0; 4], false, Patience::None);
            assert_eq!(errno(received), libc_errno::ENETDOWN);
            assert_eq!(b.take_error(), Some(libc_errno::ENETDOWN));
            // These say it to `rpoll`.
            assert_eq!(errno(b.ready()), libc_errno::ENETDOWN);
            assert_eq!(errno(b.watch().map(|(ready, _)| ready)), libc_errno::ENETDOWN);
        }
        assert!(b.send(Some(at_a), b"x", Patience::None).is_err());
        b.close();
    }
}

#[test]
fn who_waits_on_a_socket_that_is_closed_is_told() {
    let (a, _) = bound();
    thread::scope(|scope| {
        let waits = scope.spawn(|| errno(a.receive(&mut [0; 4], false, Patience::OfSocket)));
        thread::sleep(Duration::from_millis(50));
        a.close();
        assert_eq!(waits.join().unwrap(), libc_errno::EBADF);
    });
    assert_eq!(errno(a.send(None, b"x", Patience::OfSocket)), libc_errno::EBADF);
}
