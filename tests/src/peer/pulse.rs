//! A slow, regular conversation that notices every pause: one small message forth and back each few
//! milliseconds. It takes hardly any processor time, so many pairs fit on a small machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use verbs_api::{Provider, SendOp, Wc, WcOpcode, WcStatus};

use crate::peer::{End, Line, Path, Shape};

const SHAPE: Shape = Shape {
    qps: 1,
    depth: 16,
    length: 4096,
};
const MESSAGE: usize = 64;
const PAUSE: Duration = Duration::from_millis(4);
/// Messages are in one place, arrivals in another.
const ARRIVAL: usize = 2048;
/// Where a message says that it is the last.
const LAST: usize = 8;
/// After so long without an answer, the message has been acknowledged and its receiver is gone or stopped.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Longer than any retry budget that tests choose.
const LIMIT: Duration = Duration::from_secs(60);

/// Answers each message, until the one that says it is the last.
///
/// `connected` runs once the conversation may begin, and before it does.
pub fn answer<P: Provider>(
    provider: &P,
    line: &mut Line,
    path: Path,
    connected: impl FnOnce(),
) -> Result<Value> {
    let mut end = End::open(provider, SHAPE)?;
    end.post_recv(0, 0, ARRIVAL, MESSAGE)?;
    end.connect(line, path)?;
    connected();
    line.tell("go")?;
    let machine = Oversleep::watch();
    loop {
        let wc = end.successes(1, LIMIT)?[0];
        if wc.opcode != WcOpcode::Recv {
            continue;
        }
        let is_last = end.buffer.load_u8(ARRIVAL + LAST) == 1;
        let message = end.buffer.to_vec(ARRIVAL..ARRIVAL + MESSAGE);
        end.buffer.write(0, &message);
        end.post_recv(0, 0, ARRIVAL, MESSAGE)?;
        end.post(0, 1, SendOp::Send { imm: None }, 0, MESSAGE)?;
        if is_last {
            while end.successes(1, LIMIT)?[0].opcode != WcOpcode::Send {}
            return Ok(json!({ "oversleep_us": machine.longest_us() }));
        }
    }
}

/// Sends a message each few milliseconds for `duration` and reports pauses and how it ended.
pub fn pulse<P: Provider>(provider: &P, line: &mut Line, path: Path, duration: Duration) -> Result<Value> {
    let mut end = End::open(provider, SHAPE)?;
    end.post_recv(0, 0, ARRIVAL, MESSAGE)?;
    end.connect(line, path)?;
    line.hear("go")?;
    let (begun, machine) = (Instant::now(), Oversleep::watch());
    let (mut longest, mut exchanges) = (Duration::ZERO, 0_u64);
    let mut is_last = false;
    while !is_last {
        is_last = begun.elapsed() >= duration;
        end.buffer.store_u64(0, exchanges);
        end.buffer.fill(LAST..LAST + 1, u8::from(is_last));
        let sent = Instant::now();
        end.post(0, 1, SendOp::Send { imm: None }, 0, MESSAGE)?;
        if let Some((failed, asked)) = await_answer(&end)? {
            return Ok(json!({
                "exchanges": exchanges, "error": format!("{:?}", failed.status),
                "error_after_us": asked.unwrap_or(sent).elapsed().as_micros() as u64,
                "longest_us": longest.as_micros() as u64, "oversleep_us": machine.longest_us(),
            }));
        }
        longest = longest.max(sent.elapsed());
        let answered = end.buffer.load_u64(ARRIVAL);
        ensure!(
            answered == exchanges,
            "message {exchanges} was answered as {answered}"
        );
        exchanges += 1;
        std::thread::sleep(PAUSE);
    }
    Ok(json!({
        "exchanges": exchanges, "error": null,
        "longest_us": longest.as_micros() as u64, "oversleep_us": machine.longest_us(),
    }))
}

/// Waits for the message to be acknowledged and answered. If a completion failed, returns it, and when the message was
/// sent again: who waits for an answer alone never learns that nobody is there.
fn await_answer<P: Provider>(end: &End<P>) -> Result<Option<(Wc, Option<Instant>)>> {
    let mut waiting_for = 2;
    let mut asked = None;
    let mut batch = [Wc::default(); 3];
    while waiting_for > 0 {
        let limit = if asked.is_none() { ANSWER_LIMIT } else { LIMIT };
        let count = end.next(&mut batch[..waiting_for], limit)?;
        if count == 0 && asked.is_none() {
            asked = Some(Instant::now());
            end.post(0, 1, SendOp::Send { imm: None }, 0, MESSAGE)?;
            waiting_for += 1;
            continue;
        }
        ensure!(count > 0, "no completion within {LIMIT:?}");
        for wc in &batch[..count] {
            if wc.status != WcStatus::Success {
                return Ok(Some((*wc, asked)));
            }
            if wc.opcode == WcOpcode::Recv {
                end.post_recv(0, 0, ARRIVAL, MESSAGE)?;
            }
        }
        waiting_for -= count;
    }
    Ok(None)
}

/// How much longer than asked for this process slept: what a pause owes to the machine, not to softroce.
#[derive(Debug)]
struct Oversleep {
    longest_us: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Oversleep {
    fn watch() -> Self {
        let watch = Oversleep {
            longest_us: Arc::new(AtomicU64::new(0)),
            is_over: Arc::new(AtomicBool::new(false)),
        };
        let (longest_us, is_over) = (Arc::clone(&watch.longest_us), Arc::clone(&watch.is_over));
        std::thread::spawn(move || {
            const NAP: Duration = Duration::from_millis(1);
            while !is_over.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                std::thread::sleep(NAP);
                let excess = asleep.elapsed().saturating_sub(NAP);
                longest_us.fetch_max(excess.as_micros() as u64, Ordering::Relaxed);
            }
        });
        watch
    }

    fn longest_us(&self) -> u64 {
        self.longest_us.load(Ordering::Relaxed)
    }
}

impl Drop for Oversleep {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
