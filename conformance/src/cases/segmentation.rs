//! How messages are cut into packets.

use roce_wire::{Opcode, Syndrome};
use verbs_api::{QueuePair, SendOp, SendWr, WcStatus};

use super::played::{FAR, setup};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{full_access, same_bytes};
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

fn packet_sequence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    for size in [0usize, 1, 255, 256, 257, 512, 513, 1000] {
        let mut peer = scene.raw_peer(&setup())?;
        let own = peer.node.region(1024, full_access())?;
        own.scribble(size as u64);
        let sges = [own.sge(0..size)];
        let operations: [(SendOp<'_, B::P>, Vec<O>); 4] = [
            (
                SendOp::Send { imm: None },
                shape(
                    size,
                    O::RC_SEND_ONLY,
                    O::RC_SEND_FIRST,
                    O::RC_SEND_MIDDLE,
                    O::RC_SEND_LAST,
                ),
            ),
            (
                SendOp::Send {
                    imm: Some(0x0a0b_0c0d),
                },
                shape(
                    size,
                    O::RC_SEND_ONLY_WITH_IMMEDIATE,
                    O::RC_SEND_FIRST,
                    O::RC_SEND_MIDDLE,
                    O::RC_SEND_LAST_WITH_IMMEDIATE,
                ),
            ),
            (
                SendOp::Write {
                    remote: FAR,
                    imm: None,
                },
                shape(
                    size,
                    O::RC_WRITE_ONLY,
                    O::RC_WRITE_FIRST,
                    O::RC_WRITE_MIDDLE,
                    O::RC_WRITE_LAST,
                ),
            ),
            (
                SendOp::Write {
                    remote: FAR,
                    imm: Some(0x0a0b_0c0d),
                },
                shape(
                    size,
                    O::RC_WRITE_ONLY_WITH_IMMEDIATE,
                    O::RC_WRITE_FIRST,
                    O::RC_WRITE_MIDDLE,
                    O::RC_WRITE_LAST_WITH_IMMEDIATE,
                ),
            ),
        ];
        let mut next = 0u32;
        for (wr_id, (op, opcodes)) in operations.into_iter().enumerate() {
            peer.node.qp.post_send(&[SendWr::new(wr_id as u64, op, &sges)])?;
            let mut payload = Vec::new();
            let count = opcodes.len();
            for (at, opcode) in opcodes.into_iter().enumerate() {
                let psn = peer.own_psn(next);
                let packet = peer
                    .expect(scene, opcode, psn)
                    .map_err(|e| e.during(format!("{size} bytes")))?;
                payload.extend_from_slice(&packet.payload);
                if at + 1 == count {
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
                next += 1;
            }
            same_bytes("payload", &payload, &own.buffer.to_vec(0..size))?;
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
        let request = peer.expect(scene, O::RC_READ_REQUEST, psn)?;
        same!(
            request.headers.reth.map(|r| r.dma_length as usize),
            Some(size),
            "length of the READ request"
        );
        let psn = peer.own_psn(next + size.div_ceil(256).max(1) as u32);
        peer.expect(scene, O::RC_SEND_ONLY, psn)
            .map_err(|e| e.during(format!("behind a READ of {size} bytes")))?;
    }
    Ok(())
}
