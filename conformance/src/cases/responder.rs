//! The responder, against a requester that the case plays packet by packet.

use std::time::Duration;

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use verbs_api::{Access, Mtu, QpState, RemoteAddr, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::raw::{RawPeer, immediate, reth};
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};
use crate::{check, same};

const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);
const OUT_OF_SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
const SHORT: Duration = Duration::from_millis(2);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "A2",
            "a packet with a wrong ICRC is dropped in silence",
            &["CORRUPT-1"],
            wrong_icrc,
        ),
        Case::raw_peer(
            "A10",
            "another transport version is dropped in silence",
            &["HDR-1"],
            transport_version,
        ),
        Case::raw_peer(
            "A11",
            "packets to unknown queue pairs are dropped in silence",
            &["HDR-2"],
            unknown_qp,
        ),
        Case::raw_peer(
            "A12",
            "a foreign partition is dropped in silence",
            &["HDR-3"],
            partition,
        ),
        Case::raw_peer(
            "A13",
            "packets of other transports are dropped in silence",
            &["HDR-4"],
            other_transports,
        ),
        Case::raw_peer(
            "A15",
            "packets that are cut off are dropped in silence",
            &["HDR-5"],
            cut_off,
        ),
        Case::raw_peer(
            "F1",
            "a gap is answered by one NAK until it is filled, then by another one",
            &["NAK-1", "NAK-2"],
            gaps,
        ),
        Case::raw_peer(
            "F4",
            "a repeated SEND is not delivered again but acknowledged",
            &["DUP-1"],
            repeated_send,
        ),
        Case::raw_peer(
            "F5",
            "a repeated WRITE changes nothing",
            &["DUP-1"],
            repeated_write,
        ),
        Case::raw_peer(
            "F7",
            "a repeated READ is answered again, in whole or from a later packet on",
            &["DUP-2"],
            repeated_read,
        ),
        Case::raw_peer(
            "F8",
            "a repeated READ beyond the first one's range gets no answer",
            &["DUP-4"],
            repeated_read_beyond,
        ),
        Case::raw_peer(
            "F10",
            "a repeated atomic gets the first answer and is not done again",
            &["DUP-3"],
            repeated_atomic,
        )
        .needing(&[Need::Network, Need::Atomics]),
        Case::raw_peer(
            "F13",
            "a SEND without a receive gets an RNR NAK with the timer set",
            &["RNR-4"],
            rnr_nak,
        ),
        Case::raw_peer(
            "F14",
            "only the packet with the immediate needs the receive",
            &["IMM-2", "RNR-4"],
            rnr_on_last,
        ),
        Case::raw_peer(
            "F17",
            "a wrong order of opcodes is an invalid request",
            &["OPSEQ-1"],
            wrong_order,
        ),
        Case::raw_peer(
            "F19",
            "a wrong payload length is an invalid request",
            &["LENGTH-2"],
            wrong_lengths,
        ),
        Case::raw_peer(
            "F30",
            "a WRITE that is longer or shorter than announced is an invalid request",
            &["LENGTH-3"],
            wrong_total,
        ),
        Case::raw_peer(
            "F34",
            "more READs than the responder has room for are an invalid request",
            &["RDATOMIC-2"],
            too_many_reads,
        ),
        Case::raw_peer(
            "F36",
            "after a fatal NAK there is silence",
            &["NAK-4"],
            silence_after_nak,
        ),
        Case::raw_peer(
            "F37",
            "packets without AckReq need no acknowledgement, one covers all",
            &["ACK-1"],
            coalesced,
        ),
        Case::raw_peer(
            "F40",
            "responses come in the order of the requests",
            &["ORDER-2"],
            ordered_responses,
        ),
        Case::raw_peer(
            "F46",
            "MSN counts messages, not packets, and no repetitions",
            &["MSN-1"],
            message_numbers,
        ),
        Case::raw_peer(
            "F47",
            "after an RNR NAK there is silence until the refused packet comes",
            &["RNR-5"],
            silence_after_rnr,
        ),
    ]
}

fn setup() -> Setup {
    Setup {
        mtu: Mtu::Mtu256,
        ..Setup::default()
    }
}

/// Nothing comes of it: no reply, no completion, no change; the next good packet is served.
fn ignored<B: Testbed>(scene: &mut Scene<B>, peer: &mut RawPeer<B>, what: &str) -> CaseResult {
    peer.silence(scene, SHORT)
        .and_then(|()| scene.quiet(&[&peer.node.recv_cq, &peer.node.send_cq], Duration::ZERO))
        .and_then(|()| peer.node.is_in(QpState::Rts))
        .map_err(|e| e.during(what))
}

