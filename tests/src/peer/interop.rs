//! The conversation with the kernel's rxe; `tests/rxe-vm/README.md` describes it, and its guest's end
//! (`interop_peer.py`) has the same constants.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use verbs_api::{Provider, SendOp, WcOpcode};

use crate::peer::{End, Line, Path, Role, Shape};

const MESSAGES: u64 = 1_000;
const BATCH: u64 = 32;
const SLOT: usize = 4_096;
const INBOX: usize = BATCH as usize * SLOT;
const SIZES: [usize; 9] = [0, 1, 63, 256, 1023, 1024, 1025, 2048, 4096];
/// ACK timeout exponent 20 is 4.3 s: an emulated machine is slow.
const PATH: Path = Path {
    timeout: 20,
    retry_cnt: 7,
    rd_atomic: 4,
};
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::Send,
        Operation::Write,
        Operation::Read,
        Operation::CompareSwap,
        Operation::FetchAdd,
    ];

    fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap | Operation::FetchAdd)
    }

    fn completion(self) -> WcOpcode {
        match self {
            Operation::Send => WcOpcode::Send,
            Operation::Write => WcOpcode::RdmaWrite,
            Operation::Read => WcOpcode::RdmaRead,
            Operation::CompareSwap => WcOpcode::CompSwap,
            Operation::FetchAdd => WcOpcode::FetchAdd,
        }
    }

    /// The word that atomics act on, before message `i`.
    fn word_before(self, i: u64) -> u64 {
        if self == Operation::CompareSwap {
            i
        } else {
            i * i.wrapping_sub(1) / 2
        }
    }
}

/// One of the ten runs of a thousand messages.
#[derive(Debug, Clone, Copy)]
struct Run {
    operation: Operation,
    requester: Role,
}

impl Run {
    fn pattern(self, i: u64) -> Vec<u8> {
        let requester = if self.requester == Role::Caller { 0 } else { 101 };
        let start = 13 * i + 50 * self.operation as u64 + requester;
        (0..size_of(i) as u64).map(|j| (start + 7 * j) as u8).collect()
    }
}

fn size_of(i: u64) -> usize {
    SIZES[(i % SIZES.len() as u64) as usize]
}

/// Holds the whole conversation; `sent_twice` tells how many packets this end sent more than once.
pub fn converse<P: Provider>(
    provider: &P,
    line: &mut Line,
    role: Role,
    sent_twice: &dyn Fn() -> u64,
) -> Result<()> {
    let outcome = all_runs(provider, line, role, sent_twice);
    let detail = outcome
        .as_ref()
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    line.tell_with("result", json!({ "ok": outcome.is_ok(), "detail": detail }))?;
    outcome?;
    let theirs = line.hear("result")?;
    ensure!(theirs["ok"] == true, "the peer failed: {}", theirs["detail"]);
    Ok(())
}

fn all_runs<P: Provider>(
    provider: &P,
    line: &mut Line,
    role: Role,
    sent_twice: &dyn Fn() -> u64,
) -> Result<()> {
    let shape = Shape {
        qps: 1,
        depth: 2 * BATCH as u32,
        length: 2 * INBOX,
    };
    let mut end = End::open(provider, shape)?;
    end.connect(line, PATH)?;
    for operation in Operation::ALL {
        for requester in [Role::Caller, Role::Listener] {
            let run = Run { operation, requester };
            one_run(&end, line, role, run).with_context(|| format!("{operation:?} by the {requester:?}"))?;
            println!("{operation:?} by the {requester:?}: {MESSAGES} messages ok");
        }
    }
    let twice = sent_twice();
    ensure!(twice == 0, "this end sent {twice} packets more than once");
    Ok(())
}

fn one_run<P: Provider>(end: &End<P>, line: &mut Line, role: Role, run: Run) -> Result<()> {
    let mut first = 0;
    while first < MESSAGES {
        let batch = first..(first + BATCH).min(MESSAGES);
        first = batch.end;
        if role == run.requester {
            line.hear("prepared")?;
            execute(end, run, batch)?;
            line.tell("executed")?;
            line.hear("checked")?;
        } else {
            prepare(end, run, batch.clone())?;
            line.tell("prepared")?;
            line.hear("executed")?;
            check(end, run, batch)?;
            line.tell("checked")?;
        }
    }
    Ok(())
}

/// The messages of a batch with the offsets of their slots.
fn slots(batch: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    batch.zip((0..).step_by(SLOT))
}

