//! How messages are cut into packets.

use roce_wire::{Opcode, Syndrome};
use verbs_api::{Provider, QueuePair, SendOp, SendWr, WcStatus};

use super::played::{FAR, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{full_access, same_bytes};
use crate::raw::RawPeer;
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![Case::raw_peer(
        "D3",
        "messages are cut into packets with the right opcodes and PSNs",
        &["WIRE-1", "WIRE-2", "WIRE-3"],
        packet_sequence,
    )]
}

/// The expected opcodes of a message of `size` bytes.
fn shape(size: usize, only: Opcode, first: Opcode, middle: Opcode, last: Opcode) -> Vec<Opcode> {
    match size.div_ceil(256).max(1) {
        1 => vec![only],
        packets => {
            let mut opcodes = vec![first];
            opcodes.extend(vec![middle; packets - 2]);
            opcodes.push(last);
            opcodes
        }
    }
}

/// A SEND and a WRITE of `size` bytes, each without and with immediate data, and the packets that they take.
fn messages<P: Provider>(size: usize) -> [(SendOp<'static, P>, Vec<Opcode>); 4] {
    use Opcode as O;
    let imm = Some(0x0a0b_0c0d);
    let send = |only, last| shape(size, only, O::RC_SEND_FIRST, O::RC_SEND_MIDDLE, last);
    let write = |only, last| shape(size, only, O::RC_WRITE_FIRST, O::RC_WRITE_MIDDLE, last);
    [
        (SendOp::Send { imm: None }, send(O::RC_SEND_ONLY, O::RC_SEND_LAST)),
        (
            SendOp::Send { imm },
            send(O::RC_SEND_ONLY_WITH_IMMEDIATE, O::RC_SEND_LAST_WITH_IMMEDIATE),
        ),
        (
            SendOp::Write {
                remote: FAR,
                imm: None,
            },
            write(O::RC_WRITE_ONLY, O::RC_WRITE_LAST),
        ),
        (
            SendOp::Write { remote: FAR, imm },
            write(O::RC_WRITE_ONLY_WITH_IMMEDIATE, O::RC_WRITE_LAST_WITH_IMMEDIATE),
        ),
    ]
}

fn packet_sequence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for size in [0usize, 1, 255, 256, 257, 512, 513, 1000] {
        let mut peer = scene.raw_peer(&setup())?;
        let own = peer.node.region(1024, full_access())?;
        own.scribble(size as u64);
        let sges = [own.sge(0..size)];
        let mut next = 0u32;
        for (wr_id, (op, opcodes)) in messages(size).into_iter().enumerate() {
            peer.node.qp.post_send(&[SendWr::new(wr_id as u64, op, &sges)])?;
            let payload = expect_message(scene, &mut peer, next, size, &opcodes)?;
            same_bytes("payload", &payload, &own.buffer.to_vec(0..size))?;
            next += opcodes.len() as u32;
            let psn = peer.own_psn(next - 1);
            peer.acknowledge(scene, psn, Syndrome::ACK, wr_id as u32 + 1);
            scene.ends_with(&peer.node.send_cq, wr_id as u64, WcStatus::Success)?;
        }
        // A READ takes as many PSNs as its answer has packets.
        peer.node
            .send(10, SendOp::Read { remote: FAR }, &[own.sge(0..size)])?;
        peer.node
            .qp
            .post_send(&[SendWr::inline(11, SendOp::Send { imm: None }, b"behind")])?;
        let psn = peer.own_psn(next);
        let request = peer.expect(scene, Opcode::RC_READ_REQUEST, psn)?;
        same!(
            request.headers.reth.map(|r| r.dma_length as usize),
            Some(size),
            "length of the READ request"
        );
        let psn = peer.own_psn(next + size.div_ceil(256).max(1) as u32);
        peer.expect(scene, Opcode::RC_SEND_ONLY, psn)
            .map_err(|e| e.during(format!("behind a READ of {size} bytes")))?;
    }
    Ok(())
}

/// The packets of a message of `size` bytes, from the PSN `first` behind the start on; their payload.
fn expect_message<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    first: u32,
    size: usize,
    opcodes: &[Opcode],
) -> Result<Vec<u8>, Failure> {
    let mut payload = Vec::new();
    for (at, &opcode) in opcodes.iter().enumerate() {
        let psn = peer.own_psn(first + at as u32);
        let packet = peer
            .expect(scene, opcode, psn)
            .map_err(|e| e.during(format!("{size} bytes")))?;
        payload.extend_from_slice(&packet.payload);
        if at + 1 == opcodes.len() {
            check!(
                packet.headers.bth.ack_request,
                "the last packet of a message of {size} bytes lacks AckReq"
            );
        }
        if let Some(reth) = packet.headers.reth {
            let seen = (reth.va, reth.rkey.0, reth.dma_length as usize);
            same!(seen, (FAR.addr, FAR.rkey.0, size), "RETH of a WRITE");
        }
        if let Some(imm) = packet.headers.immediate {
            same!(imm.0, [0x0a, 0x0b, 0x0c, 0x0d], "immediate on the wire");
        }
    }
    Ok(payload)
}
