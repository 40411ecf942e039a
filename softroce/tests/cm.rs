//! RDMA CM on devices over UDP. Several providers in one process are to each other as several processes are: each device
//! has sockets and claims of its own.

mod side;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use softroce::faults::Rules;
use softroce::{Cm, CmId, Qp};
use verbs_api::{
    CmEventKind as K, CmId as _, CmPortSpace, ConnectionManager, ConnectionParameters, Gid, Object, QpState,
    QpType, QueuePair,
};

use side::{End, Side, connect, fresh_address, offer};

fn at(address: std::net::IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

#[test]
fn two_processes_on_one_address_connect_talk_and_part() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let listener = server.listen(at(address, 7471));
    let (mut a, mut b) = connect(&client, &server, at(address, 7471));
    assert_eq!(a.id.peer_addr(), Some(at(address, 7471)));
    assert_eq!(b.id.local_addr(), Some(at(address, 7471)));
    assert_eq!(b.id.peer_addr(), a.id.local_addr());
    a.talk(&mut b, b"there and");
    b.talk(&mut a, b"back again");
    a.id.disconnect().unwrap();
    server.expect(K::Disconnected);
    assert_eq!(a.qp.state().unwrap(), QpState::Err);
    b.id.disconnect().unwrap();
    client.expect(K::Disconnected);
    client.expect(K::TimewaitExit);
    server.expect(K::TimewaitExit);
    listener.destroy().unwrap();
}

#[test]
fn both_families_carry_private_data_of_every_length() {
    for address in [fresh_address(), "::1".parse().unwrap()] {
        let (server, client) = (Side::on(address), Side::on(address));
        let _listener = server.listen(at(address, 7472));
        for length in [0, 1, 56] {
            let id = client.resolved(at(address, 7472));
            let a = End::new(id);
            let data: Vec<u8> = (1..=length).collect();
            a.id.connect(&offer(&data)).unwrap();
            let mut event = server.expect(K::ConnectRequest);
            let mut padded = data.clone();
            padded.resize(56, 0);
            assert_eq!(event.private_data, padded);
            let b = End::new(event.request.take().unwrap());
            let answer: Vec<u8> = (0..196).rev().collect();
            b.id.accept(Some(&offer(&answer))).unwrap();
            assert_eq!(client.expect(K::Established).private_data, answer);
            server.expect(K::Established);
        }
        let a = End::new(client.resolved(at(address, 7472)));
        assert_eq!(a.id.connect(&offer(&[0; 57])).unwrap_err().errno(), 22);
        a.id.connect(&offer(&[])).unwrap();
        let b = End::new(server.expect(K::ConnectRequest).request.take().unwrap());
        assert_eq!(b.id.accept(Some(&offer(&[0; 197]))).unwrap_err().errno(), 22);
        assert_eq!(b.id.reject(&[0; 149]).unwrap_err().errno(), 22);
    }
}

#[test]
fn a_closed_port_rejects_with_reason_8_and_a_program_with_28_and_its_data() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let a = End::new(client.resolved(at(address, 7473)));
    a.id.connect(&offer(&[])).unwrap();
    assert_eq!(client.expect(K::Rejected).status, 8);
    assert_eq!(a.qp.state().unwrap(), QpState::Err);

    let _listener = server.listen(at(address, 7473));
    let a = End::new(client.resolved(at(address, 7473)));
    a.id.connect(&offer(&[])).unwrap();
    let request = server.expect(K::ConnectRequest).request.take().unwrap();
    request.reject(b"no room").unwrap();
    let event = client.expect(K::Rejected);
    assert_eq!((event.status, &event.private_data[..8]), (28, &b"no room\0"[..]));
    // Who lets a request drop refuses it too.
    let a = End::new(client.resolved(at(address, 7473)));
    a.id.connect(&offer(&[])).unwrap();
    drop(server.expect(K::ConnectRequest));
    assert_eq!(client.expect(K::Rejected).status, 28);
}