fn prepare<P: Provider>(end: &End<P>, run: Run, batch: Range<u64>) -> Result<()> {
    if run.operation.is_atomic() && batch.start == 0 {
        end.buffer.store_u64(INBOX, 0);
    }
    for (i, slot) in slots(batch) {
        match run.operation {
            Operation::Send => end.post_recv(0, i, INBOX + slot, SLOT)?,
            Operation::Write => end.buffer.fill(INBOX + slot..INBOX + slot + SLOT, 0),
            Operation::Read => end.buffer.write(INBOX + slot, &run.pattern(i)),
            Operation::CompareSwap | Operation::FetchAdd => {}
        }
    }
    Ok(())
}

fn check<P: Provider>(end: &End<P>, run: Run, batch: Range<u64>) -> Result<()> {
    if run.operation == Operation::Send {
        for (wc, i) in end
            .successes(batch.clone().count(), LIMIT)?
            .iter()
            .zip(batch.clone())
        {
            let (wanted, got) = (
                (i, size_of(i) as u32, WcOpcode::Recv),
                (wc.wr_id, wc.byte_len, wc.opcode),
            );
            ensure!(
                got == wanted,
                "a receive completed as {got:?}, {wanted:?} was expected"
            );
        }
    }
    match run.operation {
        Operation::Send | Operation::Write => {
            slots(batch).try_for_each(|(i, slot)| compare(end, run, i, INBOX + slot))
        }
        Operation::Read => Ok(()),
        Operation::CompareSwap | Operation::FetchAdd => {
            expect_word(end, INBOX, run.operation.word_before(batch.end))
        }
    }
}

fn execute<P: Provider>(end: &End<P>, run: Run, batch: Range<u64>) -> Result<()> {
    for (i, slot) in slots(batch.clone()) {
        post(end, run, i, slot)?;
    }
    for (wc, i) in end
        .successes(batch.clone().count(), LIMIT)?
        .iter()
        .zip(batch.clone())
    {
        let (wanted, got) = ((i, run.operation.completion()), (wc.wr_id, wc.opcode));
        ensure!(
            got == wanted,
            "a request completed as {got:?}, {wanted:?} was expected"
        );
    }
    for (i, slot) in slots(batch) {
        match run.operation {
            Operation::Send | Operation::Write => {}
            Operation::Read => compare(end, run, i, slot)?,
            Operation::CompareSwap | Operation::FetchAdd => {
                expect_word(end, slot, run.operation.word_before(i))?;
            }
        }
    }
    Ok(())
}

fn post<P: Provider>(end: &End<P>, run: Run, i: u64, slot: usize) -> Result<()> {
    let (word, mirror) = (end.remote(INBOX)?, end.remote(INBOX + slot)?);
    let length = if run.operation.is_atomic() { 8 } else { size_of(i) };
    match run.operation {
        Operation::Send | Operation::Write => end.buffer.write(slot, &run.pattern(i)),
        _ => end.buffer.fill(slot..slot + length, 0xee),
    }
    let op = match run.operation {
        Operation::Send => SendOp::Send { imm: None },
        Operation::Write => SendOp::Write {
            remote: mirror,
            imm: None,
        },
        Operation::Read => SendOp::Read { remote: mirror },
        Operation::CompareSwap => SendOp::CompareSwap {
            remote: word,
            compare: i,
            swap: i + 1,
        },
        Operation::FetchAdd => SendOp::FetchAdd { remote: word, add: i },
    };
    end.post(0, i, op, slot, length)
}

fn compare<P: Provider>(end: &End<P>, run: Run, i: u64, offset: usize) -> Result<()> {
    let wanted = run.pattern(i);
    let got = end.buffer.to_vec(offset..offset + wanted.len());
    if let Some(at) = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
        bail!(
            "message {i}: byte {at} of {} is {:#04x}, not {:#04x}",
            wanted.len(),
            got[at],
            wanted[at]
        );
    }
    Ok(())
}

fn expect_word<P: Provider>(end: &End<P>, offset: usize, wanted: u64) -> Result<()> {
    let got = end.buffer.load_u64(offset);
    ensure!(got == wanted, "the word is {got}, not {wanted}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Operation, Role, Run};

    #[test]
    fn patterns_are_those_of_the_guests_end() {
        let run = Run {
            operation: Operation::Read,
            requester: Role::Listener,
        };
        // (13 * 2 + 50 * 2 + 101 + 7 j) mod 256
        assert_eq!(run.pattern(2)[..3], [227, 234, 241]);
        assert_eq!(run.pattern(9), Vec::<u8>::new());
    }

    #[test]
    fn fetch_and_add_sums_what_was_added_before() {
        assert_eq!(Operation::FetchAdd.word_before(0), 0);
        assert_eq!(Operation::FetchAdd.word_before(4), 6);
        assert_eq!(Operation::CompareSwap.word_before(4), 4);
    }
}
