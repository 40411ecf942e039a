//! Datagrams and unreliable connections on their way: on the wire, through bad weather, within one device, and into
//! shared receive queues.

use roce_wire::Opcode;
use verbs_api::{QpType, SendOp, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Inbox, Node, Setup, Shared, datagram, full_access, pattern, read, same_bytes, send};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::faults(
            "G11-WIRE",
            "a datagram is one packet that names its sender and asks for nothing",
            &["UD-1", "UD-4", "UD-6"],
            on_the_wire,
        )
        .needing(&[Need::Network, Need::Ud]),
        Case::faults(
            "K9-UC",
            "in bad weather a UC message arrives whole or not at all",
            &["UC-3", "UC-4"],
            bad_weather,
        )
        .needing(&[Need::Network, Need::Uc]),
        Case::verbs(
            "A24-SELF",
            "two queue pairs of one device talk to each other",
            &["ADDR-4"],
            within_one_device,
        ),
        Case::verbs(
            "A24-ONE",
            "a queue pair talks to itself",
            &["ADDR-4"],
            with_itself,
        )
        .of_priority(2),
        Case::verbs(
            "I8-UD",
            "datagram queue pairs share receives",
            &["SRQ-1", "UD-1"],
            shared_receives,
        )
        .needing(&[Need::Ud, Need::Srq])
        .of_priority(2),
        Case::verbs(
            "I8-UC",
            "UC queue pairs share receives",
            &["SRQ-1", "UC-1"],
            shared_receives_connected,
        )
        .needing(&[Need::Uc, Need::Srq])
        .of_priority(2),
    ]
}

fn on_the_wire<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let (left, right) = (&pair.left, &pair.right);
    let ah = left.handle_to(&right.endpoint)?;
    let key = pair.setup.qkey;
    scene.network().take_trace();
    for (qkey, imm) in [(key, None), (0x5555, Some(3)), (0x8000_0001, None)] {
        let op = SendOp::SendTo {
            ah: &ah,
            remote_qpn: right.endpoint.qpn,
            remote_qkey: qkey,
            imm,
        };
        left.send_inline(1, op, b"12345")?;
        scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
    }
    scene.rest(std::time::Duration::from_millis(1));
    let sent = scene.network().take_trace();
    same!(sent.len(), 3, "packets of three datagrams");
    let expected = [
        (Opcode::UD_SEND_ONLY, key),
        (Opcode::UD_SEND_ONLY_WITH_IMMEDIATE, 0x5555),
        // The highest bit stands for the sender's own key.
        (Opcode::UD_SEND_ONLY, key),
    ];
    for (n, (packet, (opcode, qkey))) in sent.iter().zip(expected).enumerate() {
        let headers = &packet.headers;
        let deth = headers
            .deth
            .ok_or_else(|| Failure::new(format!("datagram {n} has no datagram header")))?;
        same!(
            (
                headers.bth.opcode,
                headers.bth.dest_qp.value(),
                headers.bth.ack_request
            ),
            (opcode, right.endpoint.qpn, false),
            "opcode, destination and AckReq of datagram {n}"
        );
        same!(
            (deth.qkey.0, deth.source_qp.value()),
            (qkey, left.endpoint.qpn),
            "Q_Key and sender in datagram {n}"
        );
        same_bytes("payload", &packet.payload, b"12345")?;
    }
    Ok(())
}

/// Bytes of the longest message in bad weather.
const LONGEST: usize = 1100;
/// Places for messages in bad weather: more than receives are ever left.
const PLACES: u64 = 64;

