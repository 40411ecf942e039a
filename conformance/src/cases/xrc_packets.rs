//! Extended reliable connections on the wire, and over a bad one.

use roce_wire::{Opcode, Srqn, Syndrome, XrcEth};
use verbs_api::{
    Context as _, CqInit, ProtectionDomain, QpType, QueuePair, RecvWr, SendOp, SendWr, SharedReceiveQueue,
    SrqInit, WcStatus,
};

use super::played::setup;
use super::xrc::{line, mailbox};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, Shared, full_access, read, same_bytes, send, write};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

const NEEDS: &[Need] = &[Need::Network, Need::Xrc];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "X9",
            "the requests of an XRC initiator name the shared queue in every packet",
            &["XRC-7"],
            requests,
        )
        .needing(NEEDS),
        Case::raw_peer(
            "X10",
            "an XRC target answers with packets of its service, which name no queue",
            &["XRC-7", "XRC-1"],
            answers,
        )
        .needing(NEEDS),
        Case::faults(
            "X11",
            "loss, repetition and reordering harm no XRC message",
            &["XRC-1", "XRC-2", "LOSS-2", "DUP-1"],
            bad_weather,
        )
        .needing(NEEDS),
    ]
}

fn srqn(value: u32) -> Result<Srqn, Failure> {
    Srqn::new(value).ok_or_else(|| Failure::new(format!("{value:#x} is no number of a shared queue")))
}

fn requests<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let setup = setup().with_type(QpType::XrcInitiator);
    let node = scene.node(Side::Left, &setup)?;
    let mut peer = scene.raw_peer_of(node, &setup)?;
    let own = peer.node.region(600, full_access())?;
    let remote = super::played::FAR;
    for (wr_id, op, srq) in [
        (1, send(), 0x123u32),
        (2, write(remote), 0xABCDEF),
        (3, read(remote), 7),
    ] {
        let sges = [own.whole()];
        let wr = SendWr {
            xrc_srqn: Some(srq),
            ..SendWr::new(wr_id, op, &sges)
        };
        peer.node.qp.post_send(&[wr])?;
    }
    let expected = [
        (O::XRC_SEND_FIRST, 0x123u32),
        (O::XRC_SEND_MIDDLE, 0x123),
        (O::XRC_SEND_LAST, 0x123),
        (O::XRC_WRITE_FIRST, 0xABCDEF),
        (O::XRC_WRITE_MIDDLE, 0xABCDEF),
        (O::XRC_WRITE_LAST, 0xABCDEF),
        (O::XRC_READ_REQUEST, 7),
    ];
    for (n, (opcode, srq)) in expected.into_iter().enumerate() {
        let psn = peer.own_psn(n as u32);
        let packet = peer.expect(scene, opcode, psn)?;
        same!(
            packet.headers.xrceth,
            Some(XrcEth { srq: srqn(srq)? }),
            "shared queue named in packet {n}"
        );
    }
    let last = peer.own_psn(5);
    peer.send(scene, O::XRC_ACKNOWLEDGE, last, &[], |h| {
        h.aeth = Some(roce_wire::Aeth {
            syndrome: Syndrome::ACK,
            msn: roce_wire::Msn::new(2),
        });
    });
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&peer.node.send_cq, 2, WcStatus::Success)?;
    Ok(())
}

fn answers<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = setup().with_type(QpType::XrcTarget);
    let context = scene.context(Side::Left);
    let domain = context.open_xrc_domain(None)?;
    let cq = context.create_cq(&CqInit::new(16))?;
    let shared = Shared {
        xrc_domain: Some(&domain),
        ..Shared::default()
    };
    let node = scene.node_sharing(Side::Left, &setup, &shared)?;
    let srq = node.pd.create_srq(&SrqInit {
        max_wr: 4,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: Some((&domain, &cq)),
    })?;
    let mut peer = scene.raw_peer_of(node, &setup)?;
    let sink = peer.node.region(64, full_access())?;
    let queue = srqn(srq.srqn())?;
    let sges = [sink.whole()];
    srq.post_recv(&[RecvWr {
        wr_id: 1,
        sges: &sges,
    }])?;
    let psn = peer.peer_psn(0);
    peer.send(scene, Opcode::XRC_SEND_ONLY, psn, b"by number", |h| {
        h.xrceth = Some(XrcEth { srq: queue });
        h.bth.ack_request = true;
    });
    let packet = peer.expect(scene, Opcode::XRC_ACKNOWLEDGE, psn)?;
    same!(
        (
            packet.headers.xrceth,
            packet.headers.aeth.map(|aeth| aeth.syndrome)
        ),
        (None, Some(Syndrome::ACK)),
        "queue named in an answer, and its syndrome (0x1f: no credits)"
    );
    scene.ends_with(&cq, 1, WcStatus::Success)?;
    same_bytes("the message", &sink.buffer.to_vec(0..9), b"by number")
}

fn bad_weather<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let line = line(
        scene,
        &Setup {
            timeout: scene.timeout(10),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            mtu: verbs_api::Mtu::Mtu256,
            ..Setup::default()
        },
    )?;
    let mailbox = mailbox(scene, &line.right.node.pd, &line.right.domain)?;
    let own = line.left.region(4096, full_access())?;
    let word = line.right.node.region(8, full_access())?;
    scene.network().set_weather(50, 50, 50);
    let atomics = scene.bed.has(Need::Atomics);
    for round in 0..60u64 {
        let length = [1usize, 256, 257, 4000][round as usize % 4];
        own.scribble(round);
        mailbox.recv(round)?;
        line.post(1, send(), mailbox.srq.srqn(), &[own.sge(0..length)])?;
        scene.ends_with(&line.left.send_cq, 1, WcStatus::Success)?;
        let wc = scene.ends_with(&mailbox.cq, round, WcStatus::Success)?;
        same!(wc.byte_len as usize, length, "length of message {round}");
        same_bytes(
            "a message",
            &mailbox.sink.buffer.to_vec(0..length),
            &own.buffer.to_vec(0..length),
        )?;
        if atomics {
            let op = SendOp::FetchAdd {
                remote: word.remote(0),
                add: 1,
            };
            line.post(2, op, mailbox.srq.srqn(), &[own.sge(0..8)])?;
            scene.ends_with(&line.left.send_cq, 2, WcStatus::Success)?;
        }
    }
    if atomics {
        same!(word.buffer.load_u64(0), 60, "sum of sixty additions");
    }
    Ok(())
}
