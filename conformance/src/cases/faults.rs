//! Both ends real, faults between them.

use std::time::Duration;

use roce_wire::{Opcode, Operation, Psn, Syndrome};
use verbs_api::{Mtu, QpState, QueuePair, SendFlags, SendOp, SendWr, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Passing, Side, Testbed};
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
        Case::faults(
            "E33",
            "with every packet doubled, all happens once",
            &["DUP-1", "DUP-2", "DUP-3"],
            doubled,
        ),
        Case::faults(
            "E34",
            "under random loss all data arrives, exactly once",
            &["LOSS-1", "LOSS-2", "LOSS-3", "DUP-1"],
            random_loss,
        ),
        Case::faults(
            "E35",
            "late acknowledgements cause no second delivery",
            &["DUP-1", "ACK-2"],
            late_acknowledgements,
        ),
        Case::faults(
            "E36",
            "a silence shorter than the retry budget is survived",
            &["RETRY-2", "RETRY-4"],
            survived_silence,
        )
        .of_priority(2),
        Case::faults(
            "E37",
            "corrupted packets are as lost",
            &["ICRC-2", "CORRUPT-1"],
            corrupted,
        ),
        Case::faults(
            "K5",
            "loss on one queue pair leaves the others alone",
            &["LOSS-4"],
            innocent_neighbours,
        ),
        Case::faults(
            "K9",
            "any schedule of faults ends, and right",
            &["LOSS-1", "DUP-1", "DUP-3", "ORDER-1"],
            any_schedule,
        )
        .needing(&[Need::Network, Need::Atomics]),
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
        timeout: 10,
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