#[test]
fn what_each_offers_is_seen_crossed_by_the_other() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let _listener = server.listen(at(address, 7474));
    let a = End::new(client.resolved(at(address, 7474)));
    let asked = ConnectionParameters {
        responder_resources: 3,
        initiator_depth: 200,
        rnr_retry_count: 5,
        ..offer(&[])
    };
    a.id.connect(&asked).unwrap();
    let mut event = server.expect(K::ConnectRequest);
    // What is beyond the device is clipped to it.
    assert_eq!(
        (event.peer.responder_resources, event.peer.initiator_depth),
        (128, 3)
    );
    assert_eq!((event.peer.retry_count, event.peer.rnr_retry_count), (7, 5));
    assert_eq!(event.peer.qp_num, a.qp.qpn());
    let b = End::new(event.request.take().unwrap());
    let answered = ConnectionParameters {
        responder_resources: 2,
        initiator_depth: 9,
        ..offer(&[])
    };
    b.id.accept(Some(&answered)).unwrap();
    let event = client.expect(K::Established);
    // The server may have no more outstanding than the client answers.
    assert_eq!(
        (event.peer.responder_resources, event.peer.initiator_depth),
        (3, 2)
    );
    server.expect(K::Established);
    let (at_client, at_server) = (a.qp.query().unwrap(), b.qp.query().unwrap());
    assert_eq!(
        (at_client.max_rd_atomic, at_client.max_dest_rd_atomic),
        (Some(2), Some(3))
    );
    assert_eq!(
        (at_server.max_rd_atomic, at_server.max_dest_rd_atomic),
        (Some(3), Some(2))
    );
    assert_eq!(at_server.rnr_retry, Some(5));
}

#[test]
fn a_port_has_one_holder_on_an_address_and_is_free_at_once_when_that_goes() {
    let address = fresh_address();
    let (one, two) = (Side::on(address), Side::on(address));
    let held = one.listen(at(address, 7475));
    let id = two.id();
    let error = id.bind_addr(at(address, 7475)).unwrap_err();
    assert_eq!(error.errno(), 98, "{error}");
    // In the same process, and by the wildcard.
    assert_eq!(one.id().bind_addr(at(address, 7475)).unwrap_err().errno(), 98);
    assert_eq!(
        one.id()
            .bind_addr("0.0.0.0:7475".parse().unwrap())
            .unwrap_err()
            .errno(),
        98
    );
    // Another port space has ports of its own.
    let datagrams = two.cm.create_id(CmPortSpace::Udp, 0).unwrap();
    datagrams.bind_addr(at(address, 7475)).unwrap();
    drop(held);
    // At once, but for a process that another test is starting at this moment: between fork and exec it has all that
    // this one had.
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    while let Err(error) = id.bind_addr(at(address, 7475)) {
        assert!(std::time::Instant::now() < deadline, "{error}");
    }
    // An address of nobody's here.
    assert_eq!(
        one.id()
            .bind_addr("192.0.2.1:1".parse().unwrap())
            .unwrap_err()
            .errno(),
        99
    );
}

#[test]
fn those_who_share_an_address_may_bind_and_one_may_listen() {
    let address = fresh_address();
    let (one, two) = (Side::on(address), Side::on(address));
    let sharing = |side: &Side| {
        let id = side.id();
        id.set_reuse_address(true).unwrap();
        id.bind_addr(at(address, 7476)).unwrap();
        id
    };
    let (a, b, c) = (sharing(&one), sharing(&one), sharing(&two));
    a.listen(1).unwrap();
    assert_eq!(b.listen(1).unwrap_err().errno(), 98);
    assert_eq!(c.listen(1).unwrap_err().errno(), 98);
    let late = one.id();
    late.set_reuse_address(true).unwrap();
    assert_eq!(late.bind_addr(at(address, 7476)).unwrap_err().errno(), 98);
    drop(a);
    c.listen(1).unwrap();
}

#[test]
fn any_port_is_a_free_one_of_the_ephemeral_range() {
    let address = fresh_address();
    let side = Side::on(address);
    let ids: Vec<_> = (0..50)
        .map(|_| {
            let id = side.id();
            id.bind_addr(at(address, 0)).unwrap();
            id
        })
        .collect();
    let mut ports: Vec<_> = ids.iter().map(|id| id.local_addr().unwrap().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() == 50 && ports[0] >= 32_768);
}

