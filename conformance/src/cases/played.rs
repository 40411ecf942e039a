//! Helpers of the cases that play one end.

use std::time::Duration;

use roce_wire::{Opcode, Psn, Syndrome};
use verbs_api::{QpState, QueuePair, RKey, RemoteAddr, SendOp, SendWr, WcStatus};

use crate::outcome::CaseResult;
use crate::pair::{Region, Setup};
use crate::raw::RawPeer;
use crate::scene::Scene;
use crate::testbed::Testbed;

pub(super) const SHORT: Duration = Duration::from_millis(2);

/// An address at the played peer, which checks nothing.
pub(super) const FAR: RemoteAddr = RemoteAddr {
    addr: 0x1_0000,
    rkey: RKey(0x1234_5600),
};

pub(super) fn setup() -> Setup {
    Setup {
        mtu: verbs_api::Mtu::Mtu256,
        ..Setup::default()
    }
}

/// Nothing comes of it: no reply, no completion, no change; the next good packet is served.
pub(super) fn ignored<B: Testbed>(scene: &mut Scene<B>, peer: &mut RawPeer<B>, what: &str) -> CaseResult {
    peer.silence(scene, SHORT)
        .and_then(|()| scene.quiet(&[&peer.node.recv_cq, &peer.node.send_cq], Duration::ZERO))
        .and_then(|()| peer.node.is_in(QpState::Rts))
        .map_err(|e| e.during(what))
}

/// The responses to a READ of `packets` packets from PSN `first` on; their payload.
pub(super) fn read_answer<B: Testbed>(
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

/// A try lasts at least 4.2 ms, but in real time as long as an answer may take.
pub(super) fn impatient<B: Testbed>(scene: &Scene<B>) -> Setup {
    Setup {
        timeout: scene.timeout(10),
        ..setup()
    }
}

/// Three inline SENDs, requests 1 to 3, one packet each.
pub(super) fn three_sends<B: Testbed>(peer: &RawPeer<B>) -> CaseResult {
    // All at once: who hears nothing for a while sends nothing new.
    let sends = [1, 2, 3].map(|wr_id| SendWr::inline(wr_id, SendOp::Send { imm: None }, b"message"));
    peer.node.qp.post_send(&sends)?;
    Ok(())
}

pub(super) fn expect_sends<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    from: u32,
    to: u32,
) -> CaseResult {
    for n in from..to {
        let psn = peer.own_psn(n);
        peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    }
    Ok(())
}

/// A played peer, and a patient requester whose [`three_sends`] have arrived there and wait for an answer.
pub(super) fn three_unanswered<B: Testbed>(scene: &mut Scene<B>) -> Result<RawPeer<B>, crate::Failure> {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    Ok(peer)
}

/// An acknowledgement of [`three_sends`] completes all of them.
pub(super) fn acknowledge_three<B: Testbed>(scene: &mut Scene<B>, peer: &RawPeer<B>) -> CaseResult {
    let last = peer.own_psn(2);
    peer.acknowledge(scene, last, Syndrome::ACK, 3);
    for wr_id in 1..=3 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

pub(super) fn read<B: Testbed>(
    peer: &RawPeer<B>,
    wr_id: u64,
    own: &Region<B::P>,
    length: usize,
) -> CaseResult {
    peer.node
        .send(wr_id, SendOp::Read { remote: FAR }, &[own.sge(0..length)])
}

/// Answer a READ whose first packet has `first`, with `bytes`, from packet `from` on.
pub(super) fn answer<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &RawPeer<B>,
    first: Psn,
    bytes: &[u8],
    from: usize,
    msn: u32,
) {
    let packets = bytes.len().div_ceil(256).max(1);
    for n in from..packets {
        let payload = &bytes[256 * n..bytes.len().min(256 * (n + 1))];
        let opcode = match (n - from, n + 1 == packets) {
            (0, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (0, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (_, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
            (_, true) => Opcode::RC_READ_RESPONSE_LAST,
        };
        peer.read_response(scene, opcode, first + n as u32, msn, payload);
    }
}
