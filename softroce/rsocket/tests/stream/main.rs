//! Streams on the real provider, both ends in this process, each on a card of its own.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use softroce_rsocket::{Amount, Family, Patience, Ready, Shutdown};

mod direct;
mod ends;
mod hostile;
mod messages;

use ends::*;

#[test]
fn bytes_go_both_ways_and_the_end_is_seen() {
    for address in [fresh_address(), "::1".parse().unwrap()] {
        let (a, b) = pair_on(address, |_| {});
        assert_eq!(a.send(b"there", Patience::OfSocket).unwrap(), 5);
        assert_eq!(read(&b, 5), b"there");
        assert_eq!(b.send(b"and back", Patience::OfSocket).unwrap(), 8);
        assert_eq!(read(&a, 8), b"and back");
        a.shut_down(Shutdown::Write).unwrap();
        assert_eq!(errno(a.send(b"x", Patience::OfSocket)), libc_errno::EPIPE);
        assert_eq!(
            b.receive(&mut [0; 4], Amount::Some, Patience::OfSocket).unwrap(),
            0
        );
        // The other way is still open.
        b.send(b"late", Patience::OfSocket).unwrap();
        b.close();
        assert_eq!(read(&a, 4), b"late");
        assert_eq!(
            a.receive(&mut [0; 4], Amount::Some, Patience::OfSocket).unwrap(),
            0
        );
        a.close();
        assert_eq!(errno(a.send(b"x", Patience::OfSocket)), libc_errno::EBADF);
    }
}

#[test]
fn addresses_are_known_on_both_sides() {
    let address = fresh_address();
    let (a, b) = pair_on(address, |_| {});
    assert_eq!(a.peer_addr().unwrap(), b.local_addr());
    assert_eq!(b.peer_addr().unwrap(), a.local_addr());
    assert_eq!(b.local_addr().ip(), address);
}

#[test]
fn a_long_stream_is_whole_through_rings_and_queues_of_any_size() {
    for (ring, queue) in [(256, 4), (1 << 12, 7), (1 << 17, 256)] {
        let (a, b) = pair_with(|options| {
            options.send_bytes = ring;
            options.receive_bytes = ring;
            options.send_queue = queue;
            options.receive_queue = queue;
        });
        stream_through(a, b, 40 * ring as usize + 12_345);
    }
}

#[test]
fn ends_with_different_buffers_get_along() {
    let small = |options: &mut softroce_rsocket::Options| {
        options.receive_bytes = 300;
        options.receive_queue = 4;
        options.inline_bytes = 0;
    };
    let (a, b) = pair(fresh_address(), small, |_| {});
    stream_through(a, b, 100_000);
    let (a, b) = pair(fresh_address(), |_| {}, small);
    stream_through(a, b, 100_000);
}

#[test]
fn two_directions_at_once_do_not_stop_each_other() {
    let (a, b) = pair_with(|options| {
        options.send_bytes = 1 << 12;
        options.receive_bytes = 1 << 12;
    });
    let (a, b) = (Arc::new(a), Arc::new(b));
    const BYTES: usize = 1 << 20;
    thread::scope(|scope| {
        for (from, to) in [(&a, &b), (&b, &a)] {
            scope.spawn(|| send_pattern(from, BYTES));
            scope.spawn(|| expect_pattern(to, BYTES));
        }
    });
}

#[test]
fn a_call_that_may_not_wait_says_so_and_keeps_what_did_go() {
    let (a, b) = pair_with(|options| {
        options.send_bytes = 1000;
        options.receive_bytes = 1000;
    });
    let mut bytes = [0; 16];
    assert_eq!(
        errno(b.receive(&mut bytes, Amount::Some, Patience::None)),
        libc_errno::EAGAIN
    );
    a.settings().set_nonblocking(true);
    let data = pattern(0, 5000);
    let sent = a.send(&data, Patience::OfSocket).unwrap();
    assert!((500..=1000).contains(&sent), "{sent}");
    let until = Instant::now() + Duration::from_secs(5);
    let mut sent = sent;
    // What fits comes to rest; then there is no room.
    loop {
        match a.send(&data[sent..], Patience::OfSocket) {
            Ok(more) => sent += more,
            Err(error) => {
                assert_eq!(error.errno(), libc_errno::EAGAIN);
                if sent == 1000 {
                    break;
                }
            }
        }
        assert!(Instant::now() < until, "{sent}");
    }
    assert!(!a.ready().unwrap().output);
    assert_eq!(read(&b, 1000), data[..1000]);
    wait_for(&a, |ready| ready.output);
    a.settings().set_nonblocking(false);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(read(&b, 4000), data[1000..]));
        assert_eq!(a.send(&data[1000..], Patience::OfSocket).unwrap(), 4000);
    });
}

