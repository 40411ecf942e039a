//! Both ends real, single packets lost or late between them.

use std::time::Duration;

use roce_wire::{Opcode, Operation, Psn, Syndrome};
use verbs_api::{Mtu, QueuePair, SendOp, SendWr, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Setup, full_access, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Fate, Passing, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::faults(
            "C8",
            "requests that arrive before RTR are dropped and tried again",
            &["QP-12", "LOSS-2"],
            too_early,
        ),
        Case::faults(
            "E1",
            "a lost packet is asked for once and sent again from there",
            &["LOSS-1", "NAK-1"],
            lost_packet,
        ),
        Case::faults(
            "E2",
            "a lost last packet or acknowledgement is found by the timer",
            &["LOSS-2", "RETRY-2"],
            lost_tail,
        ),
        Case::faults(
            "E7",
            "progress restores the retry budget",
            &["RETRY-4"],
            progress_restores_budget,
        ),
        Case::faults(
            "E14",
            "lost READ responses are requested again from the first missing one",
            &["LOSS-3", "READ-2"],
            lost_responses,
        ),
        Case::faults(
            "E32",
            "responses that overtake each other do no harm",
            &["LOSS-3"],
            swapped_responses,
        ),
    ]
}

fn operation(packet: &Passing) -> Option<Operation> {
    packet.headers.bth.opcode.info().map(|info| info.operation)
}

fn is_request(packet: &Passing) -> bool {
    packet
        .headers
        .bth
        .opcode
        .info()
        .is_some_and(|info| info.is_request())
}

fn too_early<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        timeout: scene.timeout(10),
        retry_cnt: 7,
        ..Setup::default()
    };
    let pair = scene.unconnected(&setup)?;
    let (left, right) = (&pair.left, &pair.right);
    right.init(&setup)?;
    let sink = right.region(64, full_access())?;
    right.recv(2, &[sink.whole()])?;
    left.connect(&setup, &right.endpoint)?;
    left.qp
        .post_send(&[SendWr::inline(1, SendOp::Send { imm: None }, b"knock")])?;
    scene.quiet(&[&left.send_cq, &right.recv_cq], Duration::from_millis(3))?;
    let seen = scene.network().take_trace();
    check!(
        seen.iter().all(|p| p.from == Side::Left),
        "a queue pair in INIT answered"
    );
    right.rtr(&setup, &left.endpoint)?;
    scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&right.recv_cq, 2, WcStatus::Success)?;
    same_bytes("message", &sink.buffer.to_vec(0..5), b"knock")
}

/// A WRITE of `packets` packets of 256 bytes from left, with its regions checked at the end.
fn long_write<B: Testbed>(scene: &mut Scene<B>, pair: &Pair<B::P>, packets: usize) -> CaseResult {
    let size = 256 * packets - 5;
    let (source, sink) = (
        pair.left.region(size, full_access())?,
        pair.right.region(size, full_access())?,
    );
    source.scribble(packets as u64);
    pair.left.send(
        1,
        SendOp::Write {
            remote: sink.remote(0),
            imm: None,
        },
        &[source.whole()],
    )?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "written bytes",
        &sink.buffer.to_vec(0..size),
        &source.buffer.to_vec(0..size),
    )
}

pub(super) fn small_mtu() -> Setup {
    Setup {
        mtu: Mtu::Mtu256,
        ..Setup::default()
    }
}