#[test]
fn a_wildcard_listener_listens_on_every_device_of_its_family() {
    let (first, second) = (fresh_address(), fresh_address());
    let server = Side::on_all(&[first, second]);
    let listener = server.id();
    listener.bind_addr("0.0.0.0:7477".parse().unwrap()).unwrap();
    listener.listen(8).unwrap();
    for address in [first, second] {
        let client = Side::on(fresh_address());
        let (mut a, mut b) = connect(&client, &server, at(address, 7477));
        assert_eq!(b.id.local_addr(), Some(at(address, 7477)));
        a.talk(&mut b, b"hello");
    }
}

#[test]
fn a_service_of_datagrams_is_found_with_its_q_key() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let listener = server.cm.create_id(CmPortSpace::Udp, 5).unwrap();
    listener.bind_addr(at(address, 7478)).unwrap();
    listener.listen(8).unwrap();
    let id = client.cm.create_id(CmPortSpace::Udp, 6).unwrap();
    let id = client.resolve(id, at(address, 7478));
    let a = End::datagram(id);
    a.id.connect(&offer(b"who?")).unwrap();
    let mut event = server.expect(K::ConnectRequest);
    assert_eq!(
        (event.cookie, &event.private_data[..4], event.private_data.len()),
        (5, &b"who?"[..], 180)
    );
    let b = End::datagram(event.request.take().unwrap());
    b.id.accept(Some(&offer(b"me"))).unwrap();
    let event = client.expect(K::Established);
    let peer = event.datagram_peer.unwrap();
    assert_eq!(
        (event.cookie, peer.qp_num, peer.qkey),
        (6, b.qp.qpn(), 0x0123_4567)
    );
    assert_eq!(peer.av.dgid, Some(Gid::from(address)));
    assert_eq!(
        (&event.private_data[..2], event.private_data.len()),
        (&b"me"[..], 136)
    );
    a.send_datagram(&b, &peer, b"a datagram");
    // A port that nobody has.
    let id = client.cm.create_id(CmPortSpace::Udp, 0).unwrap();
    let id = client.resolve(id, at(address, 7479));
    let c = End::datagram(id);
    c.id.connect(&offer(&[])).unwrap();
    assert_eq!(client.expect(K::Unreachable).status, 1);
}

#[test]
fn a_program_that_makes_the_transitions_itself_is_told_when_and_how() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let _listener = server.listen(at(address, 7480));
    let a = End::unbound(client.resolved(at(address, 7480)));
    let own = |end: &End| ConnectionParameters {
        qp: Some((end.qp.qpn(), QpType::Rc)),
        ..offer(&[])
    };
    assert!(a.id.qp_attr(QpState::Rtr).is_err());
    a.id.connect(&own(&a)).unwrap();
    let b = End::unbound(server.expect(K::ConnectRequest).request.take().unwrap());
    let bring_up = |end: &End| {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            end.qp.modify(&end.id.qp_attr(state).unwrap()).unwrap();
        }
    };
    bring_up(&b);
    b.id.accept(Some(&own(&b))).unwrap();
    client.expect(K::ConnectResponse);
    bring_up(&a);
    a.id.accept(None).unwrap();
    server.expect(K::Established);
    let (mut a, mut b) = (a, b);
    a.talk(&mut b, b"by hand");
    b.talk(&mut a, b"likewise");
}

#[test]
fn an_id_moves_to_another_channel_with_what_waits() {
    let address = fresh_address();
    let client = Side::on(address);
    let id = client.cm.create_id(CmPortSpace::Tcp, 9).unwrap();
    id.resolve_addr(None, at(address, 1), Duration::ZERO).unwrap();
    let other = Cm::new(&client.provider).unwrap();
    id.migrate(&other).unwrap();
    assert!(client.cm.wait(Some(Duration::ZERO)).unwrap().is_none());
    let event = other.wait(Some(Duration::ZERO)).unwrap().unwrap();
    assert_eq!((event.kind, event.cookie), (K::AddrResolved, 9));
    id.resolve_route(Duration::ZERO).unwrap();
    assert_eq!(
        other.wait(Some(Duration::ZERO)).unwrap().unwrap().kind,
        K::RouteResolved
    );
}