#[test]
fn peeking_leaves_the_data_and_waiting_for_all_brings_all() {
    let (a, b) = pair_with(|_| {});
    a.send(b"abc", Patience::OfSocket).unwrap();
    let mut bytes = [0; 6];
    for _ in 0..2 {
        assert_eq!(
            b.receive(&mut bytes, Amount::Peek, Patience::OfSocket).unwrap(),
            3
        );
        assert_eq!(&bytes[..3], b"abc");
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            a.send(b"def", Patience::OfSocket).unwrap();
        });
        assert_eq!(b.receive(&mut bytes, Amount::All, Patience::OfSocket).unwrap(), 6);
    });
    assert_eq!(&bytes, b"abcdef");
    a.send(b"gh", Patience::OfSocket).unwrap();
    a.close();
    assert_eq!(b.receive(&mut bytes, Amount::All, Patience::OfSocket).unwrap(), 2);
}

#[test]
fn a_socket_that_may_not_wait_connects_in_the_background() {
    let address = fresh_address();
    let (server, client) = (Host::on(address), Host::on(fresh_address()));
    let (listener, to) = server.listener(address);
    let a = client.socket();
    a.settings().set_nonblocking(true);
    assert_eq!(errno(a.connect(to)), libc_errno::EINPROGRESS);
    assert_eq!(errno(a.send(b"x", Patience::OfSocket)), libc_errno::EAGAIN);
    assert_eq!(errno(a.connect(to)), libc_errno::EALREADY);
    wait_for(&listener, |ready| ready.input);
    let (b, peer) = listener.accept().unwrap();
    wait_for(&a, |ready| ready.output);
    assert_eq!(a.take_error(), None);
    assert_eq!(a.local_addr(), peer);
    assert_eq!(errno(a.connect(to)), libc_errno::EISCONN);
    a.send(b"x", Patience::OfSocket).unwrap();
    assert_eq!(read(&b, 1), b"x");
}

/// Between two calls of its own nobody brought the connection forward.
#[test]
fn one_thread_connects_without_waiting_to_its_own_listener() {
    let address = fresh_address();
    let here = Host::on(address);
    let (listener, to) = here.listener(address);
    for client in [&here, &Host::on(fresh_address())] {
        // The second attempt of a socket like the first.
        for attempts in 1..=2 {
            let a = client.socket();
            a.settings().set_nonblocking(true);
            for _ in 1..attempts {
                match errno(a.connect((address, 7590).into())) {
                    libc_errno::EINPROGRESS => wait_for(&a, |ready| ready.error),
                    early => assert_eq!(early, libc_errno::ECONNREFUSED),
                }
            }
            assert_eq!(errno(a.connect(to)), libc_errno::EINPROGRESS);
            let (b, _) = listener.accept().unwrap();
            // Its program does nothing with it, and yet it is there.
            b.send(b"you are there", Patience::OfSocket).unwrap();
            wait_for(&a, |ready| ready.output);
            a.settings().set_nonblocking(false);
            assert_eq!(read(&a, 13), b"you are there");
        }
    }
}

#[test]
fn a_closed_port_refuses_and_the_socket_can_try_again() {
    let address = fresh_address();
    let (server, client) = (Host::on(address), Host::on(fresh_address()));
    let a = client.socket();
    // Somebody must be there to refuse.
    let (listener, _) = server.listener(address);
    let to = (address, 7591).into();
    assert_eq!(errno(a.connect(to)), libc_errno::ECONNREFUSED);
    a.settings().set_nonblocking(true);
    match errno(a.connect(to)) {
        libc_errno::EINPROGRESS => {
            wait_for(&a, |ready| ready.error && ready.output);
            assert_eq!(a.take_error(), Some(libc_errno::ECONNREFUSED));
        }
        // The answer was that quick.
        early => assert_eq!(early, libc_errno::ECONNREFUSED),
    }
    assert_eq!(a.take_error(), None);
    assert_eq!(errno(a.peer_addr()), libc_errno::ENOTCONN);
    assert_eq!(errno(a.send(b"x", Patience::OfSocket)), libc_errno::ENOTCONN);
    a.settings().set_nonblocking(false);
    let to = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap());
        a.connect(to).unwrap();
    });
}

