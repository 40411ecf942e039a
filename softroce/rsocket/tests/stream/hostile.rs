//! Peers that connect like ours and then say what no socket of ours says.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use softroce::{Cm, CmId, Cq, Mr, Qp};
use softroce_rsocket::message::{Control, Credit, Hello};
use softroce_rsocket::{Amount, Patience};
use verbs_api::{
    Access, Buffer, CmEventKind, CmId as _, CmPortSpace, CompletionQueue, ConnectionManager,
    ConnectionParameters, Context, CqInit, MemoryRegion, Payload, ProtectionDomain, QpInit, QueuePair,
    RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc,
};

use crate::ends::*;

const RECEIVES: u16 = 32;

/// One that can send whatever it likes.
struct Stranger {
    cm: Cm,
    id: CmId,
    qp: Qp,
    cq: Cq,
    memory: Buffer,
    region: Mr,
    victim: Hello,
}

impl Stranger {
    /// Connects to a listener with this private data; `None`: it refuses.
    fn connect(host: &Host, to: SocketAddr, hello: impl FnOnce(&Buffer, &Mr) -> Vec<u8>) -> Option<Stranger> {
        let cm = Cm::new(&host.provider).unwrap();
        let id = cm.create_id(CmPortSpace::Tcp, 0).unwrap();
        let patience = Duration::from_secs(10);
        let next = || cm.wait(Some(patience)).unwrap().unwrap();
        id.resolve_addr(None, to, patience).unwrap();
        assert_eq!(next().kind, CmEventKind::AddrResolved);
        id.resolve_route(patience).unwrap();
        assert_eq!(next().kind, CmEventKind::RouteResolved);
        let domain = id.context().unwrap().alloc_pd().unwrap();
        let cq = id.context().unwrap().create_cq(&CqInit::new(128)).unwrap();
        let qp = domain.create_qp(&QpInit::rc(&cq)).unwrap();
        let memory = Buffer::new(1 << 16);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = domain.reg_mr(&memory, access).unwrap();
        id.bind_qp(&qp).unwrap();
        for _ in 0..RECEIVES {
            let sges = [Sge {
                addr: region.addr(),
                length: 64,
                lkey: region.lkey(),
            }];
            qp.post_recv(&[RecvWr {
                wr_id: 0,
                sges: &sges,
            }])
            .unwrap();
        }
        let private_data = hello(&memory, &region);
        let parameters = ConnectionParameters {
            private_data: &private_data,
            retry_count: 7,
            rnr_retry_count: 7,
            ..ConnectionParameters::default()
        };
        id.connect(&parameters).unwrap();
        let event = next();
        let victim = match event.kind {
            CmEventKind::Established => Hello::parse(&event.private_data).unwrap(),
            CmEventKind::Rejected => return None,
            other => panic!("{other:?}"),
        };
        drop(event);
        Some(Stranger {
            cm,
            id,
            qp,
            cq,
            memory,
            region,
            victim,
        })
    }

