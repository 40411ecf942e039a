//! Many into one: several processes, each with several queue pairs, write to, read from and send to one.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use verbs_api::{Provider, SendOp};

use crate::peer::{End, Line, Path, Shape};

const LARGE: usize = 1024 * 1024;
const SMALL: usize = 64;
/// Each queue pair: where it writes to, and what it reads.
const SLOT: usize = 2 * LARGE;
const ROUNDS: usize = 8;
const SENDS_A_ROUND: usize = 4;
/// Far longer than any queue on loopback: whatever is recovered by it was lost.
const PATH: Path = Path {
    timeout: 16,
    retry_cnt: 7,
    rd_atomic: 8,
};
const LIMIT: Duration = Duration::from_secs(120);

/// Receives of a queue pair, all posted before anything is sent, so that none is ever missing.
const RECEIVES: usize = ROUNDS * SENDS_A_ROUND;

/// The one in the middle. Each source has a thread, which mostly sleeps.
pub fn target<P: Provider>(provider: &P, lines: Vec<Line>, qps: usize) -> Result<()> {
    let barrier = std::sync::Barrier::new(lines.len());
    std::thread::scope(|scope| {
        let serve = |mut line: Line| {
            let barrier = &barrier;
            scope.spawn(move || serve_source(provider, &mut line, qps, barrier))
        };
        let threads: Vec<_> = lines.into_iter().map(serve).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

fn serve_source<P: Provider>(
    provider: &P,
    line: &mut Line,
    qps: usize,
    barrier: &std::sync::Barrier,
) -> Result<()> {
    let arrivals = qps * SLOT;
    let shape = Shape {
        qps,
        depth: RECEIVES as u32,
        length: arrivals + qps * RECEIVES * SMALL,
    };
    let ready = End::open(provider, shape).and_then(|mut end| {
        for qp in 0..qps {
            end.buffer.fill(qp * SLOT + LARGE..(qp + 1) * SLOT, read_byte(qp));
            for receive in 0..RECEIVES {
                let offset = arrivals + (qp * RECEIVES + receive) * SMALL;
                end.post_recv(qp, receive as u64, offset, SMALL)?;
            }
        }
        end.connect(line, PATH)?;
        Ok(end)
    });
    // All sources start together, and nobody waits for one that failed.
    barrier.wait();
    let end = ready?;
    line.tell("go")?;
    end.successes(qps * RECEIVES, LIMIT)?;
    line.hear("done")?;
    for qp in 0..qps {
        let written = end.buffer.to_vec(qp * SLOT..qp * SLOT + LARGE);
        ensure!(
            written.iter().all(|&byte| byte == write_byte(qp)),
            "queue pair {qp} wrote something else"
        );
    }
    line.tell("checked")
}

/// One of the many.
pub fn source<P: Provider>(provider: &P, line: &mut Line, qps: usize) -> Result<()> {
    // Own slots: what is written, where to read to; then the small message.
    let small = qps * SLOT;
    let shape = Shape {
        qps,
        depth: (2 + SENDS_A_ROUND) as u32,
        length: small + SMALL,
    };
    let mut end = End::open(provider, shape)?;
    for qp in 0..qps {
        end.buffer.fill(qp * SLOT..qp * SLOT + LARGE, write_byte(qp));
    }
    end.connect(line, PATH)?;
    line.hear("go")?;
    for _ in 0..ROUNDS {
        for qp in 0..qps {
            let (written, read) = (qp * SLOT, qp * SLOT + LARGE);
            end.buffer.fill(read..read + LARGE, 0);
            end.post(
                qp,
                0,
                SendOp::Write {
                    remote: end.remote(written)?,
                    imm: None,
                },
                written,
                LARGE,
            )?;
            end.post(
                qp,
                1,
                SendOp::Read {
                    remote: end.remote(read)?,
                },
                read,
                LARGE,
            )?;
            for send in 0..SENDS_A_ROUND {
                end.post(qp, 2 + send as u64, SendOp::Send { imm: None }, small, SMALL)?;
            }
        }
        end.successes(qps * (2 + SENDS_A_ROUND), LIMIT)?;
        for qp in 0..qps {
            let got = end.buffer.to_vec(qp * SLOT + LARGE..(qp + 1) * SLOT);
            ensure!(
                got.iter().all(|&byte| byte == read_byte(qp)),
                "queue pair {qp} read something else"
            );
        }
    }
    line.tell("done")?;
    line.hear("checked")?;
    Ok(())
}

fn write_byte(qp: usize) -> u8 {
    0x20 + qp as u8
}

fn read_byte(qp: usize) -> u8 {
    0xa0 + qp as u8
}