#[test]
fn addresses_of_nobody_of_others_and_of_the_other_family_are_refused() {
    let address = fresh_address();
    let host = Host::on(address);
    let bound = host.socket();
    assert_eq!(
        errno(bound.bind("192.0.2.1:0".parse().unwrap())),
        libc_errno::EADDRNOTAVAIL
    );
    assert_eq!(
        errno(bound.bind("[::1]:0".parse().unwrap())),
        libc_errno::EAFNOSUPPORT
    );
    bound.bind((address, 7592).into()).unwrap();
    assert_eq!(
        errno(host.socket().bind((address, 7592).into())),
        libc_errno::EADDRINUSE
    );
    assert_eq!(errno(bound.bind((address, 7593).into())), libc_errno::EINVAL);
    assert_eq!(errno(bound.accept()), libc_errno::EINVAL);
    assert_eq!(errno(bound.shut_down(Shutdown::Both)), libc_errno::ENOTCONN);
    assert_eq!(
        bound.ready().unwrap(),
        Ready {
            output: true,
            hang_up: true,
            ..Ready::default()
        }
    );
}

#[test]
fn several_threads_may_wait_on_one_socket() {
    let (a, b) = pair_with(|_| {});
    const THREADS: usize = 4;
    const BYTES: usize = 4000;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| read(&b, BYTES))).collect();
        let writers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    (0..BYTES).for_each(|_| assert_eq!(a.send(b"x", Patience::OfSocket).unwrap(), 1))
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        for reader in readers {
            assert_eq!(reader.join().unwrap(), vec![b'x'; BYTES]);
        }
    });
}

#[test]
fn who_waits_on_a_socket_that_is_closed_is_told() {
    let (a, _b) = pair_with(|_| {});
    let address = fresh_address();
    let (listener, _) = Host::on(address).listener(address);
    thread::scope(|scope| {
        let reader = scope.spawn(|| errno(a.receive(&mut [0; 4], Amount::Some, Patience::OfSocket)));
        let acceptor = scope.spawn(|| errno(listener.accept()));
        thread::sleep(Duration::from_millis(50));
        listener.close();
        assert_eq!(acceptor.join().unwrap(), libc_errno::EBADF);
        let began = Instant::now();
        a.settings()
            .set_options(|options| options.linger = Some(Duration::ZERO));
        a.close();
        assert_eq!(reader.join().unwrap(), libc_errno::EBADF);
        assert!(began.elapsed() < Duration::from_secs(1));
    });
}

/// rstream takes POLLHUP for a failure, and saw one with its last data, because the peer was gone already.
#[test]
fn a_peer_that_has_closed_in_order_is_no_hang_up_until_this_side_closes_too() {
    let (a, b) = pair_with(|_| {});
    a.send(b"last", Patience::OfSocket).unwrap();
    a.close();
    let at_rest = |ready: Ready| ready.input && !ready.hang_up && !ready.error;
    wait_for(&b, at_rest);
    assert_eq!(read(&b, 4), b"last");
    assert_eq!(
        b.receive(&mut [0; 4], Amount::Some, Patience::OfSocket).unwrap(),
        0
    );
    wait_for(&b, |ready| at_rest(ready) && ready.output);
    b.shut_down(Shutdown::Write).unwrap();
    wait_for(&b, |ready| ready.hang_up && !ready.error);
}

#[test]
fn a_connection_that_is_cut_off_is_an_error_and_not_an_end() {
    let (a, b) = pair_with(|_| {});
    a.send(b"some", Patience::OfSocket).unwrap();
    wait_for(&b, |ready| ready.input);
    a.settings()
        .set_options(|options| options.linger = Some(Duration::ZERO));
    a.close();
    // What came is still there.
    assert_eq!(read(&b, 4), b"some");
    wait_for(&b, |ready| ready.hang_up && ready.error);
    assert_eq!(
        errno(b.receive(&mut [0; 4], Amount::Some, Patience::OfSocket)),
        libc_errno::ECONNRESET
    );
    assert_eq!(errno(b.send(b"x", Patience::OfSocket)), libc_errno::ECONNRESET);
}

