//! Very many queue pairs between two processes: made, connected, used once each, and destroyed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use verbs_api::{Provider, SendOp, WcOpcode};

use crate::peer::{End, Line, Path, Role};

/// A message: the number of its queue pair.
const MESSAGE: usize = 8;
/// So few that a peer whose thread sleeps keeps up.
const PATH: Path = Path {
    timeout: 16,
    retry_cnt: 7,
    rd_atomic: 4,
};
const LIMIT: Duration = Duration::from_secs(60);

/// Where messages lie in the buffer: first those to be sent, then those that arrive.
fn offsets(qps: usize, qp: usize) -> (usize, usize) {
    (qp * MESSAGE, (qps + qp) * MESSAGE)
}

/// Plays either end with `qps` queue pairs of this depth; returns how long each phase took, and what an idle queue pair
/// costs in memory. The caller sends one message on each; the listener checks that each arrived where it belongs.
pub fn play<P: Provider>(
    provider: &P,
    line: &mut Line,
    role: Role,
    (qps, depth): (usize, u32),
) -> Result<Value> {
    let mut end = End::without_qps(provider, u32::try_from(2 * qps)?, 2 * qps * MESSAGE)?;
    for qp in 0..qps {
        end.buffer.store_u64(offsets(qps, qp).0, qp as u64);
    }
    let resident_before = resident_bytes()?;
    let begun = Instant::now();
    end.add_qps(qps, depth)?;
    for qp in 0..qps {
        end.post_recv(qp, qp as u64, offsets(qps, qp).1, MESSAGE)?;
    }
    end.connect(line, PATH)?;
    let connected = Instant::now();
    match role {
        Role::Caller => {
            for qp in 0..qps {
                let op = SendOp::Send { imm: None };
                end.post(qp, qp as u64, op, offsets(qps, qp).0, MESSAGE)?;
            }
            end.successes(qps, LIMIT)?;
        }
        Role::Listener => check_arrivals(&end, qps)?,
    }
    let told = Instant::now();
    let resident = resident_bytes()?.saturating_sub(resident_before);
    // Nobody destroys what the other still sends to.
    line.tell("told")?;
    line.hear("told")?;
    let destroying = Instant::now();
    end.destroy_qps(0)?;
    Ok(json!({
        "qps": qps,
        "depth": depth,
        "connect_ms": connected.duration_since(begun).as_millis() as u64,
        "messages_ms": told.duration_since(connected).as_millis() as u64,
        "destroy_ms": destroying.elapsed().as_millis() as u64,
        "total_ms": begun.elapsed().as_millis() as u64,
        "bytes_per_idle_qp": resident / qps as u64,
    }))
}

fn check_arrivals<P: Provider>(end: &End<P>, qps: usize) -> Result<()> {
    let mut has_come = vec![false; qps];
    for wc in end.successes(qps, LIMIT)? {
        let qp = usize::try_from(wc.wr_id)?;
        let message = end.buffer.load_u64(offsets(qps, qp).1);
        ensure!(
            wc.opcode == WcOpcode::Recv && wc.qp_num == end.qpn(qp) && message == qp as u64,
            "queue pair {qp} received message {message}: {wc:?}"
        );
        ensure!(
            !std::mem::replace(&mut has_come[qp], true),
            "queue pair {qp} received twice"
        );
    }
    Ok(())
}

/// Memory of this process that is in use and not merely reserved.
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes
        .context("no VmRSS in /proc/self/status")?
        .trim()
        .parse()?;
    Ok(kilobytes * 1024)
}
