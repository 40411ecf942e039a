//! A target that registers memory and then makes no call: its card serves READs and WRITEs alone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use verbs_api::{Buffer, Provider, SendOp};

use crate::peer::{End, Line, Path, Shape};

const SLOT: usize = 256;
const SLOTS: usize = 32;
/// The word that the requester writes and the target's thread reads.
const WRITTEN: usize = SLOTS * SLOT;
/// The word that the target's thread writes and the requester reads.
const READ: usize = WRITTEN + 64;
const SHAPE: Shape = Shape {
    qps: 1,
    depth: 2 * SLOTS as u32,
    length: READ + 64,
};
const PATH: Path = Path {
    timeout: 17,
    retry_cnt: 7,
    rd_atomic: 16,
};
const LIMIT: Duration = Duration::from_secs(60);

/// Registers memory, connects, and sleeps until the requester says that all is over.
pub fn sleep<P: Provider>(provider: &P, line: &mut Line) -> Result<()> {
    let mut end = End::open(provider, SHAPE)?;
    end.connect(line, PATH)?;
    line.hear_at_last("over")?;
    Ok(())
}

/// Writes to a sleeping target and reads back, `count` times each, then is idle until told to end.
pub fn visit<P: Provider>(provider: &P, line: &mut Line, count: u64, idle: Duration) -> Result<Value> {
    let mut end = End::open(provider, SHAPE)?;
    end.connect(line, PATH)?;
    for first in (0..count).step_by(SLOTS / 2) {
        let batch = first..(first + SLOTS as u64 / 2).min(count);
        // The upper half of the slots is for what comes back.
        for (i, slot) in batch.clone().zip((0..).step_by(SLOT)) {
            let back = slot + SLOTS / 2 * SLOT;
            end.buffer.write(slot, &pattern(i));
            end.post(
                0,
                i,
                SendOp::Write {
                    remote: end.remote(slot)?,
                    imm: None,
                },
                slot,
                SLOT,
            )?;
            end.post(
                0,
                i,
                SendOp::Read {
                    remote: end.remote(slot)?,
                },
                back,
                SLOT,
            )?;
        }
        end.successes(2 * batch.clone().count(), LIMIT)?;
        for (i, slot) in batch.zip((SLOTS / 2 * SLOT..).step_by(SLOT)) {
            ensure!(
                end.buffer.to_vec(slot..slot + SLOT) == pattern(i),
                "message {i} came back changed"
            );
        }
    }
    println!("{}", json!({ "idle": true }));
    std::thread::sleep(idle);
    line.tell("over")?;
    Ok(json!({ "served": count }))
}

fn pattern(i: u64) -> Vec<u8> {
    (0..SLOT as u64).map(|j| (31 * i + 7 * j) as u8).collect()
}

/// A word whose halves agree; one that was torn has halves that do not.
fn whole(i: u64) -> u64 {
    let half = u64::from(i as u32);
    half << 32 | half
}

fn is_torn(word: u64) -> bool {
    word >> 32 != word & 0xffff_ffff
}

/// A thread that only reads and one that only writes, while the requester does the opposite.
pub fn spin<P: Provider>(provider: &P, line: &mut Line) -> Result<Value> {
    let mut end = End::open(provider, SHAPE)?;
    end.connect(line, PATH)?;
    let (is_over, torn, changes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (buffer, is_over, torn, changes) = (&end.buffer, &is_over, &torn, &changes);
        scope.spawn(move || watch_word(buffer, is_over, torn, changes));
        scope.spawn(move || {
            for i in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                buffer.store_u64(READ, whole(i));
            }
        });
        let heard = line.hear_at_last("over");
        is_over.store(true, Ordering::Relaxed);
        heard
    })?;
    Ok(json!({ "torn": torn.into_inner(), "changes_seen": changes.into_inner() }))
}

fn watch_word(buffer: &Buffer, is_over: &AtomicBool, torn: &AtomicU64, changes: &AtomicU64) {
    let mut last = 0;
    while !is_over.load(Ordering::Relaxed) {
        let word = buffer.load_u64(WRITTEN);
        if is_torn(word) {
            torn.fetch_add(1, Ordering::Relaxed);
        }
        if word != last {
            changes.fetch_add(1, Ordering::Relaxed);
            last = word;
        }
    }
}

/// Writes and reads words of a spinning target, `count` times each, and reports those that were torn.
pub fn tear<P: Provider>(provider: &P, line: &mut Line, count: u64) -> Result<Value> {
    let mut end = End::open(provider, SHAPE)?;
    end.connect(line, PATH)?;
    let mut torn = 0_u64;
    for first in (0..count).step_by(SLOTS) {
        let batch = first..(first + SLOTS as u64).min(count);
        for (i, slot) in batch.clone().zip((0..).step_by(SLOT)) {
            end.buffer.store_u64(slot, whole(i));
            end.post(
                0,
                i,
                SendOp::Write {
                    remote: end.remote(WRITTEN)?,
                    imm: None,
                },
                slot,
                8,
            )?;
            end.post(
                0,
                i,
                SendOp::Read {
                    remote: end.remote(READ)?,
                },
                slot + 8,
                8,
            )?;
        }
        end.successes(2 * batch.clone().count(), LIMIT)?;
        let words = batch
            .zip((8..).step_by(SLOT))
            .map(|(_, at)| end.buffer.load_u64(at));
        torn += words.filter(|&word| is_torn(word)).count() as u64;
    }
    line.tell("over")?;
    Ok(json!({ "torn": torn, "exchanged": count }))
}

#[cfg(test)]
mod tests {
    use super::{is_torn, whole};

    #[test]
    fn a_word_of_two_different_halves_is_torn() {
        assert!(!is_torn(whole(0x1234_5678_9abc)));
        assert!(is_torn(whole(7) ^ 1));
    }
}