fn wrong_icrc<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let mut bytes = Vec::new();
    let mut headers = roce_wire::Headers::new(peer.bth(Opcode::RC_SEND_ONLY, peer.peer_psn(0)));
    headers.bth.ack_request = true;
    bytes.resize(headers.len(), 0);
    check!(
        headers.emit(&mut bytes).is_ok(),
        "the headers of a SEND can be written"
    );
    bytes.extend_from_slice(b"eight by");
    for icrc in [[0u8; 4], [0xff; 4], [1, 2, 3, 4]] {
        let packet = [bytes.as_slice(), &icrc].concat();
        scene.network().inject_raw(crate::testbed::Side::Left, &packet);
        ignored(scene, &mut peer, "a wrong ICRC")?;
    }
    same_bytes("memory", &sink.buffer.to_vec(0..64), &[0; 64])?;
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn transport_version<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    // Headers as values know version 0 only; the others are set in the bytes.
    for version in [1u8, 7, 15] {
        let mut headers = roce_wire::Headers::new(peer.bth(Opcode::RC_WRITE_ONLY, peer.peer_psn(0)));
        headers.reth = Some(reth(RemoteAddr::default(), 0));
        let mut bytes = vec![0; headers.len() + 4];
        check!(
            headers.emit(&mut bytes).is_ok(),
            "the headers of a WRITE can be written"
        );
        bytes[1] |= version;
        scene.network().inject_sealed(crate::testbed::Side::Left, &bytes);
        ignored(scene, &mut peer, "another transport version")?;
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn unknown_qp<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.endpoint.qpn;
    for qpn in [0u32, 1, 2, own ^ 1, own ^ 0x80_0000, 0xff_ffff] {
        peer.send(scene, Opcode::RC_WRITE_ONLY, peer.peer_psn(0), &[], |headers| {
            headers.reth = Some(reth(RemoteAddr::default(), 0));
            headers.bth.dest_qp = roce_wire::Qpn::new(qpn).unwrap_or(roce_wire::Qpn::GSI);
        });
        scene.rest(SHORT);
        let trace = scene.network().take_trace();
        check!(
            trace.is_empty(),
            "a packet to queue pair {qpn:#x} got the reply {:?}",
            trace[0].headers.bth
        );
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn partition<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    for pkey in [0u16, 0x8001, 0x0001, 0x8000, 0xfffe] {
        let psn = peer.peer_psn(0);
        peer.send(scene, Opcode::RC_WRITE_ONLY, psn, &[], |headers| {
            headers.reth = Some(reth(RemoteAddr::default(), 0));
            headers.bth.pkey = roce_wire::PKey(pkey);
        });
        ignored(scene, &mut peer, &format!("P_Key {pkey:#06x}"))?;
    }
    // A limited member of our own partition may talk to us, who are a full one.
    let psn = peer.peer_psn(0);
    peer.send(scene, Opcode::RC_WRITE_ONLY, psn, &[], |headers| {
        headers.reth = Some(reth(RemoteAddr::default(), 0));
        headers.bth.pkey = roce_wire::PKey(0x7fff);
    });
    peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    Ok(())
}

fn other_transports<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    for opcode in [Opcode::UC_SEND_ONLY, Opcode::UD_SEND_ONLY] {
        let psn = peer.peer_psn(0);
        peer.send(scene, opcode, psn, &[0; 8], |headers| {
            headers.deth = Some(roce_wire::Deth {
                qkey: roce_wire::QKey(0),
                source_qp: roce_wire::Qpn::GSI,
            });
        });
        ignored(scene, &mut peer, "another transport")?;
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn cut_off<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let mut headers = roce_wire::Headers::new(peer.bth(Opcode::RC_WRITE_ONLY, peer.peer_psn(0)));
    headers.reth = Some(reth(RemoteAddr::default(), 0));
    let mut bytes = vec![0; headers.len() + 4];
    check!(
        headers.emit(&mut bytes).is_ok(),
        "the headers of a WRITE can be written"
    );
    for length in 0..bytes.len() {
        if length >= 16 {
            scene
                .network()
                .inject_sealed(crate::testbed::Side::Left, &bytes[..length]);
        } else {
            scene
                .network()
                .inject_raw(crate::testbed::Side::Left, &bytes[..length]);
        }
        ignored(scene, &mut peer, &format!("the first {length} bytes of a WRITE"))?;
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn gaps<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let mut next = 0;
    for _ in 0..3 {
        let expected = peer.peer_psn(next);
        for ahead in [1, 2, 5] {
            let psn = peer.peer_psn(next + ahead);
            peer.write_only(scene, psn, RemoteAddr::default(), &[]);
        }
        peer.expect_aeth(scene, expected, OUT_OF_SEQUENCE)?;
        peer.silence(scene, SHORT)
            .map_err(|e| e.during("one NAK is enough"))?;
        peer.still_serves(scene, expected)?;
        next += 1;
    }
    Ok(())
}

fn repeated_send<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(128, full_access())?;
    peer.node.recv(1, &[sink.sge(0..64)])?;
    peer.node.recv(2, &[sink.sge(64..128)])?;
    let psn = peer.peer_psn(0);
    peer.send_only(scene, psn, b"once");
    peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    for _ in 0..3 {
        peer.send_only(scene, psn, b"more");
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    }
    scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    scene.quiet(&[&peer.node.recv_cq], SHORT)?;
    same_bytes("the receive", &sink.buffer.to_vec(0..4), b"once")?;
    let psn = peer.peer_psn(1);
    peer.still_serves(scene, psn)
}

fn repeated_write<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, full_access())?;
    for (n, bytes) in [(0, b"aaaa"), (1, b"bbbb")] {
        let psn = peer.peer_psn(n);
        peer.write_only(scene, psn, far.remote(0), bytes);
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    }
    let (old, latest) = (peer.peer_psn(0), peer.peer_psn(1));
    peer.write_only(scene, old, far.remote(0), b"cccc");
    peer.expect_aeth(scene, latest, Syndrome::ACK)
        .map_err(|e| e.during("the answer to a repetition carries the latest PSN"))?;
    same_bytes("memory", &far.buffer.to_vec(0..4), b"bbbb")?;
    let psn = peer.peer_psn(2);
    peer.still_serves(scene, psn)
}