    fn post(&self, op: SendOp<'_, softroce::Softroce>, bytes: &[u8]) {
        self.memory.write(4096, bytes);
        let sges = [Sge {
            addr: self.region.addr() + 4096,
            length: bytes.len() as u32,
            lkey: self.region.lkey(),
        }];
        let request = SendWr {
            wr_id: 1,
            op,
            payload: Payload::Sges(if bytes.is_empty() { &[] } else { &sges }),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        self.qp.post_send(&[request]).unwrap();
        let mut wc = [Wc::default()];
        while self.cq.poll(&mut wc).unwrap() == 0 || wc[0].wr_id != 1 {
            thread::yield_now();
        }
    }

    fn control(&self, bytes: &[u8]) {
        self.post(SendOp::Send { imm: None }, bytes);
    }

    fn data(&self, place: u64, bytes: &[u8], immediate: u32) {
        let remote = RemoteAddr {
            addr: self.victim.ring.addr + place,
            rkey: self.victim.ring.rkey,
        };
        self.post(
            SendOp::Write {
                remote,
                imm: Some(immediate),
            },
            bytes,
        );
    }
}

fn sound_hello(memory: &Buffer, region: &Mr) -> Hello {
    Hello {
        messages: 8,
        ring: RemoteAddr {
            addr: memory.addr(),
            rkey: region.rkey(),
        },
        ring_bytes: 4096,
        table: RemoteAddr::default(),
        table_entries: 0,
    }
}

/// A socket of ours with a stranger connected to it. The ring of ours has 1000 bytes, its queue 4 messages.
fn attacked() -> (Socket, Stranger) {
    let address = fresh_address();
    let (server, client) = (Host::on(address), Host::on(fresh_address()));
    let (listener, to) = server.listener(address);
    listener.settings().set_options(|options| {
        options.receive_bytes = 1000;
        options.receive_queue = 4;
        options.mappings = 2;
    });
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap().0);
        let hello = |memory: &Buffer, region: &Mr| sound_hello(memory, region).to_bytes().to_vec();
        let stranger = Stranger::connect(&client, to, hello).unwrap();
        (accepted.join().unwrap(), stranger)
    })
}

/// What the socket's next read says after something was said to it.
fn answer(say: impl FnOnce(&Stranger)) -> i32 {
    let (socket, stranger) = attacked();
    say(&stranger);
    let read = errno(socket.receive(&mut [0; 2000], Amount::All, Patience::OfSocket));
    assert_eq!(errno(socket.send(b"x", Patience::OfSocket)), read);
    // The stranger is told that it is over.
    let event = stranger.cm.wait(Some(Duration::from_secs(10))).unwrap().unwrap();
    assert_eq!(event.kind, CmEventKind::Disconnected);
    drop(event);
    let _ = stranger.id.disconnect();
    read
}

#[test]
fn a_stranger_that_keeps_to_the_protocol_is_one_of_ours() {
    let (socket, stranger) = attacked();
    stranger.data(0, b"hello", 5);
    assert_eq!(read(&socket, 5), b"hello");
    socket.send(b"back", Patience::OfSocket).unwrap();
    stranger.control(
        &Control::End(Credit {
            bytes: 4,
            messages: 1,
        })
        .to_bytes(),
    );
    assert_eq!(
        socket
            .receive(&mut [0; 5], Amount::Some, Patience::OfSocket)
            .unwrap(),
        0
    );
}

