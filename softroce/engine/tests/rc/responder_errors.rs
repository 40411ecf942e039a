//! The responder error table, row by row: what the peer is told, what the owner is told, what stays untouched.

use roce_wire::{Ieth, NakCode, Opcode, RKey, Syndrome};
use softroce_engine::{Cause, Refusal};
use verbs_api::{Access, EventKind, QpState, RemoteAddr, WcStatus};

use crate::node::{BAD_RKEY, Connection, MEMORY_BYTES};
use crate::raw::Raw;

const PSN: u32 = 0xab_cdef;

/// What a fault must lead to.
struct Expected {
    nak: Option<NakCode>,
    receive: Option<WcStatus>,
    event: Option<EventKind>,
}

const INVALID: Option<NakCode> = Some(NakCode::InvalidRequest);
const ACCESS: Option<NakCode> = Some(NakCode::RemoteAccess);
/// Refused without a receive request in use.
const REQUEST_ERROR: Expected = Expected {
    nak: INVALID,
    receive: None,
    event: Some(EventKind::QpReqErr),
};
const ACCESS_ERROR: Expected = Expected {
    nak: ACCESS,
    receive: None,
    event: Some(EventKind::QpAccessErr),
};

fn refused_in_use(status: WcStatus, nak: NakCode) -> Expected {
    Expected {
        nak: Some(nak),
        receive: Some(status),
        event: None,
    }
}

/// Two receive requests of 2 KiB are posted; `stimulus` starts at PSN and ends with the bad packet, whose PSN it says.
fn check(name: &str, connection: Connection, expected: &Expected, stimulus: impl FnOnce(&mut Raw) -> u32) {
    let mut raw = Raw::with(connection);
    raw.node.write(0, &vec![0xee; 65_536]);
    for wr_id in [50, 51] {
        let sge = raw.node.sge(16_384, 2048);
        raw.node.recv(raw.now, raw.qpn, wr_id, &[sge]);
    }
    let bad_psn = stimulus(&mut raw);
    let sent: Vec<_> = raw.sent();
    let naks: Vec<_> = sent
        .iter()
        .filter(|packet| packet.opcode() == Opcode::RC_ACKNOWLEDGE)
        .collect();
    match expected.nak {
        Some(code) => {
            let (psn, syndrome, _) = naks.last().unwrap_or_else(|| panic!("{name}: no NAK")).ack();
            assert_eq!((psn, syndrome), (bad_psn, Syndrome::Nak(code)), "{name}");
        }
        None => assert!(naks.is_empty(), "{name}: {naks:?}"),
    }
    assert_eq!(raw.state(), QpState::Err, "{name}");
    let outcomes = raw.node.outcomes();
    let first = expected.receive.unwrap_or(WcStatus::WrFlushErr);
    assert_eq!(outcomes, [(50, first), (51, WcStatus::WrFlushErr)], "{name}");
    assert_eq!(
        raw.node.qp_events(),
        expected.event.into_iter().collect::<Vec<_>>(),
        "{name}"
    );
    // Why, in words, once.
    let told: Vec<_> = std::iter::from_fn(|| raw.node.engine.poll_failure()).collect();
    let refusals: Vec<_> = told
        .iter()
        .filter(|failure| matches!(failure.cause, Cause::Refused(_)))
        .collect();
    assert_eq!(refusals.len(), 1, "{name}: {told:?}");
    assert_eq!((refusals[0].psn, refusals[0].qpn), (bad_psn, raw.qpn), "{name}");
    // In ERR it is silent, whatever comes.
    raw.plain(Opcode::RC_SEND_ONLY, bad_psn, b"again");
    raw.plain(Opcode::RC_SEND_ONLY, bad_psn + 1, b"more");
    raw.assert_silent();
    assert_eq!(raw.node.completions(), [], "{name}");
}

fn plain() -> Connection {
    Connection::default()
}

fn without(access: Access) -> Connection {
    let connection = Connection::default();
    Connection {
        access: connection.access.difference(access),
        ..connection
    }
}