/// The responses to a READ of `packets` packets from PSN `first` on; their payload.
fn read_answer<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    first: u32,
    packets: u32,
) -> Result<Vec<u8>, crate::Failure> {
    let mut bytes = Vec::new();
    for n in 0..packets {
        let opcode = match (n, packets) {
            (0, 1) => Opcode::RC_READ_RESPONSE_ONLY,
            (0, _) => Opcode::RC_READ_RESPONSE_FIRST,
            (n, _) if n + 1 == packets => Opcode::RC_READ_RESPONSE_LAST,
            _ => Opcode::RC_READ_RESPONSE_MIDDLE,
        };
        let psn = peer.peer_psn(first + n);
        bytes.extend(peer.expect(scene, opcode, psn)?.payload);
    }
    Ok(bytes)
}

fn repeated_read<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(1000, full_access())?;
    far.scribble(1);
    let whole = far.buffer.to_vec(0..1000);
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(0), 1000);
    same_bytes("first answer", &read_answer(scene, &mut peer, 0, 4)?, &whole)?;
    peer.read_request(scene, psn, far.remote(0), 1000);
    same_bytes("second answer", &read_answer(scene, &mut peer, 0, 4)?, &whole)?;
    for skipped in 1..4u32 {
        let start = 256 * skipped as usize;
        let psn = peer.peer_psn(skipped);
        peer.read_request(scene, psn, far.remote(start), 1000 - start as u32);
        let answer = read_answer(scene, &mut peer, skipped, 4 - skipped)?;
        same_bytes(
            &format!("answer from packet {skipped} on"),
            &answer,
            &whole[start..],
        )?;
    }
    let psn = peer.peer_psn(4);
    peer.still_serves(scene, psn)
}

fn repeated_read_beyond<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let (far, other) = (
        peer.node.region(4096, full_access())?,
        peer.node.region(4096, full_access())?,
    );
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(256), 512);
    read_answer(scene, &mut peer, 0, 2)?;
    for (remote, length, what) in [
        (far.remote(256), 1024, "longer"),
        (far.remote(0), 512, "starting before"),
        (far.remote(2048), 512, "elsewhere"),
        (other.remote(256), 512, "another region"),
    ] {
        peer.read_request(scene, psn, remote, length);
        ignored(scene, &mut peer, what)?;
    }
    let psn = peer.peer_psn(2);
    peer.still_serves(scene, psn)
}

