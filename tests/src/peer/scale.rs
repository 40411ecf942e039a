//! What a message costs as the number of queue pairs grows, and what idle ones cost a busy one. Both ends spin.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use verbs_api::{Provider, SendOp, Wc, WcOpcode, WcStatus};

use crate::peer::{End, Line, Path, Role};

/// Bytes of a small message.
const SMALL: usize = 8;
/// Bytes of a large one.
const LARGE: usize = 64 << 10;
/// Large messages that are posted together.
const LARGE_BURST: usize = 16;
const PATH: Path = Path {
    timeout: 16,
    retry_cnt: 7,
    rd_atomic: 4,
};
/// How long each measurement is to take.
const MEASURE: Duration = Duration::from_millis(400);
/// Messages between two looks at the clock.
const ROUND: usize = 256;
/// Of several measurements, the best counts: others were disturbed.
const REPEATS: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

/// Where in the buffer: what is sent or written, what arrives, where the peer says that it is done.
const SOURCE: usize = 0;
const ARRIVAL: usize = LARGE;
const LENGTH: usize = 2 * LARGE;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The numbers of queue pairs to measure with, ascending.
    pub counts: &'a [usize],
    /// Requests that a queue holds, and small messages that are posted together when they are not sent one by one.
    pub depth: u32,
}

/// The end that answers.
pub fn serve<P: Provider>(provider: &P, line: &mut Line, plan: Plan<'_>) -> Result<Value> {
    let mut end = open(provider, plan)?;
    let mut connected = 0;
    for &count in plan.counts {
        grow(&mut end, line, (connected, count), plan.depth)?;
        connected = count;
        for _ in 0..REPEATS {
            // Alternate: one by one, then until the last of a burst.
            echo(&end)?;
            echo(&end)?;
        }
        for _ in 0..REPEATS {
            echo(&end)?;
            echo(&end)?;
        }
    }
    Ok(json!({}))
}

/// The end that measures; prints a table as it goes.
pub fn measure<P: Provider>(provider: &P, line: &mut Line, plan: Plan<'_>) -> Result<Value> {
    let mut end = open(provider, plan)?;
    let burst_of = plan.depth as usize;
    let large_burst = LARGE_BURST.min(burst_of);
    println!(
        "queue pairs | one by one: half round trip, ns | bursts of {burst_of}: ns a message | one busy, the others idle: half round trip, ns | bursts, ns a message | Gbit/s of 64 KiB WRITEs"
    );
    let (mut rows, mut connected) = (Vec::new(), 0);
    for &count in plan.counts {
        grow(&mut end, line, (connected, count), plan.depth)?;
        connected = count;
        let (mut alternate, mut burst, mut busy_burst) = (u64::MAX, u64::MAX, u64::MAX);
        for _ in 0..REPEATS {
            alternate = alternate.min(one_by_one(&mut end, count)?);
            // In turns, so that a machine that is faster now and slower then changes no ratio.
            burst = burst.min(bursts(&end, count, (SMALL, burst_of))?);
            busy_burst = busy_burst.min(bursts(&end, 1, (SMALL, burst_of))?);
            say_done(&mut end)?;
        }
        let (mut busy, mut large) = (u64::MAX, u64::MAX);
        for _ in 0..REPEATS {
            busy = busy.min(one_by_one(&mut end, 1)?);
            large = large.min(bursts(&end, 1, (LARGE, large_burst))?);
            say_done(&mut end)?;
        }
        let gbits = 8.0 * LARGE as f64 / large as f64;
        println!("{count:>11} | {alternate:>6} | {burst:>6} | {busy:>6} | {busy_burst:>6} | {gbits:>6.1}");
        rows.push(json!({
            "qps": count, "half_round_trip_ns": alternate, "burst_ns": burst,
            "busy_half_round_trip_ns": busy, "busy_burst_ns": busy_burst, "busy_gbits": gbits,
        }));
    }
    Ok(json!({ "rows": rows }))
}

fn open<P: Provider>(provider: &P, plan: Plan<'_>) -> Result<End<P>> {
    let most = plan.counts.last().copied().unwrap_or(0);
    // At most: all receives, and requests on their way.
    End::without_qps(
        provider,
        u32::try_from(2 * most)? + 4 * plan.depth.max(LARGE_BURST as u32),
        LENGTH,
    )
}

/// From so many queue pairs to so many, each with a receive.
fn grow<P: Provider>(
    end: &mut End<P>,
    line: &mut Line,
    (from, to): (usize, usize),
    depth: u32,
) -> Result<()> {
    ensure!(from < to, "numbers of queue pairs must ascend");
    end.add_qps(to - from, depth)?;
    for qp in from..to {
        end.post_recv(qp, qp as u64, ARRIVAL, SMALL)?;
    }
    end.connect_from(from, line, PATH)
}

