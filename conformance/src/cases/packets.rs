//! Details of what a requester sends, and what it holds back.

use roce_wire::{Opcode, Syndrome};
use verbs_api::{QueuePair, RemoteAddr, SendFlags, SendOp, SendWr, WcStatus};

use super::played::{FAR, SHORT, answer, read, setup, three_sends};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Need, Passing, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "D11",
            "a fenced request is not sent before the READ ahead of it has its answer",
            &["FENCE-1"],
            fence_on_the_wire,
        ),
        Case::raw_peer(
            "D12",
            "no more READs are outstanding than max_rd_atomic",
            &["RDATOMIC-1"],
            outstanding_reads,
        ),
        Case::raw_peer(
            "D14",
            "the solicited bit is on the last packet only",
            &["WIRE-4"],
            solicited_bit,
        )
        .of_priority(2),
        Case::raw_peer(
            "A19-M",
            "packets say migrated, have the default P_Key and no reserved bit",
            &["WIRE-5"],
            header_bits,
        ),
        Case::raw_peer(
            "A23",
            "pad bytes are zero and their count is right",
            &["WIRE-6"],
            padding,
        )
        .of_priority(2),
        Case::raw_peer(
            "E40",
            "a packet that is sent again is the same packet",
            &["RETRY-8"],
            same_packet_again,
        ),
        Case::raw_peer(
            "E7-ATOMIC",
            "an answer to an atomic arrives where it belongs",
            &["ATOMIC-1"],
            atomic_answer,
        )
        .needing(&[Need::Network, Need::Atomics]),
    ]
}

fn fence_on_the_wire<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(512, full_access())?;
    read(&peer, 1, &own, 512)?;
    let fenced = SendWr::inline(
        2,
        SendOp::Write {
            remote: FAR,
            imm: None,
        },
        b"later",
    )
    .with_flags(SendFlags::SIGNALED | SendFlags::FENCE);
    peer.node.qp.post_send(&[fenced])?;
    let first = peer.own_psn(0);
    peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    peer.silence(scene, SHORT)
        .map_err(|e| e.during("with the READ unanswered"))?;
    let bytes = pattern(1, 512);
    peer.read_response(scene, Opcode::RC_READ_RESPONSE_FIRST, first, 1, &bytes[..256]);
    peer.silence(scene, SHORT)
        .map_err(|e| e.during("with half of the READ's answer"))?;
    peer.read_response(scene, Opcode::RC_READ_RESPONSE_LAST, first + 1, 1, &bytes[256..]);
    let psn = peer.own_psn(2);
    peer.expect(scene, Opcode::RC_WRITE_ONLY, psn)?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    same_bytes("what was read", &own.buffer.to_vec(0..512), &bytes)
}

fn outstanding_reads<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for limit in [1u8, 3] {
        let mut peer = scene.raw_peer(&Setup {
            rd_atomic: limit,
            ..setup()
        })?;
        let own = peer.node.region(64, full_access())?;
        for wr_id in 0..8 {
            read(&peer, wr_id, &own, 8)?;
        }
        for n in 0..u32::from(limit) {
            let psn = peer.own_psn(n);
            peer.expect(scene, Opcode::RC_READ_REQUEST, psn)?;
        }
        for n in 0..8u32 {
            peer.silence(scene, SHORT)
                .map_err(|e| e.during(format!("with {limit} READs outstanding")))?;
            let psn = peer.own_psn(n);
            answer(scene, &peer, psn, &u64::from(n).to_ne_bytes(), 0, n + 1);
            scene.ends_with(&peer.node.send_cq, u64::from(n), WcStatus::Success)?;
            if n + u32::from(limit) < 8 {
                let psn = peer.own_psn(n + u32::from(limit));
                peer.expect(scene, Opcode::RC_READ_REQUEST, psn)?;
            }
        }
    }
    Ok(())
}

fn solicited_bit<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(600, full_access())?;
    let sges = [own.whole()];
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    let table: [(&str, SendOp<'_, B::P>, bool); 3] = [
        ("SEND", SendOp::Send { imm: None }, true),
        (
            "WRITE with immediate",
            SendOp::Write {
                remote: FAR,
                imm: Some(1),
            },
            true,
        ),
        (
            "WRITE",
            SendOp::Write {
                remote: FAR,
                imm: None,
            },
            false,
        ),
    ];
    // All at once: who hears nothing for a while sends nothing new.
    peer.node
        .qp
        .post_send(&table.map(|(_, op, _)| SendWr::new(1, op, &sges).with_flags(flags)))?;
    for (what, _, solicited) in table {
        let bits: Vec<bool> = (0..3)
            .map(|_| Ok(peer.next(scene)?.headers.bth.solicited))
            .collect::<Result<_, Failure>>()?;
        same!(bits, vec![false, false, solicited], "solicited bits of a {what}");
    }
    Ok(())
}