fn repeated_atomic<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(8, full_access())?;
    far.buffer.store_u64(0, 100);
    for n in 0..4u32 {
        let psn = peer.peer_psn(n);
        peer.fetch_add(scene, psn, far.remote(0), 5);
        let first = peer.expect(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn)?;
        same!(
            first.headers.atomic_ack.map(|a| a.original),
            Some(100 + 5 * u64::from(n)),
            "answer {n}"
        );
    }
    for n in [3u32, 0, 2, 2, 1] {
        let psn = peer.peer_psn(n);
        peer.fetch_add(scene, psn, far.remote(0), 5);
        let again = peer.expect(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn)?;
        same!(
            again.headers.atomic_ack.map(|a| a.original),
            Some(100 + 5 * u64::from(n)),
            "repeated answer {n}"
        );
    }
    same!(
        far.buffer.load_u64(0),
        120,
        "value after four atomics and five repetitions"
    );
    let psn = peer.peer_psn(4);
    peer.still_serves(scene, psn)
}

fn rnr_nak<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for code in 0..32u8 {
        let mut peer = scene.raw_peer(&Setup {
            min_rnr_timer: code,
            ..setup()
        })?;
        let sink = peer.node.region(64, full_access())?;
        let psn = peer.peer_psn(0);
        let Some(timer) = RnrTimer::new(code) else {
            continue;
        };
        for _ in 0..2 {
            peer.send_only(scene, psn, b"anybody?");
            peer.expect_aeth(scene, psn, Syndrome::RnrNak(timer))
                .map_err(|e| e.during(format!("code {code}")))?;
        }
        peer.node.recv(1, &[sink.whole()])?;
        peer.send_only(scene, psn, b"anybody?");
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
        scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    }
    Ok(())
}

fn rnr_on_last<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(520, full_access())?;
    let bytes = pattern(4, 520);
    let total = reth(far.remote(0), 520);
    let (first, middle, last) = (peer.peer_psn(0), peer.peer_psn(1), peer.peer_psn(2));
    peer.send(scene, Opcode::RC_WRITE_FIRST, first, &bytes[..256], |h| {
        h.reth = Some(total);
        h.bth.ack_request = false;
    });
    peer.send(scene, Opcode::RC_WRITE_MIDDLE, middle, &bytes[256..512], |h| {
        h.bth.ack_request = false
    });
    let send_last = |scene: &mut Scene<B>, peer: &RawPeer<B>| {
        peer.send(
            scene,
            Opcode::RC_WRITE_LAST_WITH_IMMEDIATE,
            last,
            &bytes[512..],
            |h| h.immediate = Some(immediate(9)),
        );
    };
    send_last(scene, &peer);
    let timer = RnrTimer::new(12).ok_or_else(|| crate::Failure::new("RNR timer code 12"))?;
    // Acknowledgements of the first two packets may come before.
    loop {
        let packet = peer.next(scene)?;
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) => check!(
                packet.headers.bth.psn != last,
                "the last packet was acknowledged without a receive"
            ),
            Some(Syndrome::RnrNak(seen)) => {
                same!((seen, packet.headers.bth.psn), (timer, last), "RNR NAK");
                break;
            }
            other => {
                return Err(crate::Failure::new(format!(
                    "expected an RNR NAK, seen {other:?}"
                )));
            }
        }
    }
    peer.node.recv(1, &[])?;
    send_last(scene, &peer);
    peer.expect_aeth(scene, last, Syndrome::ACK)?;
    let wc = scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same!((wc.immediate(), wc.byte_len), (Some(9), 520), "receive");
    same_bytes("memory", &far.buffer.to_vec(0..520), &bytes)
}

/// Send packets; the last of them must be refused with `syndrome` and end the queue pair.
fn fatal<B: Testbed>(
    scene: &mut Scene<B>,
    what: &str,
    packets: &[(Opcode, usize)],
    total: u32,
    syndrome: Syndrome,
) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(4096, full_access())?;
    peer.node.recv(1, &[far.sge(2048..4096)])?;
    let mut last = peer.peer_psn(0);
    for (n, (opcode, length)) in packets.iter().enumerate() {
        last = peer.peer_psn(n as u32);
        peer.send(scene, *opcode, last, &vec![0xAA; *length], |h| {
            h.reth = Some(reth(far.remote(0), total));
            h.immediate = Some(immediate(1));
            h.bth.ack_request = n + 1 == packets.len();
        });
    }
    // Earlier packets may be acknowledged first.
    let verdict = loop {
        let packet = peer.next(scene).map_err(|e| e.during(what))?;
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) if packet.headers.bth.psn != last => {}
            seen => break (seen, packet.headers.bth.psn),
        }
    };
    same!(verdict, (Some(syndrome), last), "answer to {what}");
    peer.node.is_in(QpState::Err).map_err(|e| e.during(what))?;
    let beyond = far.buffer.to_vec(1024..2048);
    same_bytes(&format!("memory behind, {what}"), &beyond, &vec![0; beyond.len()])
}