#[test]
fn opcodes_out_of_sequence() {
    check("middle first", plain(), &REQUEST_ERROR, |raw| {
        raw.plain(Opcode::RC_SEND_MIDDLE, PSN, &[0; 1024]);
        PSN
    });
    check("last first", plain(), &REQUEST_ERROR, |raw| {
        raw.plain(Opcode::RC_WRITE_LAST, PSN, &[0; 10]);
        PSN
    });
    let in_use = refused_in_use(WcStatus::RemInvReqErr, NakCode::InvalidRequest);
    check("a WRITE in a SEND", plain(), &in_use, |raw| {
        let target = raw.node.remote(0);
        raw.plain(Opcode::RC_SEND_FIRST, PSN, &[0; 1024]);
        raw.write(Opcode::RC_WRITE_ONLY, PSN + 1, target, 1, b"x");
        assert_eq!(raw.node.read(0, 1), [0xee]);
        PSN + 1
    });
    check("a READ in a SEND", plain(), &in_use, |raw| {
        let target = raw.node.remote(0);
        raw.plain(Opcode::RC_SEND_FIRST, PSN, &[0; 1024]);
        raw.read_request(PSN + 1, target, 1);
        PSN + 1
    });
    check("a SEND in a SEND", plain(), &in_use, |raw| {
        raw.plain(Opcode::RC_SEND_FIRST, PSN, &[0; 1024]);
        raw.plain(Opcode::RC_SEND_FIRST, PSN + 1, &[0; 1024]);
        PSN + 1
    });
    check("a SEND's last in a WRITE", plain(), &REQUEST_ERROR, |raw| {
        let target = raw.node.remote(0);
        raw.write(Opcode::RC_WRITE_FIRST, PSN, target, 2000, &[0; 1024]);
        raw.plain(Opcode::RC_SEND_LAST, PSN + 1, &[0; 976]);
        PSN + 1
    });
}

#[test]
fn reserved_opcodes() {
    for value in [0x15, 0x18, 0x1b, 0x1e, 0x1f] {
        check("reserved", plain(), &REQUEST_ERROR, |raw| {
            raw.plain(Opcode::new(value), PSN, &[]);
            PSN
        });
    }
}

#[test]
fn operations_that_the_queue_pair_does_not_permit() {
    check("write", without(Access::REMOTE_WRITE), &REQUEST_ERROR, |raw| {
        let target = raw.node.remote(0);
        raw.write(Opcode::RC_WRITE_ONLY, PSN, target, 1, b"x");
        PSN
    });
    check("read", without(Access::REMOTE_READ), &REQUEST_ERROR, |raw| {
        let target = raw.node.remote(0);
        raw.read_request(PSN, target, 1);
        PSN
    });
    check("atomic", without(Access::REMOTE_ATOMIC), &REQUEST_ERROR, |raw| {
        let target = raw.node.remote(0);
        raw.atomic(Opcode::RC_FETCH_ADD, PSN, target, 1, 0);
        PSN
    });
}

