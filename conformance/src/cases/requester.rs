//! How often and when the requester tries again, against a responder that the case plays packet by packet.

use std::time::Duration;

use roce_wire::{NakCode, Opcode, Psn, RnrTimer, Syndrome};
use verbs_api::{QpState, QueuePair, SendOp, SendWr, WcStatus};

use super::played::{
    FAR, SHORT, acknowledge_three, expect_sends, impatient, setup, three_sends, three_unanswered,
};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::Setup;
use crate::scene::Scene;
use crate::testbed::{Passing, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "E3",
            "without an answer there are retry_cnt + 1 transmissions",
            &["RETRY-1", "RETRY-3", "FLUSH-2"],
            transmissions,
        ),
        Case::raw_peer(
            "E4",
            "a retry count of 7 is finite",
            &["RETRY-6"],
            seven_is_finite,
        )
        .of_priority(2),
        Case::raw_peer(
            "E5",
            "a time-out lasts from one to four times its setting",
            &["RETRY-2"],
            timeout_interval,
        ),
        Case::raw_peer("E6", "timeout 0 waits for ever", &["RETRY-5"], no_timeout),
        Case::raw_peer(
            "E9",
            "sequence NAKs without progress use up the retry budget",
            &["RETRY-7"],
            repeated_naks,
        ),
        Case::raw_peer(
            "E20",
            "after an RNR NAK the requester waits at least its time",
            &["RNR-2", "RNR-6"],
            rnr_wait,
        ),
        Case::raw_peer(
            "E21",
            "RNR NAKs use up rnr_retry and nothing else",
            &["RNR-1"],
            rnr_budget,
        ),
        Case::raw_peer(
            "E22",
            "an RNR retry count of 7 is endless",
            &["RNR-7"],
            endless_rnr,
        ),
        Case::raw_peer(
            "E24",
            "during the RNR wait nothing new is sent",
            &["RNR-6"],
            quiet_rnr_wait,
        )
        .of_priority(2),
    ]
}

fn transmissions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for retry_cnt in [0u8, 1, 2, 6] {
        let mut peer = scene.raw_peer(&Setup {
            retry_cnt,
            ..impatient(scene)
        })?;
        three_sends(&peer)?;
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
        scene.flushed(&peer.node.send_cq, 2..=3)?;
        peer.node.is_in(QpState::Err)?;
        let first = peer.own_psn(0);
        let sent = peer
            .drain(scene)
            .iter()
            .filter(|p| p.headers.bth.psn == first)
            .count();
        same!(
            sent,
            usize::from(retry_cnt) + 1,
            "transmissions with a retry count of {retry_cnt}"
        );
        peer.silence(scene, Duration::from_millis(50))?;
    }
    Ok(())
}

fn seven_is_finite<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        retry_cnt: 7,
        ..impatient(scene)
    })?;
    three_sends(&peer)?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
    let first = peer.own_psn(0);
    let sent = peer
        .drain(scene)
        .iter()
        .filter(|p| p.headers.bth.psn == first)
        .count();
    same!(sent, 8, "transmissions");
    Ok(())
}

fn times(packets: &[Passing], psn: Psn) -> Vec<Duration> {
    packets
        .iter()
        .filter(|p| p.headers.bth.psn == psn)
        .map(|p| p.at)
        .collect()
}

fn timeout_interval<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Codes of up to a second; in real time up to an eighth.
    let last = scene.virtually(18u8, 15);
    // A packet is seen a moment after the engine has looked at the clock; on a busy machine that may be a while.
    let early = scene.virtually(Duration::ZERO, Duration::from_millis(50));
    for timeout in [8u8, 12, 14, last] {
        let mut peer = scene.raw_peer(&Setup {
            timeout,
            retry_cnt: 3,
            ..setup()
        })?;
        three_sends(&peer)?;
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
        let end = scene.bed.now();
        let mut moments = times(&peer.drain(scene), peer.own_psn(0));
        moments.push(end);
        let least = Duration::from_nanos(4096 << timeout);
        for pair in moments.windows(2) {
            let took = pair[1] - pair[0];
            check!(
                took + early >= least && took <= 4 * least + scene.bed.slack(),
                "with timeout code {timeout} a try lasted {took:?}; it must be from {least:?} to {:?}",
                4 * least
            );
        }
    }
    Ok(())
}