fn bad_weather<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let messages = scene.virtually(200u64, 64);
    let pair = scene.pair(&Setup {
        mtu: verbs_api::Mtu::Mtu256,
        ..Setup::of(QpType::Uc)
    })?;
    let (left, right) = (&pair.left, &pair.right);
    let source = left.region(LONGEST, full_access())?;
    let sink = right.region(LONGEST * PLACES as usize, full_access())?;
    let place = |receive: u64| (receive % PLACES) as usize * LONGEST;
    // Each length is of one message only, which tells it when it is late.
    let length_of = |n: u64| 1 + (n as usize * 37) % LONGEST;
    scene.network().set_weather(60, 60, 60);
    let mut arrived = vec![false; messages as usize];
    for n in 0..messages {
        source.scribble(n);
        right.recv(n, &[sink.sge(place(n)..place(n) + LONGEST)])?;
        left.send(n, send(), &[source.sge(0..length_of(n))])?;
        scene.ends_with(&left.send_cq, n, WcStatus::Success)?;
        // Most of what is not lost has arrived by then.
        scene.rest(scene.virtually(
            std::time::Duration::from_millis(1),
            std::time::Duration::from_millis(20),
        ));
        for wc in scene.completions_now(&right.recv_cq)? {
            same!(
                wc.status,
                WcStatus::Success,
                "status of what arrived by message {n}"
            );
            let length = wc.byte_len as usize;
            let Some(sent) = (0..=n).rev().find(|sent| length_of(*sent) == length) else {
                return Err(Failure::new(format!(
                    "{length} bytes arrived by message {n}: none was so long"
                )));
            };
            // Nothing tells a packet that was doubled on the way from another message.
            arrived[sent as usize] = true;
            same_bytes(
                "a message",
                &sink.buffer.to_vec(place(wc.wr_id)..place(wc.wr_id) + length),
                &pattern(sent, LONGEST)[..length],
            )?;
        }
        // Receives that were not used serve later messages.
        if n % 32 == 31 {
            scene.network().set_weather(0, 0, 0);
            drain(scene, &pair)?;
            scene.network().set_weather(60, 60, 60);
        }
    }
    let count = arrived.iter().filter(|arrived| **arrived).count() as u64;
    check!(
        count > messages / 2,
        "only {count} of {messages} messages arrived; at 6 % loss most do"
    );
    right.is_in(verbs_api::QpState::Rts)
}

/// Use up the receives that are left, in good weather.
fn drain<B: Testbed>(scene: &mut Scene<B>, pair: &crate::pair::Pair<B::P>) -> CaseResult {
    pair.right.recv(1_000_000, &[])?;
    loop {
        pair.left.send_inline(0, send(), &[])?;
        scene.ends_with(&pair.left.send_cq, 0, WcStatus::Success)?;
        if scene.success(&pair.right.recv_cq)?.wr_id == 1_000_000 {
            return Ok(());
        }
    }
}

/// Two queue pairs at the left end, connected to each other.
fn neighbours<B: Testbed>(scene: &Scene<B>, setup: &Setup) -> Result<[Node<B::P>; 2], Failure> {
    // Both send from the PSN of the left end.
    let setup = Setup {
        psn: [setup.psn[0]; 2],
        ..setup.clone()
    };
    let nodes = [scene.node(Side::Left, &setup)?, scene.node(Side::Left, &setup)?];
    nodes[0].connect(&setup, &nodes[1].endpoint)?;
    nodes[1].connect(&setup, &nodes[0].endpoint)?;
    Ok(nodes)
}