#[test]
fn payload_lengths_and_padding() {
    let in_use = refused_in_use(WcStatus::RemInvReqErr, NakCode::InvalidRequest);
    let first = |opcode: Opcode, len: usize| {
        move |raw: &mut Raw| {
            raw.plain(opcode, PSN, &vec![0; len]);
            PSN
        }
    };
    check(
        "short first",
        plain(),
        &in_use,
        first(Opcode::RC_SEND_FIRST, 1020),
    );
    check("long first", plain(), &in_use, first(Opcode::RC_SEND_FIRST, 1028));
    check("long only", plain(), &in_use, first(Opcode::RC_SEND_ONLY, 1028));
    let second = |opcode: Opcode, len: usize| {
        move |raw: &mut Raw| {
            raw.plain(Opcode::RC_SEND_FIRST, PSN, &[0; 1024]);
            raw.plain(opcode, PSN + 1, &vec![0; len]);
            PSN + 1
        }
    };
    check(
        "short middle",
        plain(),
        &in_use,
        second(Opcode::RC_SEND_MIDDLE, 1020),
    );
    check("empty last", plain(), &in_use, second(Opcode::RC_SEND_LAST, 0));
    check("long last", plain(), &in_use, second(Opcode::RC_SEND_LAST, 1028));
    check("needless pad", plain(), &in_use, |raw| {
        let mut headers = raw.headers(Opcode::RC_SEND_ONLY, PSN);
        headers.bth.pad = 3;
        let bytes = raw.packet_as_is(headers, &[0; 8]);
        raw.inject_bytes(&bytes);
        PSN
    });
    check("read with payload", plain(), &REQUEST_ERROR, |raw| {
        let source = raw.node.remote(0);
        let headers = raw.with_reth(Opcode::RC_READ_REQUEST, PSN, source, 4);
        raw.inject(headers, &[0; 4]);
        PSN
    });
}

#[test]
fn dma_lengths() {
    check("above 2^31", plain(), &REQUEST_ERROR, |raw| {
        let source = raw.node.remote(0);
        raw.read_request(PSN, source, (1 << 31) + 1);
        PSN
    });
    for (length, payload) in [(5, 4), (3, 4)] {
        check("only differs", plain(), &REQUEST_ERROR, |raw| {
            let target = raw.node.remote(0);
            raw.write(Opcode::RC_WRITE_ONLY, PSN, target, length, &vec![0; payload]);
            assert_eq!(raw.node.read(0, 8), [0xee; 8]);
            PSN
        });
    }
    for length in [2047, 2049] {
        check("last differs", plain(), &REQUEST_ERROR, |raw| {
            let target = raw.node.remote(0);
            raw.write(Opcode::RC_WRITE_FIRST, PSN, target, length, &[0; 1024]);
            raw.plain(Opcode::RC_WRITE_LAST, PSN + 1, &[0; 1024]);
            assert_eq!(raw.node.read(1024, 1024), [0xee; 1024]);
            PSN + 1
        });
    }
    check("first is all", plain(), &REQUEST_ERROR, |raw| {
        let target = raw.node.remote(0);
        raw.write(Opcode::RC_WRITE_FIRST, PSN, target, 1024, &[0; 1024]);
        PSN
    });
}

#[test]
fn a_send_longer_than_the_receive_request() {
    let too_small = refused_in_use(WcStatus::LocLenErr, NakCode::InvalidRequest);
    check("too long", plain(), &too_small, |raw| {
        raw.plain(Opcode::RC_SEND_FIRST, PSN, &[1; 1024]);
        raw.plain(Opcode::RC_SEND_MIDDLE, PSN + 1, &[2; 1024]);
        raw.plain(Opcode::RC_SEND_LAST, PSN + 2, &[3; 4]);
        assert_eq!(raw.node.read(16_384 + 2048, 4), [0xee; 4]);
        PSN + 2
    });
}

#[test]
fn a_receive_request_whose_memory_cannot_be_written() {
    let broken = Expected {
        nak: Some(NakCode::RemoteOperational),
        receive: Some(WcStatus::LocProtErr),
        event: None,
    };
    check("deregistered", plain(), &broken, |raw| {
        raw.node.engine.dereg_mr(raw.node.mr.id).unwrap();
        raw.plain(Opcode::RC_SEND_ONLY, PSN, b"x");
        PSN
    });
}