#[test]
fn what_is_out_of_order_is_an_error() {
    let address = fresh_address();
    let side = Side::on(address);
    let id = side.id();
    assert_eq!(id.resolve_route(Duration::ZERO).unwrap_err().errno(), 22);
    assert_eq!(id.connect(&offer(&[])).unwrap_err().errno(), 22);
    assert_eq!(id.accept(None).unwrap_err().errno(), 22);
    assert_eq!(id.disconnect().unwrap_err().errno(), 22);
    assert!(id.context().is_none());
    id.resolve_addr(None, "192.0.2.55:1".parse().unwrap(), Duration::ZERO)
        .unwrap();
    assert_eq!(side.expect(K::AddrError).status, -113);
    // After the failure it may try again.
    id.resolve_addr(None, at(address, 1), Duration::ZERO).unwrap();
    side.expect(K::AddrResolved);
    id.resolve_route(Duration::ZERO).unwrap();
    assert_eq!(id.connect(&offer(&[])).unwrap_err().errno(), 22, "no queue pair");
}

#[test]
fn an_event_that_is_held_keeps_its_id_from_going() {
    let address = fresh_address();
    let side = Side::on(address);
    let id = side.id();
    id.resolve_addr(None, at(address, 1), Duration::ZERO).unwrap();
    let event = side.expect(K::AddrResolved);
    let destroying = std::thread::spawn(move || id.destroy().unwrap());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!destroying.is_finished());
    drop(event);
    destroying.join().unwrap();
}

#[test]
fn the_end_of_an_id_is_the_end_of_its_connection() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let _listener = server.listen(at(address, 7481));
    let (a, b) = connect(&client, &server, at(address, 7481));
    drop(a);
    server.expect(K::Disconnected);
    drop(b);
    let client = Side::on(address);
    let (_a, _b) = connect(&client, &server, at(address, 7481));
}

/// As rdma_get_cm_event(3) has it: who is bound to the device is told; who is on all addresses is bound to none.
#[test]
fn ids_of_a_device_hear_of_its_removal_and_of_the_loss_of_its_address() {
    for (what, kind) in [("device-fatal", K::DeviceRemoval), ("gids-gone", K::AddrChange)] {
        let address = fresh_address();
        let (server, client) = (Side::that_may_fail(address), Side::on(address));
        let listener = server.listen(at(address, 7483));
        listener.set_cookie(1);
        let everywhere = server.listen("0.0.0.0:7484".parse().unwrap());
        everywhere.set_cookie(2);
        let (a, b) = connect(&client, &server, at(address, 7483));
        b.id.set_cookie(3);
        let resolved = server.id();
        resolved.set_cookie(4);
        let resolved = server.resolve(resolved, at(address, 1));
        let bound = server.id();
        bound.set_cookie(5);
        bound.bind_addr(at(address, 0)).unwrap();
        let idle = server.id();
        idle.set_cookie(6);
        let gone = server.id();
        gone.bind_addr(at(address, 0)).unwrap();
        gone.destroy().unwrap();

        let rules = format!("[[event]]\nat = \"0s\"\ndo = \"{what}\"\n");
        server
            .provider
            .set_faults(Some(Rules::parse(&rules).unwrap()))
            .unwrap();
        let mut told: Vec<_> = (0..4)
            .map(|_| {
                let event = server.expect(kind);
                assert_eq!(event.status, 0);
                event.cookie
            })
            .collect();
        told.sort_unstable();
        assert_eq!(told, [1, 3, 4, 5]);
        assert!(server.cm.wait(Some(Duration::ZERO)).unwrap().is_none());
        assert!(client.cm.wait(Some(Duration::ZERO)).unwrap().is_none());
        if kind == K::DeviceRemoval {
            assert_eq!(b.qp.state().unwrap_err().errno(), EIO);
            for id in [&listener, &b.id, &resolved, &bound] {
                each_call_fails(id, &CALLS, &b.qp, address);
                // What looks at what is left works.
                assert!(id.local_addr().is_some() && id.context().is_some());
                id.migrate(&server.cm).unwrap();
            }
            each_call_fails(&idle, &CALLS_THAT_FIND_A_DEVICE, &b.qp, address);
            idle.set_type_of_service(3).unwrap();
        }
        // All of them can be put away, and the port is free.
        for id in [listener, everywhere, resolved, bound, idle] {
            id.destroy().unwrap();
        }
        drop((a, b));
        Side::on(address).listen(at(address, 7483));
    }
}

