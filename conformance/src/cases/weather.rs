//! Both ends real, and between them faults of many kinds for a long time.

use std::time::Duration;

use verbs_api::{QpState, QueuePair, SendFlags, SendOp, SendWr, WcStatus};

use super::faults::small_mtu;
use super::mix::Mix;
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
    let fewer = scene.virtually(1, 6);
    for (loss, messages) in [(10, 600 / fewer), (50, 300 / fewer), (100, 150 / fewer)] {
        let pair = scene.pair(&Setup {
            retry_cnt: 7,
            timeout: scene.timeout(8),
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
    // Timeout code 8 is 1 ms, at most 4.2 ms, and 12 is 17 ms, at most 67 ms; acknowledgements take longer on their first
    // way, but less than eight tries.
    let late = scene.virtually(Duration::from_millis(6), Duration::from_millis(80));
    let pair = scene.pair(&Setup {
        timeout: scene.virtually(8, 12),
        retry_cnt: 7,
        ..small_mtu()
    })?;
    scene.network().set_rule(Box::new(move |p| {
        let hit = p.from == Side::Right && p.transmission == 1 && p.headers.bth.psn.value() % 3 == 0;
        if hit { Fate::Delay(late) } else { Fate::Deliver }
    }));
    Mix {
        pair: &pair,
        messages: 60,
        longest: 1000,
    }
    .run(scene)?;
    scene.quiet(&[&pair.right.recv_cq, &pair.left.send_cq], 4 * late)?;
    scene.network().clear_rule();
    scene.still_works(&pair)
}

fn survived_silence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Six tries of 16.8 ms each are the least that the budget lasts; in real time all is four times as long.
    let (code, silence) = scene.virtually((12, 90), (14, 360));
    let pair = scene.pair(&Setup {
        timeout: code,
        retry_cnt: 6,
        ..Setup::default()
    })?;
    let start = scene.bed.now();
    scene.network().set_rule(Box::new(move |p| {
        if p.at < start + Duration::from_millis(silence) {
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
        timeout: scene.timeout(8),
        ..small_mtu()
    })?;
    let mut count = 0u32;
    scene.network().set_rule(Box::new(move |p| {
        count += 1;
        // Irregular, so that no message meets the same fault at each try.
        if !(count.wrapping_mul(0x9E37_79B9) >> 16).is_multiple_of(8) {
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
        messages: scene.virtually(300, 60),
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
        took < Duration::from_nanos(4096 << 14) + scene.bed.slack(),
        "40 messages beside a lossy queue pair took {took:?}"
    );
    scene.ends_with(&victim.left.send_cq, 1, WcStatus::Success)?;
    scene.network().clear_rule();
    scene.still_works(&victim)
}

fn any_schedule<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const DEPTH: u64 = 24;
    for round in 0..scene.virtually(12u64, 4) {
        let setup = Setup {
            retry_cnt: 7,
            timeout: scene.timeout(8),
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