/// Answers messages on the queue pair that they came from, until one says that it is the last.
fn echo<P: Provider>(end: &End<P>) -> Result<()> {
    let mut batch = [Wc::default(); 32];
    let begun = Instant::now();
    loop {
        let count = end.poll(&mut batch)?;
        for wc in &batch[..count] {
            check(wc)?;
            if wc.opcode != WcOpcode::Recv {
                continue;
            }
            let is_last = end.buffer.load_u64(ARRIVAL) == LAST;
            let qp = usize::try_from(wc.wr_id)?;
            end.post_recv(qp, wc.wr_id, ARRIVAL, SMALL)?;
            end.post(qp, 0, SendOp::Send { imm: None }, SOURCE, SMALL)?;
            if is_last {
                return Ok(());
            }
        }
        ensure!(begun.elapsed() < LIMIT, "nothing has come for {LIMIT:?}");
    }
}

const LAST: u64 = u64::MAX;

/// A message and its answer on one queue pair after the other; ns of half a round trip.
fn one_by_one<P: Provider>(end: &mut End<P>, qps: usize) -> Result<u64> {
    end.buffer.store_u64(SOURCE, 0);
    // Each once, to warm up.
    for qp in 0..qps {
        exchange(end, qp)?;
    }
    let (begun, mut exchanges) = (Instant::now(), 0);
    while begun.elapsed() < MEASURE {
        for _ in 0..ROUND {
            exchange(end, exchanges % qps)?;
            exchanges += 1;
        }
    }
    let half = begun.elapsed().as_nanos() as u64 / exchanges as u64 / 2;
    say_done(end)?;
    Ok(half)
}

fn say_done<P: Provider>(end: &mut End<P>) -> Result<()> {
    end.buffer.store_u64(SOURCE, LAST);
    exchange(end, 0)
}

fn exchange<P: Provider>(end: &End<P>, qp: usize) -> Result<()> {
    end.post(qp, 0, SendOp::Send { imm: None }, SOURCE, SMALL)?;
    let mut batch = [Wc::default(); 4];
    let (begun, mut missing) = (Instant::now(), 2);
    while missing > 0 {
        let count = end.poll(&mut batch)?;
        for wc in &batch[..count] {
            check(wc)?;
            missing -= 1;
            if wc.opcode == WcOpcode::Recv {
                end.post_recv(qp, wc.wr_id, ARRIVAL, SMALL)?;
            }
        }
        ensure!(count > 0 || begun.elapsed() < LIMIT, "no answer for {LIMIT:?}");
    }
    Ok(())
}

/// WRITEs of so many bytes in bursts, each over the next queue pairs in turn and waited for; ns a message.
fn bursts<P: Provider>(end: &End<P>, qps: usize, (length, burst): (usize, usize)) -> Result<u64> {
    let mut posted = 0;
    // Each once, to warm up.
    while posted < qps {
        posted = one_burst(end, (posted, qps), (length, burst))?;
    }
    let (begun, first) = (Instant::now(), posted);
    while begun.elapsed() < MEASURE {
        posted = one_burst(end, (posted, qps), (length, burst))?;
    }
    Ok(begun.elapsed().as_nanos() as u64 / (posted - first) as u64)
}

/// One burst, after `posted` messages; returns how many there are now.
fn one_burst<P: Provider>(
    end: &End<P>,
    (posted, qps): (usize, usize),
    (length, burst): (usize, usize),
) -> Result<usize> {
    for number in posted..posted + burst {
        let op = SendOp::Write {
            remote: end.remote(SOURCE)?,
            imm: None,
        };
        end.post(number % qps, 0, op, SOURCE, length)?;
    }
    let mut batch = [Wc::default(); 32];
    let (begun, mut done) = (Instant::now(), 0);
    while done < burst {
        let got = end.poll(&mut batch)?;
        batch[..got].iter().try_for_each(check)?;
        done += got;
        ensure!(got > 0 || begun.elapsed() < LIMIT, "nothing done for {LIMIT:?}");
    }
    Ok(posted + burst)
}

fn check(wc: &Wc) -> Result<()> {
    ensure!(wc.status == WcStatus::Success, "a request failed: {wc:?}");
    Ok(())
}

/// Plays either end.
pub fn play<P: Provider>(provider: &P, line: &mut Line, role: Role, plan: Plan<'_>) -> Result<Value> {
    match role {
        Role::Listener => serve(provider, line, plan),
        Role::Caller => measure(provider, line, plan),
    }
}
