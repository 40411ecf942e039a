//! The data path does not allocate.

#[path = "provider/pair.rs"]
mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use verbs_api::SendOp;

use pair::{End, over_udp};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the whole process, background threads included, while `body` runs.
fn allocations(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    body();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn exchange(a: &End, b: &End, rounds: u64) {
    for round in 0..rounds {
        for size in [0, 8, 4096, 60_000] {
            b.recv(round, 0, size);
            a.send(round, 0, size);
            b.success(round);
            a.success(round);
            a.post(
                round,
                SendOp::Write {
                    remote: b.remote(0),
                    imm: None,
                },
                0,
                size,
            );
            a.success(round);
            a.post(round, SendOp::Read { remote: b.remote(0) }, 0, size);
            a.success(round);
        }
        a.post(
            round,
            SendOp::FetchAdd {
                remote: b.remote(0),
                add: 1,
            },
            64,
            8,
        );
        a.success(round);
    }
}

// One test only: another thread of the harness would be counted too.
#[test]
fn the_data_path_does_not_allocate() {
    let (a, b) = over_udp();
    exchange(&a, &b, 20);
    let is_quick = std::env::var_os("SOFTROCE_QUICK").is_some();
    let count = allocations(|| exchange(&a, &b, if is_quick { 50 } else { 500 }));
    assert_eq!(count, 0);
}