fn wrong_order<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let table: [(&str, &[(Opcode, usize)]); 9] = [
        ("SEND Middle without First", &[(O::RC_SEND_MIDDLE, 256)]),
        ("SEND Last without First", &[(O::RC_SEND_LAST, 8)]),
        ("WRITE Middle without First", &[(O::RC_WRITE_MIDDLE, 256)]),
        ("WRITE Last without First", &[(O::RC_WRITE_LAST, 8)]),
        (
            "SEND First, WRITE Only",
            &[(O::RC_SEND_FIRST, 256), (O::RC_WRITE_ONLY, 8)],
        ),
        (
            "SEND First, READ request",
            &[(O::RC_SEND_FIRST, 256), (O::RC_READ_REQUEST, 0)],
        ),
        (
            "WRITE First, SEND Last",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_SEND_LAST, 8)],
        ),
        (
            "WRITE First, WRITE First",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_FIRST, 256)],
        ),
        (
            "SEND First, SEND Only",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_ONLY, 8)],
        ),
    ];
    for (what, packets) in table {
        fatal(scene, what, packets, 512, INVALID)?;
    }
    Ok(())
}

fn wrong_lengths<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let table: [(&str, &[(Opcode, usize)]); 8] = [
        ("a short SEND First", &[(O::RC_SEND_FIRST, 252)]),
        ("a long SEND First", &[(O::RC_SEND_FIRST, 260)]),
        (
            "a short SEND Middle",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_MIDDLE, 4)],
        ),
        (
            "an empty SEND Last",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_LAST, 0)],
        ),
        (
            "a long SEND Last",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_LAST, 257)],
        ),
        ("a SEND Only above the path MTU", &[(O::RC_SEND_ONLY, 257)]),
        ("a short WRITE First", &[(O::RC_WRITE_FIRST, 252)]),
        (
            "an empty WRITE Last",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_LAST, 0)],
        ),
    ];
    for (what, packets) in table {
        fatal(scene, what, packets, 512, INVALID)?;
    }
    Ok(())
}

fn wrong_total<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let table: [(&str, &[(Opcode, usize)], u32); 5] = [
        (
            "a WRITE Only longer than announced",
            &[(O::RC_WRITE_ONLY, 100)],
            96,
        ),
        (
            "a WRITE Only shorter than announced",
            &[(O::RC_WRITE_ONLY, 100)],
            104,
        ),
        (
            "a WRITE Last that makes it longer",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_LAST, 100)],
            300,
        ),
        (
            "a WRITE Last that leaves it shorter",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_LAST, 100)],
            400,
        ),
        (
            "a WRITE Middle beyond what was announced",
            &[
                (O::RC_WRITE_FIRST, 256),
                (O::RC_WRITE_MIDDLE, 256),
                (O::RC_WRITE_MIDDLE, 256),
            ],
            600,
        ),
    ];
    for (what, packets, total) in table {
        fatal(scene, what, packets, total, INVALID)?;
    }
    Ok(())
}

fn too_many_reads<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        rd_atomic: 0,
        ..setup()
    })?;
    let far = peer.node.region(64, full_access())?;
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(0), 64);
    peer.expect_aeth(scene, psn, INVALID)?;
    peer.node.is_in(QpState::Err)
}

fn silence_after_nak<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, Access::LOCAL_WRITE)?;
    let psn = peer.peer_psn(0);
    peer.write_only(scene, psn, far.remote(0), b"no entry");
    peer.expect_aeth(scene, psn, Syndrome::Nak(NakCode::RemoteAccess))?;
    for n in 0..3 {
        let psn = peer.peer_psn(n);
        peer.write_only(scene, psn, RemoteAddr::default(), &[]);
        peer.read_request(scene, psn, RemoteAddr::default(), 0);
    }
    peer.silence(scene, SHORT)?;
    peer.node.is_in(QpState::Err)?;
    same_bytes("memory", &far.buffer.to_vec(0..64), &[0; 64])
}

