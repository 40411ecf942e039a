//! Connections by address through the C ABI: what group J of the conformance suite does not ask, as it is about the provider
//! that drives the library.

use std::net::SocketAddr;
use std::time::Duration;

use verbs_api::*;
use verbs_native::{Cm, Cq, Native, Pd, Qp};

use super::{common, open};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));
const A_SECOND: Duration = Duration::from_secs(1);

type Id = <Cm as ConnectionManager>::Id;

fn anywhere() -> SocketAddr {
    SocketAddr::from((common::address(1), 0))
}

fn next(cm: &Cm, kind: CmEventKind) -> CmEvent<Cm> {
    let event = cm.wait(PATIENCE).expect("waiting").expect("an event");
    assert_eq!(event.kind, kind, "status {}", event.status);
    event
}

fn listener(cm: &Cm, space: CmPortSpace) -> (Id, SocketAddr) {
    let id = cm.create_id(space, 1).expect("an id");
    id.bind_addr(anywhere()).expect("bound");
    id.listen(4).expect("listening");
    let at = id.local_addr().expect("its address");
    assert_ne!(at.port(), 0);
    (id, at)
}

fn resolved(cm: &Cm, space: CmPortSpace, to: SocketAddr) -> Id {
    let id = cm.create_id(space, 2).expect("an id");
    id.resolve_addr(None, to, A_SECOND).expect("resolving");
    assert_eq!(next(cm, CmEventKind::AddrResolved).cookie, 2);
    id.resolve_route(A_SECOND).expect("resolving");
    next(cm, CmEventKind::RouteResolved);
    id
}

/// A queue pair, and what it stands on.
type End = (Qp, Cq, Pd);

fn queue_pair(context: &verbs_native::Context, qp_type: QpType) -> End {
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(&CqInit::new(16)).expect("a queue");
    let init = QpInit {
        qp_type,
        ..QpInit::rc(&cq)
    };
    (pd.create_qp(&init).expect("a queue pair"), cq, pd)
}

/// A client that has asked, with its queue pair bound, a listener, and the request that has arrived there.
struct Asked {
    channels: [Cm; 2],
    ids: [Id; 2],
    end: End,
    request: CmEvent<Cm>,
}

fn asked(native: &Native) -> Asked {
    let [here, there] = [(); 2].map(|()| native.connection_manager().expect("a channel"));
    let (listener, to) = listener(&there, CmPortSpace::Tcp);
    let client = resolved(&here, CmPortSpace::Tcp, to);
    let end = queue_pair(&client.context().expect("its device"), QpType::Rc);
    client.bind_qp(&end.0).expect("bound");
    client.connect(&ConnectionParameters::default()).expect("asking");
    let request = next(&there, CmEventKind::ConnectRequest);
    Asked {
        channels: [here, there],
        ids: [client, listener],
        end,
        request,
    }
}

#[test]
fn a_bound_queue_pair_may_be_destroyed_before_its_refusal_arrives() {
    let (native, _context) = open();
    let Asked {
        channels: [here, _there],
        ids: [client, _listener],
        end: (qp, _cq, _pd),
        mut request,
    } = asked(&native);
    qp.destroy().expect("destroyed");
    let id = request.request.take().expect("its id");
    id.reject(b"no").expect("refusing");
    let refusal = next(&here, CmEventKind::Rejected);
    assert_eq!((refusal.status, &refusal.private_data[..2]), (28, &b"no"[..]));
    client.disconnect().expect("there is nothing to end");
}

#[test]
fn a_bound_queue_pair_that_is_gone_when_the_peer_accepts_ends_in_a_connect_error() {
    let (native, _context) = open();
    let Asked {
        channels: [here, _there],
        ids: _ids,
        end: (qp, _cq, _pd),
        mut request,
    } = asked(&native);
    let id = request.request.take().expect("its id");
    let (server, _server_cq, _server_pd) = queue_pair(&id.context().expect("its device"), QpType::Rc);
    id.bind_qp(&server).expect("bound");
    drop(qp);
    id.accept(None).expect("accepting");
    assert!(next(&here, CmEventKind::ConnectError).status < 0);
}

#[test]
fn a_request_that_is_dropped_is_refused() {
    let (native, _context) = open();
    let asked = asked(&native);
    drop(asked.request);
    assert_eq!(next(&asked.channels[0], CmEventKind::Rejected).status, 28);
}

