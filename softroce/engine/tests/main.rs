//! The engine in virtual time. All in one program, so that what it stands on is linked once.

// What tests stand on: an engine with its objects; two of them and a wire; one whose peer is the test; allocations.
#[path = "bench/counting.rs"]
mod counting;
#[path = "bench/node.rs"]
mod node;
#[path = "bench/pair.rs"]
mod pair;
#[path = "bench/raw.rs"]
mod raw;

/// Whether there is little time: long tests do a part of their work.
fn is_quick() -> bool {
    std::env::var_os("SOFTROCE_QUICK").is_some()
}

mod allocation;
mod allocation_datagrams;
mod audit;
mod blind_attacker;
mod fuzz_corpus;
mod golden;
mod mem;
mod rc;
mod srq;
mod state;
mod uc;
mod ud;
mod xrc;
