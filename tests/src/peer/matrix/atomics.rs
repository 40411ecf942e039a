//! Atomics: a chain of them on one word, whose every intermediate value is known.

use anyhow::{Result, ensure};
use serde_json::json;
use verbs_api::{Provider, QpType, SendOp, WcOpcode};

use super::area::{Area, mixed};
use super::bench::Bench;
use super::link::{Link, Terms};
use super::talk::Ending;
use super::tally::{self, Expected};
use crate::peer::Role;
use crate::peer::end::number;

/// Atomics in a chain; more than may be outstanding.
const CHAIN: u64 = 40;

/// Which atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    CompareSwap,
    FetchAdd,
}

/// One step: what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

impl Atomic {
    pub const ALL: [Atomic; 2] = [Atomic::CompareSwap, Atomic::FetchAdd];

    /// As in a case's name.
    pub fn name(self) -> &'static str {
        match self {
            Atomic::CompareSwap => "CompareSwap",
            Atomic::FetchAdd => "FetchAdd",
        }
    }

    fn completion(self) -> WcOpcode {
        match self {
            Atomic::CompareSwap => WcOpcode::CompSwap,
            Atomic::FetchAdd => WcOpcode::FetchAdd,
        }
    }

    /// Step `i` on a word that holds `word`: every third comparison fails.
    fn step(self, i: u64, word: u64) -> Step {
        match self {
            Atomic::CompareSwap => Step::CompareSwap {
                compare: if i % 3 == 2 { !word } else { word },
                swap: mixed(i),
            },
            Atomic::FetchAdd => Step::FetchAdd { add: mixed(i) },
        }
    }
}

impl Step {
    fn apply(self, word: u64) -> u64 {
        match self {
            Step::CompareSwap { compare, swap } if compare == word => swap,
            Step::CompareSwap { .. } => word,
            Step::FetchAdd { add } => word.wrapping_add(add),
        }
    }
}

/// Runs the chain, `requester` asks.
pub fn run<P: Provider>(bench: &mut Bench<'_, P>, atomic: Atomic, requester: Role) -> Result<Ending> {
    let before = (bench.instruments.counters)();
    let link = Link::connect(bench, QpType::Rc, Terms::default())?;
    let (target, answers) = (Area::Written.start(), Area::Fetched.start());
    if bench.role == requester {
        bench.talk.hear("prepared")?;
        let mut words = Vec::new();
        let mut word = 0;
        for i in 0..CHAIN {
            let step = atomic.step(i, word);
            let remote = bench.remote(target);
            let op = match step {
                Step::CompareSwap { compare, swap } => SendOp::CompareSwap {
                    remote,
                    compare,
                    swap,
                },
                Step::FetchAdd { add } => SendOp::FetchAdd { remote, add },
            };
            link.post(bench, i, op, (answers + 8 * i as usize, 8))?;
            words.push(word);
            word = step.apply(word);
        }
        let done = link.successes(words.len())?;
        for (i, (wc, word)) in done.iter().zip(words).enumerate() {
            let got = (wc.wr_id, wc.opcode, bench.buffer.load_u64(answers + 8 * i));
            let wanted = (i as u64, atomic.completion(), word);
            ensure!(
                got == wanted,
                "atomic {i} completed as {got:x?}, {wanted:x?} was expected"
            );
        }
        bench.talk.tell_with("executed", json!({ "word": word }))?;
        bench.talk.hear("checked")?;
    } else {
        Area::Written.wipe(&bench.buffer);
        bench.buffer.store_u64(target, 0);
        bench.talk.tell("prepared")?;
        let wanted = number(&bench.talk.hear("executed")?, "word")?;
        let got = [target, target + 8].map(|at| bench.buffer.load_u64(at));
        let untouched = 0xeeee_eeee_eeee_eeee;
        ensure!(
            got == [wanted, untouched],
            "the word and the next are {got:x?}, not {wanted:x} and {untouched:x}"
        );
        bench.talk.tell("checked")?;
    }
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    tally::check(&troubles, Expected::default())?;
    Ok(Ending::Passed)
}

#[cfg(test)]
mod tests {
    use super::Atomic;

    #[test]
    fn every_third_comparison_fails_and_leaves_the_word() {
        let apply = |i, word| Atomic::CompareSwap.step(i, word).apply(word);
        assert_ne!(apply(0, 5), 5);
        assert_ne!(apply(1, 5), 5);
        assert_eq!(apply(2, 5), 5);
    }

    #[test]
    fn additions_wrap() {
        let sum = (0..8).fold(0u64, |word, i| Atomic::FetchAdd.step(i, word).apply(word));
        let plain: u128 = (0..8).map(|i| u128::from(super::mixed(i))).sum();
        assert!(plain > u128::from(u64::MAX));
        assert_eq!(u128::from(sum), plain & u128::from(u64::MAX));
    }
}