fn lost_packet<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for lost in [0u32, 1, 7, 50, 98] {
        let pair = scene.pair(&small_mtu())?;
        let first = Psn::new(pair.setup.psn[0]);
        let gap = first + lost;
        scene.network().set_rule(Box::new(move |p| {
            let hit =
                p.from == Side::Left && p.headers.bth.psn == gap && p.transmission == 1 && is_request(p);
            if hit { Fate::Drop } else { Fate::Deliver }
        }));
        scene.network().take_trace();
        long_write(scene, &pair, 100)?;
        let trace = scene.network().take_trace();
        let naks: Vec<Psn> = trace
            .iter()
            .filter(|p| {
                p.headers
                    .aeth
                    .is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Nak(_)))
            })
            .map(|p| p.headers.bth.psn)
            .collect();
        same!(
            naks,
            vec![gap],
            "PSNs of the NAKs after the loss of packet {lost}"
        );
        for packet in trace.iter().filter(|p| p.from == Side::Left && is_request(p)) {
            let distance = packet.headers.bth.psn.distance_from(gap);
            check!(
                packet.transmission == 1 || distance >= 0,
                "packet {} was sent again, though the first loss was {lost}",
                packet.headers.bth.psn.distance_from(first)
            );
        }
        let resent = trace
            .iter()
            .find(|p| p.from == Side::Left && is_request(p) && p.transmission == 2);
        same!(
            resent.map(|p| p.headers.bth.psn),
            Some(gap),
            "first packet that was sent again"
        );
        scene.network().clear_rule();
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn lost_tail<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for acknowledgement in [false, true] {
        let code = scene.timeout(12);
        let pair = scene.pair(&Setup {
            timeout: code,
            ..small_mtu()
        })?;
        let last = Psn::new(pair.setup.psn[0]) + 9;
        let mut dropped = 0;
        scene.network().set_rule(Box::new(move |p| {
            let hit = if acknowledgement {
                p.from == Side::Right && operation(p) == Some(Operation::Acknowledge)
            } else {
                p.from == Side::Left && p.headers.bth.psn == last
            };
            if hit && dropped == 0 {
                dropped += 1;
                return Fate::Drop;
            }
            Fate::Deliver
        }));
        let before = scene.bed.now();
        long_write(scene, &pair, 10)?;
        let took = scene.bed.now() - before;
        let timeout = Duration::from_nanos(4096 << code);
        check!(
            took >= timeout,
            "sent again after {took:?}, before the timer of {timeout:?} was over"
        );
        check!(
            took <= 5 * timeout + scene.bed.slack(),
            "sent again only after {took:?}; the timer may last {:?}",
            4 * timeout
        );
        scene.network().clear_rule();
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn progress_restores_budget<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // One retry in hand, and a loss in each of many messages: without a fresh budget the second one is fatal.
    let pair = scene.pair(&Setup {
        retry_cnt: 1,
        timeout: scene.timeout(8),
        ..small_mtu()
    })?;
    scene.network().set_rule(Box::new(|p| {
        let hit = p.from == Side::Left && is_request(p) && p.transmission == 1;
        if hit && p.headers.bth.psn.value() % 5 == 3 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    }));
    for _ in 0..scene.virtually(50, 15) {
        long_write(scene, &pair, 4)?;
    }
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn lost_responses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for lost in [0u32, 1, 10, 18, 19] {
        let pair = scene.pair(&Setup {
            timeout: scene.timeout(12),
            ..small_mtu()
        })?;
        let size = 256 * 20 - 1;
        let (own, far) = (
            pair.left.region(size, full_access())?,
            pair.right.region(size, full_access())?,
        );
        far.scribble(u64::from(lost));
        let first = Psn::new(pair.setup.psn[0]);
        let gap = first + lost;
        scene.network().set_rule(Box::new(move |p| {
            let hit = p.from == Side::Right && p.headers.bth.psn == gap && p.transmission == 1;
            if hit { Fate::Drop } else { Fate::Deliver }
        }));
        scene.network().take_trace();
        pair.left.send(
            1,
            SendOp::Read {
                remote: far.remote(0),
            },
            &[own.whole()],
        )?;
        pair.left.send(
            2,
            SendOp::Write {
                remote: far.remote(0),
                imm: None,
            },
            &[],
        )?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        same_bytes(
            "what was read",
            &own.buffer.to_vec(0..size),
            &far.buffer.to_vec(0..size),
        )?;
        let trace = scene.network().take_trace();
        let requests: Vec<&Passing> = trace
            .iter()
            .filter(|p| operation(p) == Some(Operation::ReadRequest))
            .collect();
        check!(
            requests.len() >= 2,
            "response {lost} was lost, but there was no second READ request"
        );
        for request in &requests[1..] {
            let reth = request.headers.reth.unwrap_or(roce_wire::Reth {
                va: 0,
                rkey: roce_wire::RKey(0),
                dma_length: 0,
            });
            let done = request.headers.bth.psn.distance_from(first);
            same!(done, lost as i32, "packets before the request that repeats");
            same!(
                reth.va,
                far.remote(256 * lost as usize).addr,
                "address of the request that repeats"
            );
            same!(
                reth.dma_length as usize,
                size - 256 * lost as usize,
                "length of the request that repeats"
            );
        }
        scene.network().clear_rule();
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn swapped_responses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        retry_cnt: 7,
        ..small_mtu()
    })?;
    let size = 256 * 16;
    let (own, far) = (
        pair.left.region(size, full_access())?,
        pair.right.region(size, full_access())?,
    );
    scene.network().set_rule(Box::new(|p| {
        let hit =
            p.headers.bth.opcode == Opcode::RC_READ_RESPONSE_MIDDLE && p.headers.bth.psn.value() % 5 == 2;
        if hit && p.transmission == 1 {
            Fate::Delay(Duration::from_micros(30))
        } else {
            Fate::Deliver
        }
    }));
    for round in 0..10 {
        far.scribble(round);
        pair.left.send(
            1,
            SendOp::Read {
                remote: far.remote(0),
            },
            &[own.whole()],
        )?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same_bytes(
            "what was read",
            &own.buffer.to_vec(0..size),
            &far.buffer.to_vec(0..size),
        )?;
    }
    scene.network().clear_rule();
    scene.still_works(&pair)
}