fn header_bits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(512, full_access())?;
    three_sends(&peer)?;
    read(&peer, 4, &own, 512)?;
    peer.write_only(scene, peer.peer_psn(0), RemoteAddr::default(), &[]);
    for _ in 0..5 {
        let packet = peer.next(scene)?;
        let bth = packet.headers.bth;
        let what = format!("{:?}", bth.opcode);
        check!(
            bth.migrated,
            "{what} says that path migration is armed, though it never was"
        );
        same!(bth.pkey.0, 0xffff, "P_Key of {what}");
        check!(!bth.fecn && !bth.becn, "{what} has a congestion bit");
        same!(packet.bytes[1] & 0x0f, 0, "transport version of {what}");
        same!(
            packet.bytes[4] & 0x3f,
            0,
            "reserved bits beside the congestion bits of {what}"
        );
        same!(
            packet.bytes[8] & 0x7f,
            0,
            "reserved bits beside the PSN of {what}"
        );
        if bth.opcode == Opcode::RC_ACKNOWLEDGE {
            check!(!bth.ack_request, "an acknowledgement asks for one");
        }
    }
    Ok(())
}

fn padding<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(600, full_access())?;
    own.buffer.fill(0..600, 0xff);
    for (n, size) in [1usize, 2, 3, 4, 5, 254, 255, 256].into_iter().enumerate() {
        peer.node
            .send(1, SendOp::Send { imm: None }, &[own.sge(0..size)])?;
        let psn = peer.own_psn(n as u32);
        let packet = peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
        let pad = (4 - size % 4) % 4;
        same!(
            usize::from(packet.headers.bth.pad),
            pad,
            "pad count for {size} bytes"
        );
        same!(
            packet.bytes.len(),
            12 + size + pad + 4,
            "length of a packet of {size} bytes"
        );
        same!(
            packet.bytes[12 + size..12 + size + pad],
            [0, 0, 0][..pad],
            "pad bytes for {size} bytes"
        );
        peer.acknowledge(scene, psn, Syndrome::ACK, n as u32 + 1);
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    }
    Ok(())
}

fn same_packet_again<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 10,
        retry_cnt: 3,
        ..setup()
    })?;
    let own = peer.node.region(600, full_access())?;
    own.scribble(5);
    peer.node.send(
        1,
        SendOp::Write {
            remote: FAR,
            imm: Some(7),
        },
        &[own.whole()],
    )?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
    let sent = peer.drain(scene);
    for n in 0..3 {
        let psn = peer.own_psn(n);
        let all: Vec<_> = sent.iter().filter(|p| p.headers.bth.psn == psn).collect();
        check!(
            n > 0 || all.len() == 4,
            "packet 0 was sent {} times, expected 4",
            all.len()
        );
        for packet in &all[1..] {
            // AckReq may be set on a repetition.
            let comparable = |p: &Passing| [&p.bytes[..8], &p.bytes[9..p.bytes.len() - 4]].concat();
            same_bytes(
                &format!("packet {n}, sent again"),
                &comparable(packet),
                &comparable(all[0]),
            )?;
        }
    }
    Ok(())
}

fn atomic_answer<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(32, full_access())?;
    let remote = RemoteAddr {
        addr: 0x1_0008,
        ..FAR
    };
    peer.node.send(
        1,
        SendOp::CompareSwap {
            remote,
            compare: 0x1122_3344_5566_7788,
            swap: 9,
        },
        &[own.sge(8..16)],
    )?;
    peer.node
        .send(2, SendOp::FetchAdd { remote, add: 6 }, &[own.sge(16..24)])?;
    let (first, second) = (peer.own_psn(0), peer.own_psn(1));
    let request = peer.expect(scene, Opcode::RC_COMPARE_SWAP, first)?;
    let Some(header) = request.headers.atomic_eth else {
        return Err(Failure::new("a CompareSwap without AtomicETH"));
    };
    let seen = (header.va, header.rkey.0, header.swap_or_add, header.compare);
    same!(
        seen,
        (remote.addr, FAR.rkey.0, 9, 0x1122_3344_5566_7788),
        "AtomicETH of a compare and swap"
    );
    let request = peer.expect(scene, Opcode::RC_FETCH_ADD, second)?;
    let Some(header) = request.headers.atomic_eth else {
        return Err(Failure::new("a FetchAdd without AtomicETH"));
    };
    same!(
        (header.va, header.swap_or_add),
        (remote.addr, 6),
        "AtomicETH of a fetch and add"
    );
    peer.atomic_response(scene, first, 1, 0x0102_0304_0506_0708);
    peer.atomic_response(scene, second, 2, 77);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&peer.node.send_cq, 2, WcStatus::Success)?;
    same!(own.buffer.load_u64(8), 0x0102_0304_0506_0708, "first answer");
    same!(own.buffer.load_u64(16), 77, "second answer");
    Ok(())
}