#[test]
fn remote_keys_domains_rights_and_bounds() {
    let whole = MEMORY_BYTES as u64;
    let write = |offset: u64, length: u32| {
        move |raw: &mut Raw| {
            let target = RemoteAddr {
                addr: raw.node.address(0).wrapping_add(offset),
                rkey: raw.node.mr.rkey,
            };
            raw.write(
                Opcode::RC_WRITE_ONLY,
                PSN,
                target,
                length,
                &vec![0; length as usize],
            );
            PSN
        }
    };
    check("one before", plain(), &ACCESS_ERROR, write(u64::MAX, 1));
    check("one over the end", plain(), &ACCESS_ERROR, write(whole - 1, 2));
    check("behind the end", plain(), &ACCESS_ERROR, write(whole, 1));
    check("wraps around", plain(), &ACCESS_ERROR, |raw| {
        let target = RemoteAddr {
            addr: u64::MAX,
            rkey: raw.node.mr.rkey,
        };
        raw.write(Opcode::RC_WRITE_ONLY, PSN, target, 8, &[0; 8]);
        PSN
    });
    let key = |change: fn(u32) -> u32| {
        move |raw: &mut Raw| {
            let target = RemoteAddr {
                addr: raw.node.address(0),
                rkey: verbs_api::RKey(change(raw.node.mr.rkey.0)),
            };
            raw.write(Opcode::RC_WRITE_ONLY, PSN, target, 1, b"x");
            assert_eq!(raw.node.read(0, 1), [0xee]);
            PSN
        }
    };
    check("other tag", plain(), &ACCESS_ERROR, key(|rkey| rkey ^ 1));
    check("other index", plain(), &ACCESS_ERROR, key(|rkey| rkey ^ 0x100));
    check("zero", plain(), &ACCESS_ERROR, key(|_| 0));
    check("read of a bad key", plain(), &ACCESS_ERROR, |raw| {
        raw.read_request(
            PSN,
            RemoteAddr {
                addr: 0,
                rkey: BAD_RKEY,
            },
            1,
        );
        PSN
    });
    check("atomic on the last four bytes", plain(), &ACCESS_ERROR, |raw| {
        let target = RemoteAddr {
            addr: raw.node.address(MEMORY_BYTES),
            rkey: raw.node.mr.rkey,
        };
        raw.atomic(Opcode::RC_FETCH_ADD, PSN, target, 1, 0);
        PSN
    });
    check("another domain", plain(), &ACCESS_ERROR, |raw| {
        let pd = raw.node.engine.alloc_pd().unwrap();
        // SAFETY: the same memory as the node's own region.
        let mr = unsafe {
            raw.node.engine.reg_mr(
                pd,
                raw.node.address(0) as *mut u8,
                64,
                0,
                crate::node::all_access(),
            )
        }
        .unwrap();
        raw.read_request(
            PSN,
            RemoteAddr {
                addr: 0,
                rkey: mr.rkey,
            },
            1,
        );
        PSN
    });
    check("a region without the right", plain(), &ACCESS_ERROR, |raw| {
        let pd = raw.node.pd;
        // SAFETY: as above.
        let mr = unsafe {
            raw.node
                .engine
                .reg_mr(pd, raw.node.address(0) as *mut u8, 64, 0, Access::LOCAL_WRITE)
        }
        .unwrap();
        raw.read_request(
            PSN,
            RemoteAddr {
                addr: 0,
                rkey: mr.rkey,
            },
            1,
        );
        PSN
    });
}

#[test]
fn a_write_with_immediate_and_a_bad_key_fails_its_receive_request() {
    let expected = refused_in_use(WcStatus::LocAccessErr, NakCode::RemoteAccess);
    check("imm", plain(), &expected, |raw| {
        let target = RemoteAddr {
            addr: raw.node.address(0),
            rkey: BAD_RKEY,
        };
        raw.write(Opcode::RC_WRITE_ONLY_WITH_IMMEDIATE, PSN, target, 1, b"x");
        PSN
    });
}

#[test]
fn the_exact_end_of_a_region_is_inside() {
    let mut raw = Raw::new();
    let target = RemoteAddr {
        addr: raw.node.address(MEMORY_BYTES - 8),
        rkey: raw.node.mr.rkey,
    };
    raw.write(Opcode::RC_WRITE_ONLY, PSN, target, 8, &[7; 8]);
    assert_eq!(raw.sent_one().ack(), (PSN, Syndrome::ACK, 1));
    assert_eq!(raw.node.read(MEMORY_BYTES - 8, 8), [7; 8]);
}