const EIO: i32 = 5;

/// A call on an id, made with a queue pair and the address of the device.
type Call = fn(&CmId, &Qp, IpAddr) -> verbs_api::Result<()>;

/// Those that lead an id that is on no device to one.
const CALLS_THAT_FIND_A_DEVICE: [(&str, Call); 3] = [
    ("bind_addr", |id, _, address| id.bind_addr(at(address, 0))),
    ("listen", |id, _, _| id.listen(1)),
    ("resolve_addr", |id, _, address| {
        id.resolve_addr(None, at(address, 1), Duration::ZERO)
    }),
];

/// All that need the device of an id.
const CALLS: [(&str, Call); 17] = [
    CALLS_THAT_FIND_A_DEVICE[0],
    CALLS_THAT_FIND_A_DEVICE[1],
    CALLS_THAT_FIND_A_DEVICE[2],
    ("resolve_route", |id, _, _| id.resolve_route(Duration::ZERO)),
    ("bind_qp", |id, qp, _| id.bind_qp(qp)),
    ("qp_attr", |id, _, _| id.qp_attr(QpState::Init).map(drop)),
    ("connect", |id, _, _| id.connect(&offer(&[]))),
    ("accept", |id, _, _| id.accept(None)),
    ("reject", |id, _, _| id.reject(&[])),
    ("reject_vendor_options", |id, _, _| id.reject_vendor_options(&[])),
    ("established", |id, _, _| id.established()),
    ("disconnect", |id, _, _| id.disconnect()),
    ("join_multicast", |id, _, _| {
        id.join_multicast("239.1.2.3:0".parse().unwrap(), 0)
    }),
    ("set_type_of_service", |id, _, _| id.set_type_of_service(3)),
    ("set_ack_timeout", |id, _, _| id.set_ack_timeout(3)),
    ("set_reuse_address", |id, _, _| id.set_reuse_address(true)),
    ("set_only_own_family", |id, _, _| id.set_only_own_family(true)),
];

/// On a device that has failed, as a fault rule says.
fn each_call_fails(id: &CmId, calls: &[(&str, Call)], qp: &Qp, address: IpAddr) {
    for (name, call) in calls {
        let error = call(id, qp, address).expect_err(name);
        assert_eq!(error.errno(), EIO, "{name}: {error}");
        assert!(error.to_string().contains("the device has failed"), "{error}");
    }
}

/// Tells this program to be a server process at this address.
const SERVER_VARIABLE: &str = "SOFTROCE_TEST_CM_SERVER";

/// Not a test: what the server processes run.
#[test]
fn a_server_process() {
    let Ok(address) = std::env::var(SERVER_VARIABLE) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    let side = Side::on(address.ip());
    let _listener = side.listen(address);
    // The harness has begun the line already.
    println!("\nlistening");
    let mut ends = Vec::new();
    while let Some(mut event) = side.cm.wait(None).unwrap() {
        if let Some(request) = event.request.take() {
            let end = End::new(request);
            end.receive_some(8);
            end.id.accept(None).unwrap();
            ends.push(end);
        }
    }
}

fn server_process(at: SocketAddr) -> std::process::Child {
    use std::io::BufRead;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cm::a_server_process", "--nocapture"])
        .env(SERVER_VARIABLE, at.to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "listening"), "the server starts");
    child
}

/// Tells this program to connect there, and end.
const CLIENT_VARIABLE: &str = "SOFTROCE_TEST_CM_CLIENT";

/// Not a test: what the client process runs.
#[test]
fn a_client_process() {
    let Ok(address) = std::env::var(CLIENT_VARIABLE) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    let side = Side::on(address.ip());
    let end = End::new(side.resolved(address));
    end.id.connect(&offer(&[])).unwrap();
    side.expect(K::Established);
    std::process::exit(0);
}