fn no_timeout<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 0,
        ..setup()
    })?;
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    let time = scene.patient_for(Duration::from_secs(5));
    peer.silence(scene, time)?;
    acknowledge_three(scene, &peer)
}

fn repeated_naks<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for retry_cnt in [0u8, 2] {
        let mut peer = scene.raw_peer(&Setup {
            retry_cnt,
            timeout: 18,
            ..setup()
        })?;
        three_sends(&peer)?;
        let psn = peer.own_psn(0);
        for _ in 0..=retry_cnt {
            expect_sends(scene, &mut peer, 0, 3)?;
            peer.acknowledge(scene, psn, Syndrome::Nak(NakCode::PsnSequence), 0);
        }
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
        scene.flushed(&peer.node.send_cq, 2..=3)?;
        peer.silence(scene, SHORT)?;
    }
    Ok(())
}

fn rnr_wait<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for code in [1u8, 12, 18, 25, 0] {
        let mut peer = three_unanswered(scene)?;
        let psn = peer.own_psn(0);
        let timer = RnrTimer::new(code).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
        let before = scene.bed.now();
        peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
        let again = peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
        let took = again.at - before;
        let least = Duration::from_nanos(timer.nanos());
        check!(
            took >= least,
            "RNR timer code {code}: sent again after {took:?}, must wait {least:?}"
        );
        check!(
            took <= 2 * least + Duration::from_millis(1) + scene.bed.slack(),
            "RNR timer code {code}: sent again only after {took:?}"
        );
    }
    Ok(())
}

fn rnr_budget<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    for rnr_retry in [0u8, 1, 6] {
        let mut peer = scene.raw_peer(&Setup {
            rnr_retry,
            retry_cnt: 0,
            timeout: 18,
            ..setup()
        })?;
        three_sends(&peer)?;
        let psn = peer.own_psn(0);
        for _ in 0..=rnr_retry {
            // The others follow it, or are held back.
            while peer
                .next(scene)
                .map_err(|e| e.during(format!("rnr_retry {rnr_retry}")))?
                .headers
                .bth
                .psn
                != psn
            {}
            scene.rest(Duration::from_micros(5));
            peer.drain(scene);
            peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
        }
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RnrRetryExcErr)?;
        scene.flushed(&peer.node.send_cq, 2..=3)?;
        peer.silence(scene, SHORT)?;
        peer.node.is_in(QpState::Err)?;
    }
    Ok(())
}

fn endless_rnr<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    let mut peer = scene.raw_peer(&Setup {
        rnr_retry: 7,
        retry_cnt: 0,
        timeout: 18,
        ..setup()
    })?;
    peer.node
        .qp
        .post_send(&[SendWr::inline(1, SendOp::Send { imm: None }, b"patience")])?;
    let psn = peer.own_psn(0);
    for _ in 0..1000 {
        peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
        peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
    }
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    peer.acknowledge(scene, psn, Syndrome::ACK, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    Ok(())
}

fn quiet_rnr_wait<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Code 20 is 10.24 ms.
    let timer = RnrTimer::new(20).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    let mut peer = three_unanswered(scene)?;
    let psn = peer.own_psn(1);
    let before = scene.bed.now();
    peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    peer.node.qp.post_send(&[SendWr::inline(
        4,
        SendOp::Write {
            remote: FAR,
            imm: None,
        },
        b"new",
    )])?;
    let again = peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    let waited = again.at - before;
    check!(
        waited >= Duration::from_nanos(timer.nanos()),
        "the first packet after an RNR NAK of 10.24 ms came after {waited:?}"
    );
    expect_sends(scene, &mut peer, 2, 3)?;
    let last = peer.own_psn(3);
    peer.expect(scene, Opcode::RC_WRITE_ONLY, last)?;
    peer.acknowledge(scene, last, Syndrome::ACK, 4);
    for wr_id in 2..=4 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}