#[test]
fn misaligned_atomics_even_with_a_bad_key() {
    for offset in 1..8 {
        check("misaligned", plain(), &REQUEST_ERROR, |raw| {
            let target = RemoteAddr {
                addr: raw.node.address(offset),
                rkey: raw.node.mr.rkey,
            };
            raw.atomic(Opcode::RC_COMPARE_SWAP, PSN, target, 1, 0);
            assert_eq!(raw.node.read(0, 16), [0xee; 16]);
            PSN
        });
    }
    check("both", plain(), &REQUEST_ERROR, |raw| {
        raw.atomic(
            Opcode::RC_FETCH_ADD,
            PSN,
            RemoteAddr {
                addr: 3,
                rkey: BAD_RKEY,
            },
            1,
            0,
        );
        PSN
    });
}

#[test]
fn more_reads_than_agreed() {
    let one = Connection {
        max_dest_rd_atomic: 1,
        ..plain()
    };
    check("two", one, &REQUEST_ERROR, |raw| {
        let source = raw.node.remote(0);
        raw.read_request(PSN, source, 2048);
        raw.read_request(PSN + 2, source, 8);
        PSN + 2
    });
    let none = Connection {
        max_dest_rd_atomic: 0,
        ..plain()
    };
    check("none", none, &REQUEST_ERROR, |raw| {
        let source = raw.node.remote(0);
        raw.read_request(PSN, source, 8);
        PSN
    });
}

#[test]
fn a_key_that_cannot_be_invalidated_is_told_to_nobody_but_the_owner() {
    let expected = Expected {
        nak: None,
        receive: Some(WcStatus::RemInvReqErr),
        event: None,
    };
    check("class J", plain(), &expected, |raw| {
        let mut headers = raw.headers(Opcode::RC_SEND_ONLY_WITH_INVALIDATE, PSN);
        headers.invalidate = Some(Ieth(RKey(raw.node.mr.rkey.0)));
        raw.inject(headers, b"x");
        PSN
    });
}

#[test]
fn a_region_that_goes_in_the_middle_of_a_read_ends_it_with_a_nak() {
    let mut raw = Raw::new();
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 200 * 1024);
    let mut batch = softroce_engine::TxBatch::new(5_000, 4);
    assert!(
        raw.node
            .engine
            .poll_transmit(raw.now, &mut batch, softroce_engine::Acks::Flush)
    );
    assert_eq!(batch.packets().len(), 4);
    raw.node.engine.dereg_mr(raw.node.mr.id).unwrap();
    let nak = raw.sent_one();
    assert_eq!(nak.ack(), (PSN + 4, Syndrome::Nak(NakCode::RemoteAccess), 1));
    assert_eq!(raw.state(), QpState::Err);
    assert_eq!(raw.node.qp_events(), [EventKind::QpAccessErr]);
}

#[test]
fn the_words_name_lengths_and_keys() {
    let mut raw = Raw::with(plain());
    let sge = raw.node.sge(0, 100);
    raw.node.recv(raw.now, raw.qpn, 50, &[sge]);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, &[0; 101]);
    let failure = raw.node.engine.poll_failure().unwrap();
    let told = Refusal::TooLong {
        message: 101,
        receive: 100,
    };
    assert_eq!(failure.cause, Cause::Refused(told));
    assert!(
        failure
            .to_string()
            .starts_with("a message is longer than its receive: at least 101 bytes from "),
        "{failure}"
    );
    let mut raw = Raw::with(plain());
    let target = RemoteAddr {
        addr: raw.node.address(0),
        rkey: BAD_RKEY,
    };
    raw.write(Opcode::RC_WRITE_ONLY, PSN, target, 1, b"x");
    let failure = raw.node.engine.poll_failure().unwrap();
    assert!(failure.to_string().starts_with("wrong rkey"), "{failure}");
}