/// `SO_ERROR` said that there was none, while `poll` said that there was one.
#[test]
fn that_a_connection_is_cut_off_is_told_once_by_whatever_call_comes_first_and_shows_until_then() {
    type Taker = (&'static str, fn(&Socket) -> i32);
    let takers: [Taker; 4] = [
        ("receive", |b| {
            errno(b.receive(&mut [0; 4], Amount::Some, Patience::OfSocket))
        }),
        ("peek", |b| {
            errno(b.receive(&mut [0; 4], Amount::Peek, Patience::OfSocket))
        }),
        ("send", |b| errno(b.send(b"x", Patience::OfSocket))),
        ("SO_ERROR", |b| b.take_error().unwrap()),
    ];
    for (name, take) in takers {
        let (a, b) = pair_with(|_| {});
        a.settings()
            .set_options(|options| options.linger = Some(Duration::ZERO));
        a.close();
        let failed = Ready {
            input: true,
            output: true,
            hang_up: true,
            error: true,
        };
        wait_for(&b, |ready| ready == failed);
        assert_eq!(take(&b), libc_errno::ECONNRESET, "{name}");
        let told = Ready {
            error: false,
            ..failed
        };
        assert_eq!(b.ready().unwrap(), told, "{name}");
        assert_eq!(b.take_error(), None, "{name}");
        // Nobody takes it for the end of data.
        let received = b.receive(&mut [0; 4], Amount::Some, Patience::OfSocket);
        assert_eq!(errno(received), libc_errno::ECONNRESET, "{name}");
    }
}

#[test]
fn who_waits_on_a_card_that_fails_is_told() {
    let address = fresh_address();
    let (server, client) = (Host::that_may_fail(address), Host::on(fresh_address()));
    let (_a, b) = connect_hosts(&server, &client, address, |_| {}, |_| {});
    let (listener, to) = server.listener(address);
    let polled = server.listener(address).0;
    let connected = client.socket();
    connected.settings().set_nonblocking(true);
    assert_eq!(errno(connected.connect(to)), libc_errno::EINPROGRESS);
    thread::scope(|scope| {
        let reads = scope.spawn(|| errno(b.receive(&mut [0; 4], Amount::Some, Patience::OfSocket)));
        let (first, _) = listener.accept().unwrap();
        let accepts = scope.spawn(|| errno(listener.accept()));
        thread::sleep(Duration::from_millis(20));
        server.fail();
        assert_eq!(reads.join().unwrap(), libc_errno::ECONNRESET);
        assert_eq!(accepts.join().unwrap(), libc_errno::ENETDOWN);
        assert_eq!(
            errno(first.receive(&mut [0; 4], Amount::Some, Patience::OfSocket)),
            libc_errno::ECONNRESET
        );
    });
    wait_for(&polled, |ready| ready.error && ready.input);
    assert_eq!(polled.take_error(), Some(libc_errno::ENETDOWN));
    // It listens no more.
    assert_eq!(errno(listener.accept()), libc_errno::EINVAL);
    assert_eq!(errno(polled.accept()), libc_errno::EINVAL);
    assert!(!polled.ready().unwrap().error);
    // What would lead to the card again says why it does not.
    const EIO: i32 = 5;
    assert_eq!(errno(polled.listen(1)), EIO);
    assert_eq!(errno(server.socket().bind((address, 0).into())), EIO);
    assert_eq!(errno(server.socket().connect(to)), EIO);
}

#[test]
fn a_stream_is_whole_although_packets_are_lost_repeated_and_delayed() {
    let lossy = "[[packet]]\nprobability = 0.02\ndo = \"drop\"\n\n[[packet]]\nprobability = 0.02\ndo = \"duplicate\"\n";
    let address = fresh_address();
    let (server, client) = (
        Host::with_faults(address, lossy),
        Host::with_faults(fresh_address(), lossy),
    );
    let (a, b) = connect_hosts(
        &server,
        &client,
        address,
        |_| {},
        |options| options.receive_bytes = 1 << 14,
    );
    stream_through(a, b, 300_000);
}

#[test]
fn a_socket_of_ipv6_accepts_ipv4_unless_told_not_to() {
    let address = fresh_address();
    let server = Host::on(address);
    let listener = server.socket_of(Family::V6);
    listener.bind("[::]:0".parse().unwrap()).unwrap();
    listener.listen(4).unwrap();
    let port = listener.local_addr().port();
    let client = Host::on(fresh_address()).socket();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap().1);
        client.connect((address, port).into()).unwrap();
        let peer = accepted.join().unwrap();
        assert!(peer.to_string().starts_with("[::ffff:127."), "{peer}");
    });
    let only = server.socket_of(Family::V6);
    only.settings()
        .set_options(|options| options.only_own_family = true);
    assert_eq!(
        errno(only.bind("[::]:0".parse().unwrap())),
        libc_errno::EADDRNOTAVAIL
    );
}