#[test]
fn private_data_that_is_no_greeting_is_refused() {
    let address = fresh_address();
    let (server, client) = (Host::on(address), Host::on(fresh_address()));
    let (listener, to) = server.listener(address);
    listener.settings().set_nonblocking(true);
    thread::scope(|scope| {
        let strangers = scope.spawn(|| {
            for bytes in [vec![], vec![0; 56], vec![0xff; 40], b"SRSK".to_vec()] {
                assert!(Stranger::connect(&client, to, |_, _| bytes).is_none());
            }
            let zero_ring = |memory: &Buffer, region: &Mr| {
                let mut hello = sound_hello(memory, region);
                hello.ring_bytes = 0;
                hello.to_bytes().to_vec()
            };
            assert!(Stranger::connect(&client, to, zero_ring).is_none());
        });
        while !strangers.is_finished() {
            assert_eq!(errno(listener.accept()), libc_errno::EAGAIN);
            thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn control_messages_that_are_none_end_the_connection() {
    for bytes in [&[][..], &[1; 23], &[0; 24], &[3; 24], &[1; 25], &[1; 3000]] {
        assert_eq!(
            answer(|stranger| stranger.control(bytes)),
            libc_errno::EPROTO,
            "{}",
            bytes.len()
        );
    }
}

#[test]
fn credits_for_what_was_never_sent_end_the_connection() {
    for credit in [
        Credit {
            bytes: 1,
            messages: 0,
        },
        Credit {
            bytes: 0,
            messages: 1,
        },
        Credit {
            bytes: u64::MAX,
            messages: u64::MAX,
        },
    ] {
        let say = |stranger: &Stranger| stranger.control(&Control::Credit(credit).to_bytes());
        assert_eq!(answer(say), libc_errno::EPROTO);
    }
}

#[test]
fn data_of_another_length_than_it_says_ends_the_connection() {
    for (bytes, immediate) in [
        (&b"data"[..], 5),
        (b"data", 3),
        (b"data", u32::MAX),
        (b"", 0),
        (b"", 7),
    ] {
        let say = |stranger: &Stranger| stranger.data(0, bytes, immediate);
        assert_eq!(answer(say), libc_errno::EPROTO, "{immediate}");
    }
}

#[test]
fn data_beyond_the_room_ends_the_connection() {
    // More bytes than the ring has left; then more than the ring has at all, which the card itself refuses.
    let full = |stranger: &Stranger| {
        stranger.data(0, &[1; 600], 600);
        stranger.data(0, &[1; 600], 600);
    };
    let (socket, stranger) = attacked();
    full(&stranger);
    wait_for(&socket, |ready| ready.input);
    assert_eq!(read(&socket, 600), [1; 600]);
    wait_for(&socket, |ready| ready.error);
    assert_eq!(errno(socket.send(b"x", Patience::OfSocket)), libc_errno::EPROTO);
    let beyond = answer(|stranger| stranger.data(0, &[1; 1001], 1001));
    assert_eq!(beyond, libc_errno::ECONNRESET);
}

#[test]
fn data_after_the_end_and_a_second_end_are_errors_and_what_came_before_is_read() {
    let end = Control::End(Credit::default()).to_bytes();
    for again in [true, false] {
        let (socket, stranger) = attacked();
        stranger.data(0, b"last", 4);
        stranger.control(&end);
        match again {
            true => stranger.control(&end),
            false => stranger.data(4, b"more", 4),
        }
        // Nothing but that the rest is never sent shows the second one.
        while socket.send(b"x", Patience::OfSocket).is_ok() {
            thread::yield_now();
        }
        assert_eq!(read(&socket, 4), b"last");
        assert_eq!(
            socket
                .receive(&mut [0; 4], Amount::Some, Patience::OfSocket)
                .unwrap(),
            0
        );
        assert_eq!(errno(socket.send(b"x", Patience::OfSocket)), libc_errno::EPIPE);
    }
}

#[test]
fn a_table_full_of_nonsense_leads_nowhere() {
    let (socket, stranger) = attacked();
    let remote = stranger.victim.table;
    stranger.post(SendOp::Write { remote, imm: None }, &[0xff; 64]);
    assert_eq!(
        errno(socket.write_direct(b"x", 0, Patience::OfSocket)),
        libc_errno::EFAULT
    );
    // An entry for memory that the stranger does not have: its own card refuses.
    let mut entry = [0; 32];
    entry[16..24].copy_from_slice(&u64::MAX.to_be_bytes());
    entry[31] = 1;
    stranger.post(SendOp::Write { remote, imm: None }, &entry);
    socket.write_direct(b"x", 0, Patience::OfSocket).unwrap();
    wait_for(&socket, |ready| ready.error);
    assert_eq!(
        errno(socket.send(b"x", Patience::OfSocket)),
        libc_errno::ECONNRESET
    );
}

#[test]
fn a_flood_of_control_messages_changes_nothing() {
    let (socket, stranger) = attacked();
    let nothing = Control::Credit(Credit::default()).to_bytes();
    thread::scope(|scope| {
        // Those beyond the receives wait at the stranger's card until the socket looks.
        scope.spawn(|| {
            (0..200).for_each(|_| stranger.control(&nothing));
            stranger.data(0, b"after", 5);
        });
        assert_eq!(read(&socket, 5), b"after");
    });
}