fn coalesced<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, full_access())?;
    for n in 0..100u32 {
        let psn = peer.peer_psn(n);
        peer.send(scene, Opcode::RC_WRITE_ONLY, psn, &[n as u8; 4], |h| {
            h.reth = Some(reth(far.remote(0), 4));
            h.bth.ack_request = n == 99;
        });
    }
    let last = peer.peer_psn(99);
    loop {
        let packet = peer.next(scene)?;
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        check!(
            matches!(syndrome, Some(Syndrome::Ack(_))),
            "seen {syndrome:?}, expected ACKs only"
        );
        if packet.headers.bth.psn == last {
            break;
        }
    }
    peer.silence(scene, SHORT)?;
    same_bytes("memory", &far.buffer.to_vec(0..4), &[99; 4])
}

fn ordered_responses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(1024, full_access())?;
    far.scribble(3);
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let (read, send, second) = (peer.peer_psn(0), peer.peer_psn(4), peer.peer_psn(5));
    peer.read_request(scene, read, far.remote(0), 1024);
    peer.send_only(scene, send, b"behind the READ");
    peer.read_request(scene, second, far.remote(0), 100);
    same_bytes(
        "first answer",
        &read_answer(scene, &mut peer, 0, 4)?,
        &far.buffer.to_vec(0..1024),
    )?;
    // The SEND may be acknowledged on its own or by the second READ's answer.
    let packet = peer.next(scene)?;
    if packet.headers.bth.opcode == Opcode::RC_ACKNOWLEDGE {
        same!(
            packet.headers.bth.psn,
            send,
            "PSN of the acknowledgement between the READs"
        );
        same_bytes(
            "second answer",
            &read_answer(scene, &mut peer, 5, 1)?,
            &far.buffer.to_vec(0..100),
        )?;
    } else {
        let seen = (packet.headers.bth.opcode, packet.headers.bth.psn);
        same!(
            seen,
            (Opcode::RC_READ_RESPONSE_ONLY, second),
            "packet behind the first READ's answer"
        );
    }
    scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    Ok(())
}

fn message_numbers<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(2048, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    peer.node.recv(2, &[sink.whole()])?;
    let mut n = 0;
    for message in 1..=2u32 {
        for opcode in [
            Opcode::RC_SEND_FIRST,
            Opcode::RC_SEND_MIDDLE,
            Opcode::RC_SEND_LAST,
        ] {
            let psn = peer.peer_psn(n);
            peer.send(scene, opcode, psn, &[7; 256], |_| {});
            let msn = peer.expect_aeth(scene, psn, Syndrome::ACK)?;
            let complete = if opcode == Opcode::RC_SEND_LAST {
                message
            } else {
                message - 1
            };
            same!(msn, complete, "MSN after packet {n}");
            n += 1;
        }
        let psn = peer.peer_psn(n - 1);
        peer.send(scene, Opcode::RC_SEND_LAST, psn, &[7; 256], |_| {});
        same!(
            peer.expect_aeth(scene, psn, Syndrome::ACK)?,
            message,
            "MSN after a repetition"
        );
    }
    let psn = peer.peer_psn(n);
    peer.read_request(scene, psn, sink.remote(0), 8);
    let answer = peer.expect(scene, Opcode::RC_READ_RESPONSE_ONLY, psn)?;
    same!(
        answer.headers.aeth.map(|aeth| aeth.msn.value()),
        Some(3),
        "MSN in a READ's answer"
    );
    Ok(())
}

fn silence_after_rnr<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(256, full_access())?;
    let timer = RnrTimer::new(12).ok_or_else(|| crate::Failure::new("RNR timer code 12"))?;
    let psns = [peer.peer_psn(0), peer.peer_psn(1), peer.peer_psn(2)];
    for psn in psns {
        peer.send_only(scene, psn, b"refused");
    }
    peer.expect_aeth(scene, psns[0], Syndrome::RnrNak(timer))?;
    peer.silence(scene, SHORT)
        .map_err(|e| e.during("packets behind one that got an RNR NAK"))?;
    for wr_id in 0..3 {
        peer.node.recv(wr_id, &[sink.whole()])?;
    }
    for (wr_id, psn) in psns.into_iter().enumerate() {
        peer.send_only(scene, psn, b"accepted");
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
        scene.ends_with(&peer.node.recv_cq, wr_id as u64, WcStatus::Success)?;
    }
    Ok(())
}