#[test]
fn requests_that_wait_on_a_channel_which_is_dropped_are_refused() {
    let (native, _context) = open();
    let [here, there] = [(); 2].map(|()| native.connection_manager().expect("a channel"));
    let (_listener, to) = listener(&there, CmPortSpace::Tcp);
    let client = resolved(&here, CmPortSpace::Tcp, to);
    let (qp, _cq, _pd) = queue_pair(&client.context().expect("its device"), QpType::Rc);
    client.bind_qp(&qp).expect("bound");
    client.connect(&ConnectionParameters::default()).expect("asking");
    // It has arrived.
    let mut poll = [libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(&there.fd()),
        events: libc::POLLIN,
        revents: 0,
    }];
    // SAFETY: one valid entry.
    assert_eq!(unsafe { libc::poll(poll.as_mut_ptr(), 1, 10_000) }, 1);
    drop(there);
    assert_eq!(next(&here, CmEventKind::Rejected).status, 28);
    assert_eq!(qp.state().expect("its state"), QpState::Err);
}

#[test]
fn queue_pairs_that_are_not_bound_are_brought_up_by_the_program() {
    let (native, _context) = open();
    let [here, there] = [(); 2].map(|()| native.connection_manager().expect("a channel"));
    let (_listener, to) = listener(&there, CmPortSpace::Tcp);
    let client = resolved(&here, CmPortSpace::Tcp, to);
    let (qp, _cq, _pd) = queue_pair(&client.context().expect("its device"), QpType::Rc);
    let go = |id: &Id, qp: &Qp, state: QpState| {
        let attr = id.qp_attr(state).expect("its attributes");
        assert_eq!(attr.state, Some(state));
        qp.modify(&attr).expect("the transition");
    };
    let named = |qp: &Qp| ConnectionParameters {
        qp: Some((qp.qpn(), QpType::Rc)),
        retry_count: 7,
        rnr_retry_count: 7,
        ..ConnectionParameters::default()
    };
    go(&client, &qp, QpState::Init);
    let nothing = client.connect(&ConnectionParameters::default()).unwrap_err();
    assert!(nothing.to_string().contains("no queue pair"), "{nothing}");
    client.connect(&named(&qp)).expect("asking");
    let mut request = next(&there, CmEventKind::ConnectRequest);
    assert_eq!(request.peer.qp_num, qp.qpn());
    let server = request.request.take().expect("its id");
    let (server_qp, _server_cq, _server_pd) = queue_pair(&server.context().expect("its device"), QpType::Rc);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        go(&server, &server_qp, state);
    }
    server.accept(Some(&named(&server_qp))).expect("accepting");
    next(&here, CmEventKind::ConnectResponse);
    for state in [QpState::Rtr, QpState::Rts] {
        go(&client, &qp, state);
    }
    client.accept(None).expect("ready");
    next(&there, CmEventKind::Established);
    assert_eq!(client.accept(None).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn an_id_moves_to_another_channel_with_what_waits_for_it() {
    let (native, _context) = open();
    let [first, second] = [(); 2].map(|()| native.connection_manager().expect("a channel"));
    let id = first.create_id(CmPortSpace::Tcp, 5).expect("an id");
    id.resolve_addr(None, SocketAddr::from((common::address(1), 7)), A_SECOND)
        .expect("resolving");
    id.migrate(&second).expect("moved");
    drop(first);
    assert_eq!(next(&second, CmEventKind::AddrResolved).cookie, 5);
    let (other, _) = open();
    let foreign = other.connection_manager().expect("a channel");
    assert_eq!(id.migrate(&foreign).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_group_takes_in_the_queue_pair_that_is_bound() {
    let (native, _context) = open();
    let cm = native.connection_manager().expect("a channel");
    let id = cm.create_id(CmPortSpace::Udp, 6).expect("an id");
    id.bind_addr(anywhere()).expect("bound");
    let (qp, _cq, _pd) = queue_pair(&id.context().expect("its device"), QpType::Ud);
    id.bind_qp(&qp).expect("bound");
    assert_eq!(qp.state().expect("its state"), QpState::Rts);
    let group: SocketAddr = "239.7.7.9:0".parse().expect("a group");
    id.join_multicast(group, 77).expect("joining");
    let joined = next(&cm, CmEventKind::MulticastJoin);
    let to = joined.datagram_peer.expect("where to");
    assert_eq!((joined.group_cookie, to.qp_num), (77, 0xff_ffff));
    let gid = to.av.dgid.expect("its GID");
    // It is in already, so that leaving by hand works once, and no second time.
    qp.detach_mcast(gid, 0).expect("it was in");
    assert!(qp.detach_mcast(gid, 0).is_err());
    drop(joined);
    id.leave_multicast(group).expect("leaving");
    assert_eq!(
        id.leave_multicast(group).unwrap_err().errno(),
        libc::EADDRNOTAVAIL
    );
}

#[test]
fn what_does_not_fit_an_id_is_refused_before_anything_happens() {
    let (native, _context) = open();
    let cm = native.connection_manager().expect("a channel");
    let id = cm.create_id(CmPortSpace::Tcp, 0).expect("an id");
    assert!(id.context().is_none() && id.local_addr().is_none() && id.peer_addr().is_none());
    let (own, own_context) = open();
    let (qp, _cq, _pd) = queue_pair(&own_context, QpType::Rc);
    assert!(id.bind_qp(&qp).unwrap_err().to_string().contains("no device"));
    id.set_reuse_address(true).expect("an option");
    id.set_type_of_service(8).expect("an option");
    id.set_ack_timeout(17).expect("an option");
    assert_eq!(id.set_ack_timeout(32).unwrap_err().kind(), ErrorKind::Invalid);
    id.bind_addr(anywhere()).expect("bound");
    let (datagrams, _cq, _pd) = queue_pair(&own_context, QpType::Ud);
    assert_eq!(id.bind_qp(&datagrams).unwrap_err().kind(), ErrorKind::Invalid);
    // The provider is another one, and the library the same.
    drop(own);
    id.bind_qp(&qp).expect("bound");
    assert_eq!(id.bind_qp(&qp).unwrap_err().kind(), ErrorKind::Invalid);
    id.unbind_qp();
    id.bind_qp(&qp).expect("bound again");
    assert_eq!(id.accept(None).unwrap_err().kind(), ErrorKind::Invalid);
    id.destroy().expect("destroyed");
    qp.destroy().expect("destroyed");
}

#[test]
fn threads_with_channels_of_their_own_connect_at_once() {
    const CLIENTS: usize = 4;
    const CONNECTIONS: usize = 25;
    let (native, _context) = open();
    let there = native.connection_manager().expect("a channel");
    let (_listener, to) = listener(&there, CmPortSpace::Tcp);
    let client = |native: &Native| {
        let here = native.connection_manager().expect("a channel");
        for _ in 0..CONNECTIONS {
            let id = resolved(&here, CmPortSpace::Tcp, to);
            let (qp, _cq, _pd) = queue_pair(&id.context().expect("its device"), QpType::Rc);
            id.bind_qp(&qp).expect("bound");
            id.connect(&ConnectionParameters::default()).expect("asking");
            next(&here, CmEventKind::Established);
            id.disconnect().expect("ending");
            next(&here, CmEventKind::Disconnected);
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..CLIENTS {
            threads.spawn(|| client(&native));
        }
        let mut connections = std::collections::HashMap::new();
        let (mut accepted, mut ended) = (0, 0);
        while ended < CLIENTS * CONNECTIONS {
            let mut event = there.wait(PATIENCE).expect("waiting").expect("an event");
            match (event.kind, event.request.take()) {
                (CmEventKind::ConnectRequest, Some(id)) => {
                    accepted += 1;
                    id.set_cookie(accepted);
                    let end = queue_pair(&id.context().expect("its device"), QpType::Rc);
                    id.bind_qp(&end.0).expect("bound");
                    id.accept(None).expect("accepting");
                    connections.insert(accepted, (id, end));
                }
                (CmEventKind::Established, None) => {}
                (CmEventKind::Disconnected, None) => {
                    let (id, _end) = connections.remove(&event.cookie).expect("a connection of ours");
                    id.disconnect().expect("answering");
                    ended += 1;
                }
                other => panic!("{other:?}, status {}", event.status),
            }
        }
    });
}
