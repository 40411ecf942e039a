//! What counts as progress, and what uses up which budget.

use std::time::Duration;

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use verbs_api::{Object, SendOp, WcStatus};

use super::played::{FAR, SHORT, answer, impatient, setup, three_sends, three_unanswered};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, pattern, read, send, write};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "E8",
            "time-outs and sequence NAKs without progress share one budget",
            &["RETRY-7", "RETRY-3"],
            shared_budget,
        )
        .of_priority(2),
        Case::raw_peer(
            "E10",
            "an acknowledgement within a message is progress: sending again begins behind it",
            &["RETRY-2", "ACK-1"],
            within_a_message,
        )
        .of_priority(2),
        Case::raw_peer(
            "E17",
            "an old acknowledgement completes nothing again",
            &["ACK-2"],
            old_acknowledgement,
        )
        .of_priority(2),
        Case::raw_peer(
            "E23",
            "RNR NAKs and time-outs have budgets of their own",
            &["RNR-1", "RETRY-3"],
            two_budgets,
        )
        .of_priority(2),
        Case::raw_peer(
            "E42",
            "an answer to the first of two messages completes the first alone",
            &["ACK-1", "RETRY-5"],
            first_of_two,
        ),
        Case::faults(
            "E39",
            "a queue pair that was destroyed sends nothing more",
            &["QP-15"],
            destroyed,
        )
        .of_priority(2),
    ]
}

fn shared_budget<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        retry_cnt: 3,
        ..impatient(scene)
    })?;
    three_sends(&peer)?;
    let first = peer.own_psn(0);
    let mut times = 0;
    let wc = loop {
        let (packet, done) = scene.until("a packet or the end", |scene| {
            let packets = peer.drain(scene);
            let done = scene.completions_now(&peer.node.send_cq)?;
            Ok((!packets.is_empty() || !done.is_empty()).then_some((packets, done)))
        })?;
        for packet in &packet {
            if packet.headers.bth.psn == first {
                times += 1;
                // Every second try is ended by a sequence NAK, the others by the timer.
                if times % 2 == 0 {
                    peer.acknowledge(scene, first, Syndrome::Nak(NakCode::PsnSequence), 0);
                }
            }
        }
        if let Some(wc) = done.first() {
            break *wc;
        }
    };
    same!(
        (wc.wr_id, wc.status, times),
        (1, WcStatus::RetryExcErr, 4),
        "request, status and transmissions with a retry count of 3"
    );
    Ok(())
}

fn within_a_message<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&impatient(scene))?;
    let own = peer.node.region(1000, full_access())?;
    own.scribble(1);
    peer.node.send(1, write(FAR), &[own.whole()])?;
    for n in 0..4 {
        let psn = peer.own_psn(n);
        same!(peer.next(scene)?.headers.bth.psn, psn, "PSN of packet {n}");
    }
    let second = peer.own_psn(1);
    peer.acknowledge(scene, second, Syndrome::ACK, 0);
    let again = peer.next(scene)?;
    same!(
        (again.headers.bth.psn, again.headers.bth.opcode),
        (peer.own_psn(2), Opcode::RC_WRITE_MIDDLE),
        "PSN and opcode of what is sent again after an acknowledgement of the second of four packets"
    );
    crate::pair::same_bytes("its payload", &again.payload, &pattern(1, 1000)[512..768])?;
    let last = peer.own_psn(3);
    peer.acknowledge(scene, last, Syndrome::ACK, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    Ok(())
}

fn old_acknowledgement<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = three_unanswered(scene)?;
    let [first, second, third] = [0, 1, 2].map(|n| peer.own_psn(n));
    peer.acknowledge(scene, second, Syndrome::ACK, 2);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&peer.node.send_cq, 2, WcStatus::Success)?;
    for psn in [first, second] {
        peer.acknowledge(scene, psn, Syndrome::ACK, 1);
    }
    scene.quiet(&[&peer.node.send_cq], SHORT)?;
    peer.nothing_new(scene, SHORT)?;
    peer.acknowledge(scene, third, Syndrome::ACK, 3);
    scene.ends_with(&peer.node.send_cq, 3, WcStatus::Success)?;
    Ok(())
}

fn two_budgets<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    let mut peer = scene.raw_peer(&Setup {
        rnr_retry: 2,
        retry_cnt: 2,
        ..impatient(scene)
    })?;
    peer.node.send_inline(1, send(), b"message")?;
    let psn = peer.own_psn(0);
    // RNR, time-out, RNR, time-out: each budget holds two.
    for round in 0..4 {
        peer.expect(scene, Opcode::RC_SEND_ONLY, psn)
            .map_err(|e| e.during(format!("try {round}")))?;
        if round % 2 == 0 {
            peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
        }
    }
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    peer.acknowledge(scene, psn, Syndrome::ACK, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    Ok(())
}

fn first_of_two<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let atomics = scene.bed.has(Need::Atomics);
    for operation in 0..5 {
        let mut peer = scene.raw_peer(&Setup {
            timeout: 0,
            ..setup()
        })?;
        let own = peer.node.region(1200, full_access())?;
        let op = match operation {
            0 => send(),
            1 => write(FAR),
            2 => read(FAR),
            3 => SendOp::FetchAdd { remote: FAR, add: 1 },
            _ => SendOp::CompareSwap {
                remote: FAR,
                compare: 0,
                swap: 1,
            },
        };
        let (length, packets) = if operation < 3 { (600, 3) } else { (8, 1) };
        if operation >= 3 && !atomics {
            continue;
        }
        peer.node.send(1, op, &[own.sge(0..length)])?;
        peer.node.send(2, op, &[own.sge(600..600 + length)])?;
        // The requests of READs and atomics are one packet each.
        for _ in 0..if operation < 2 { 6 } else { 2 } {
            peer.next(scene)?;
        }
        let (first, last) = (peer.own_psn(0), peer.own_psn(packets - 1));
        match operation {
            0 | 1 => peer.acknowledge(scene, last, Syndrome::ACK, 1),
            2 => answer(scene, &peer, first, &pattern(1, 600), 0, 1),
            _ => peer.atomic_response(scene, first, 1, 7),
        }
        scene
            .ends_with(&peer.node.send_cq, 1, WcStatus::Success)
            .map_err(|e| e.during(format!("operation {operation}")))?;
        scene
            .quiet(&[&peer.node.send_cq], scene.patient_for(Duration::from_secs(10)))
            .and_then(|()| peer.silence(scene, SHORT))
            .map_err(|e| e.during(format!("the second message of operation {operation}")))?;
    }
    Ok(())
}

fn destroyed<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        timeout: 10,
        retry_cnt: 7,
        ..Setup::default()
    })?;
    scene.network().set_rule(Box::new(|_| Fate::Drop));
    let own = pair.left.region(3000, full_access())?;
    pair.left.send(1, send(), &[own.whole()])?;
    let mut before = 0;
    scene.until("a lost SEND to be sent again", |scene| {
        before += scene.network().take_trace().len();
        Ok((before > 3).then_some(()))
    })?;
    pair.left.qp.destroy()?;
    scene.network().take_trace();
    let while_gone = scene.patient_for(Duration::from_secs(2));
    scene.rest(while_gone);
    let after = scene.network().take_trace();
    same!(after.len(), 0, "packets after the queue pair was destroyed");
    Ok(())
}