#[test]
fn a_program_that_ends_without_a_word_has_parted_with_its_peers() {
    let address = at(fresh_address(), 7492);
    let server = Side::on(address.ip());
    let _listener = server.listen(address);
    let mut client = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cm::a_client_process", "--nocapture"])
        .env(CLIENT_VARIABLE, address.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let end = End::new(server.expect(K::ConnectRequest).request.take().unwrap());
    end.id.accept(None).unwrap();
    server.expect(K::Established);
    server.expect(K::Disconnected);
    assert!(client.wait().unwrap().success());
}

#[test]
fn who_looks_for_a_new_peer_leaves_no_message_unacknowledged() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let _listener = server.listen(at(address, 7492));
    let (a, b) = connect(&client, &server, at(address, 7492));
    a.receive_some(1);
    let sent = a.sent_packets();
    b.begin_to_say(b"connect anew");
    a.completion();
    let _anew = client.resolved(at(address, 7492));
    assert_eq!(a.sent_packets(), sent + 1);
    b.completion();
}

#[test]
fn threads_that_name_one_id_at_once_leave_no_port_taken() {
    let address = fresh_address();
    let side = Side::on(address);
    let ports = 7493..7496;
    for _ in 0..50 {
        let id = side.id();
        std::thread::scope(|scope| {
            for port in ports.clone() {
                let id = &id;
                scope.spawn(move || id.bind_addr(at(address, port)));
            }
        });
        id.destroy().unwrap();
        for port in ports.clone() {
            side.id().bind_addr(at(address, port)).unwrap();
        }
    }
}

/// How many of so many threads that make a call at once have success.
fn at_once<R: Send>(call: impl Fn() -> verbs_api::Result<R> + Sync) -> usize {
    const THREADS: usize = 4;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| call().is_ok())).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|done| *done)
            .count()
    })
}

/// Two threads asked for a connection each, and one of them was nobody's.
#[test]
fn of_threads_that_call_one_id_at_once_one_has_its_way() {
    let address = fresh_address();
    let (server, client) = (Side::on(address), Side::on(address));
    let _listener = server.listen(at(address, 7485));
    for _ in 0..20 {
        let id = client.id();
        assert_eq!(
            at_once(|| id.resolve_addr(None, at(address, 7485), Duration::ZERO)),
            1
        );
        client.expect(K::AddrResolved);
        assert_eq!(at_once(|| id.resolve_route(Duration::ZERO)), 1);
        client.expect(K::RouteResolved);
        let a = End::new(id);
        assert_eq!(at_once(|| a.id.connect(&offer(&[]))), 1);
        let b = End::new(server.expect(K::ConnectRequest).request.take().unwrap());
        assert_eq!(at_once(|| b.id.accept(None)), 1);
        client.expect(K::Established);
        server.expect(K::Established);
        assert!(at_once(|| a.id.disconnect()) > 0);
        server.expect(K::Disconnected);
        assert!(at_once(|| b.id.disconnect()) > 0);
        client.expect(K::Disconnected);
        a.id.destroy().unwrap();
        b.id.destroy().unwrap();
        for side in [&server, &client] {
            assert!(side.cm.wait(Some(Duration::ZERO)).unwrap().is_none());
        }
    }
}

#[test]
fn a_server_that_is_killed_frees_its_port_at_once_and_disturbs_nobody() {
    let address = fresh_address();
    let (first, second) = (at(address, 7490), at(address, 7491));
    let [mut victim, mut other] = [first, second].map(server_process);
    let clients: Vec<_> = [first, second, first, second]
        .into_iter()
        .map(|to| {
            let side = Side::on(address);
            let end = End::new(side.resolved(to));
            end.id.connect(&offer(&[])).unwrap();
            side.expect(K::Established);
            end.say(b"hello");
            (side, end)
        })
        .collect();
    victim.kill().unwrap();
    victim.wait().unwrap();
    // Its port is free, for a process that was there before, and requests find their new listener.
    let heir = Side::on(address);
    let _listener = heir.listen(first);
    let client = Side::on(address);
    let (mut a, mut b) = connect(&client, &heir, first);
    a.talk(&mut b, b"in its place");
    for (_, end) in clients.iter().skip(1).step_by(2) {
        end.say(b"still here");
    }
    let late = Side::on(address);
    let end = End::new(late.resolved(second));
    end.id.connect(&offer(&[])).unwrap();
    late.expect(K::Established);
    end.say(b"me too");
    other.kill().unwrap();
    other.wait().unwrap();
}