fn small_mtu() -> Setup {
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
        let pair = scene.pair(&Setup {
            timeout: 12,
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
        let timeout = Duration::from_nanos(4096 << 12);
        check!(
            took >= timeout,
            "sent again after {took:?}, before the timer of {timeout:?} was over"
        );
        check!(
            took <= 5 * timeout,
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
        timeout: 8,
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
    for _ in 0..50 {
        long_write(scene, &pair, 4)?;
    }
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn lost_responses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for lost in [0u32, 1, 10, 18, 19] {
        let pair = scene.pair(&Setup {
            timeout: 12,
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

/// SENDs, WRITEs, READs and, where there are any, atomics in turn; everything is checked.
struct Mix<'a, B: Testbed> {
    pair: &'a Pair<B::P>,
    messages: u64,
    longest: usize,
}

impl<B: Testbed> Mix<'_, B> {
    fn run(&self, scene: &mut Scene<B>) -> CaseResult {
        let (left, right, longest) = (&self.pair.left, &self.pair.right, self.longest);
        let own = left.region(2 * longest + 8, full_access())?;
        let far = right.region(2 * longest + 8, full_access())?;
        let counter = right.region(8, full_access())?;
        let atomics = scene.bed.has(Need::Atomics);
        let mut added = 0u64;
        for n in 0..self.messages {
            let size = (n as usize * 7919) % (longest + 1);
            own.buffer.write(0, &pattern(n, size));
            let what = format!("message {n} of {size} bytes");
            match n % 4 {
                0 => {
                    right.recv(n, &[far.sge(0..longest)])?;
                    left.send(n, SendOp::Send { imm: Some(n as u32) }, &[own.sge(0..size)])?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    let wc = scene
                        .ends_with(&right.recv_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    same!(
                        (wc.immediate(), wc.byte_len as usize),
                        (Some(n as u32), size),
                        "receive of {what}"
                    );
                    same_bytes(&what, &far.buffer.to_vec(0..size), &pattern(n, size))?;
                }
                1 => {
                    left.send(
                        n,
                        SendOp::Write {
                            remote: far.remote(longest),
                            imm: None,
                        },
                        &[own.sge(0..size)],
                    )?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    same_bytes(
                        &what,
                        &far.buffer.to_vec(longest..longest + size),
                        &pattern(n, size),
                    )?;
                }
                2 => {
                    far.buffer.write(0, &pattern(n + 1, size));
                    left.send(
                        n,
                        SendOp::Read {
                            remote: far.remote(0),
                        },
                        &[own.sge(longest..longest + size)],
                    )?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    same_bytes(
                        &what,
                        &own.buffer.to_vec(longest..longest + size),
                        &pattern(n + 1, size),
                    )?;
                }
                _ if atomics => {
                    let word = own.sge(0..8);
                    left.send(
                        n,
                        SendOp::FetchAdd {
                            remote: counter.remote(0),
                            add: n,
                        },
                        &[word],
                    )?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    let original = u64::from_ne_bytes(own.buffer.to_vec(0..8).try_into().unwrap_or_default());
                    same!(original, added, "old value of atomic {n}");
                    added += n;
                    same!(counter.buffer.load_u64(0), added, "value after atomic {n}");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn doubled<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&small_mtu())?;
    scene.network().set_rule(Box::new(|_| Fate::Duplicate));
    Mix {
        pair: &pair,
        messages: 200,
        longest: 2000,
    }
    .run(scene)?;
    scene.quiet(
        &[&pair.right.recv_cq, &pair.left.send_cq],
        Duration::from_millis(5),
    )?;
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn random_loss<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for (loss, messages) in [(10, 600), (50, 300), (200, 100)] {
        let pair = scene.pair(&Setup {
            retry_cnt: 7,
            timeout: 8,
            ..small_mtu()
        })?;
        scene.network().set_weather(loss, 0, 0);
        Mix {
            pair: &pair,
            messages,
            longest: 3000,
        }
        .run(scene)
        .map_err(|e| e.during(format!("loss of {loss} per mille")))?;
        scene.network().set_weather(0, 0, 0);
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn late_acknowledgements<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Timeout code 8 is 1 ms, at most 4.2 ms; acknowledgements take longer on their first way.
    let pair = scene.pair(&Setup {
        timeout: 8,
        retry_cnt: 7,
        ..small_mtu()
    })?;
    scene.network().set_rule(Box::new(|p| {
        let hit = p.from == Side::Right && p.transmission == 1 && p.headers.bth.psn.value() % 3 == 0;
        if hit {
            Fate::Delay(Duration::from_millis(6))
        } else {
            Fate::Deliver
        }
    }));
    Mix {
        pair: &pair,
        messages: 60,
        longest: 1000,
    }
    .run(scene)?;
    scene.quiet(
        &[&pair.right.recv_cq, &pair.left.send_cq],
        Duration::from_millis(20),
    )?;
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn survived_silence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        timeout: 12,
        retry_cnt: 6,
        ..Setup::default()
    })?;
    let start = scene.bed.now();
    scene.network().set_rule(Box::new(move |p| {
        // Six tries of 16.8 ms each are the least that the budget lasts.
        if p.at < start + Duration::from_millis(90) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    }));
    let (source, sink) = (
        pair.left.region(64, full_access())?,
        pair.right.region(64, full_access())?,
    );
    pair.right.recv(2, &[sink.whole()])?;
    pair.left.send(1, SendOp::Send { imm: None }, &[source.whole()])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 2, WcStatus::Success)?;
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn corrupted<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        retry_cnt: 7,
        timeout: 8,
        ..small_mtu()
    })?;
    let mut count = 0u32;
    scene.network().set_rule(Box::new(move |p| {
        count += 1;
        // Irregular, so that no message meets the same fault at each try.
        if (count.wrapping_mul(0x9E37_79B9) >> 16) % 8 != 0 {
            return Fate::Deliver;
        }
        // Any bit but those of byte 4, which the ICRC does not cover.
        let bits = 8 * p.bytes.len() as u32;
        let bit = count.wrapping_mul(2_654_435_761) % bits;
        Fate::Corrupt {
            bit: if (32..40).contains(&bit) { 100 } else { bit },
        }
    }));
    Mix {
        pair: &pair,
        messages: 300,
        longest: 1500,
    }
    .run(scene)?;
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn innocent_neighbours<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        timeout: 14,
        ..small_mtu()
    };
    let (victim, neighbour) = (scene.pair(&setup)?, scene.pair(&setup)?);
    let qpn = victim.right.endpoint.qpn;
    scene.network().set_rule(Box::new(move |p| {
        let hit = p.headers.bth.dest_qp.value() == qpn && p.transmission < 3;
        if hit { Fate::Drop } else { Fate::Deliver }
    }));
    victim.left.qp.post_send(&[SendWr::inline(
        1,
        SendOp::Write {
            remote: Default::default(),
            imm: None,
        },
        &[],
    )])?;
    let before = scene.bed.now();
    Mix {
        pair: &neighbour,
        messages: 40,
        longest: 1000,
    }
    .run(scene)?;
    let took = scene.bed.now() - before;
    // Less than the victim's first time-out.
    check!(
        took < Duration::from_nanos(4096 << 14),
        "40 messages beside a lossy queue pair took {took:?}"
    );
    scene.ends_with(&victim.left.send_cq, 1, WcStatus::Success)?;
    scene.network().clear_rule();
    scene.still_works(&victim)
}

fn any_schedule<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const DEPTH: u64 = 24;
    for round in 0..12u64 {
        let setup = Setup {
            retry_cnt: 7,
            timeout: 8,
            rnr_retry: 7,
            psn: [0xFF_FFC0, 0xFF_FFF0],
            ..small_mtu()
        };
        let pair = scene.pair(&setup)?;
        scene.network().set_weather(30 + 10 * (round as u32 % 5), 50, 100);
        let own = pair.left.region(DEPTH as usize * 1024, full_access())?;
        let far = pair.right.region(DEPTH as usize * 1024, full_access())?;
        let (own_word, word) = (
            pair.left.region(8 * DEPTH as usize, full_access())?,
            pair.right.region(8, full_access())?,
        );
        own.scribble(round);
        // Everything is posted at once; the slots of the message's own number keep them apart.
        let mut receives = Vec::new();
        for n in 0..DEPTH {
            let slot = n as usize * 1024..n as usize * 1024 + 1 + (n as usize * 331) % 1024;
            let flags = if n % 5 == 4 {
                SendFlags::SIGNALED | SendFlags::FENCE
            } else {
                SendFlags::SIGNALED
            };
            let (sges, word_sge) = (
                [own.sge(slot.clone())],
                [own_word.sge(8 * n as usize..8 * n as usize + 8)],
            );
            let wr = match n % 3 {
                0 => {
                    receives.push((n, slot.clone()));
                    SendWr::new(n, SendOp::Send { imm: Some(n as u32) }, &sges)
                }
                1 => SendWr::new(
                    n,
                    SendOp::Write {
                        remote: far.remote(slot.start),
                        imm: None,
                    },
                    &sges,
                ),
                _ => SendWr::new(
                    n,
                    SendOp::FetchAdd {
                        remote: word.remote(0),
                        add: 1,
                    },
                    &word_sge,
                ),
            };
            pair.left.qp.post_send(&[wr.with_flags(flags)])?;
        }
        // Receives come late, so that RNR NAKs mix with all else.
        scene.rest(Duration::from_micros(300 * (round % 3)));
        for (n, slot) in &receives {
            pair.right.recv(*n, &[far.sge(slot.clone())])?;
        }
        let what = format!("round {round}");
        for n in 0..DEPTH {
            scene
                .ends_with(&pair.left.send_cq, n, WcStatus::Success)
                .map_err(|e| e.during(&what))?;
        }
        for (n, slot) in &receives {
            let wc = scene
                .ends_with(&pair.right.recv_cq, *n, WcStatus::Success)
                .map_err(|e| e.during(&what))?;
            same!(
                (wc.immediate(), wc.byte_len as usize),
                (Some(*n as u32), slot.len()),
                "receive {n} of {what}"
            );
        }
        for n in 0..DEPTH as usize {
            let slot = n * 1024..n * 1024 + 1 + (n * 331) % 1024;
            if n % 3 == 2 {
                same!(
                    own_word.buffer.load_u64(8 * n),
                    n as u64 / 3,
                    "old value of atomic {n}, {what}"
                );
            } else {
                same_bytes(&what, &far.buffer.to_vec(slot.clone()), &own.buffer.to_vec(slot))?;
            }
        }
        same!(word.buffer.load_u64(0), DEPTH / 3, "sum of the atomics, {what}");
        scene.network().set_weather(0, 0, 0);
        scene.still_works(&pair)?;
        pair.left.is_in(QpState::Rts)?;
    }
    Ok(())
}