fn within_one_device<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for (qp_type, need) in [
        (QpType::Rc, None),
        (QpType::Uc, Some(Need::Uc)),
        (QpType::Ud, Some(Need::Ud)),
    ] {
        if need.is_some_and(|need| !scene.bed.has(need)) {
            continue;
        }
        let setup = Setup::of(qp_type);
        let [a, b] = neighbours(scene, &setup)?;
        let inbox = Inbox::new(&b, 64)?;
        b.recv(1, &[inbox.whole()])?;
        let what = format!("a message over {qp_type:?} within a device");
        // It must live until the send has completed.
        let ah = match qp_type {
            QpType::Ud => Some(a.handle_to(&b.endpoint)?),
            _ => None,
        };
        match &ah {
            Some(ah) => a.send_inline(2, datagram(ah, &b.endpoint, setup.qkey), b"neighbour")?,
            None => a.send_inline(2, send(), b"neighbour")?,
        }
        scene
            .ends_with(&a.send_cq, 2, WcStatus::Success)
            .map_err(|e| e.during(&what))?;
        let wc = scene
            .ends_with(&b.recv_cq, 1, WcStatus::Success)
            .map_err(|e| e.during(&what))?;
        if qp_type == QpType::Ud {
            inbox.holds(&wc, b"neighbour", &a.endpoint)?;
        } else {
            same_bytes(&what, &inbox.region.buffer.to_vec(0..9), b"neighbour")?;
        }
        if qp_type == QpType::Rc {
            let (own, far) = (a.region(5000, full_access())?, b.region(5000, full_access())?);
            far.scribble(1);
            a.send(3, read(far.remote(0)), &[own.whole()])?;
            scene.ends_with(&a.send_cq, 3, WcStatus::Success)?;
            same_bytes(
                "a READ within a device",
                &own.buffer.to_vec(0..5000),
                &pattern(1, 5000),
            )?;
        }
    }
    Ok(())
}

fn with_itself<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        psn: [77; 2],
        ..Setup::default()
    };
    let node = scene.node(Side::Left, &setup)?;
    node.connect(&setup, &node.endpoint)?;
    let sink = node.region(64, full_access())?;
    node.recv(1, &[sink.whole()])?;
    node.send_inline(2, send(), b"monologue")?;
    scene.ends_with(&node.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&node.recv_cq, 1, WcStatus::Success)?;
    same_bytes("a message to itself", &sink.buffer.to_vec(0..9), b"monologue")
}

fn shared_receives<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &left.endpoint)?;
    let pool = scene.receive_pool(Side::Right, 16)?;
    let shared = Shared {
        srq: Some(&pool.srq),
        ..Shared::default()
    };
    let mut ends = Vec::new();
    for _ in 0..3 {
        let right = scene.node_in(Side::Right, &setup, &pool.pd, &shared)?;
        right.connect(&setup, &left.endpoint)?;
        ends.push(right);
    }
    for round in 0..9u64 {
        let right = &ends[round as usize % 3];
        let inbox = Inbox::new(right, 32)?;
        pool.recv(round, &[inbox.whole()])?;
        let ah = left.handle_to(&right.endpoint)?;
        let text = format!("datagram {round}");
        left.send_inline(1, datagram(&ah, &right.endpoint, setup.qkey), text.as_bytes())?;
        scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
        let wc = scene.ends_with(&right.recv_cq, round, WcStatus::Success)?;
        same!(wc.qp_num, right.endpoint.qpn, "queue pair of a datagram");
        inbox.holds(&wc, text.as_bytes(), &left.endpoint)?;
    }
    Ok(())
}

fn shared_receives_connected<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::of(QpType::Uc);
    let pool = scene.receive_pool(Side::Right, 16)?;
    let shared = Shared {
        srq: Some(&pool.srq),
        ..Shared::default()
    };
    let mut ends = Vec::new();
    for _ in 0..3 {
        let left = scene.node(Side::Left, &setup)?;
        let right = scene.node_in(Side::Right, &setup, &pool.pd, &shared)?;
        left.connect(&setup, &right.endpoint)?;
        right.connect(&setup, &left.endpoint)?;
        ends.push((left, right));
    }
    for round in 0..9u64 {
        let (left, right) = &ends[round as usize % 3];
        let (source, sink) = (
            left.region(3000, full_access())?,
            right.region(3000, full_access())?,
        );
        source.scribble(round);
        pool.recv(round, &[sink.whole()])?;
        left.send(1, send(), &[source.whole()])?;
        scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
        let wc = scene.ends_with(&right.recv_cq, round, WcStatus::Success)?;
        same!(wc.qp_num, right.endpoint.qpn, "queue pair of a message");
        same_bytes("a message", &sink.buffer.to_vec(0..3000), &pattern(round, 3000))?;
    }
    Ok(())
}
