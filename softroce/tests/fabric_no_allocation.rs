//! The fabric's data path does not allocate once it is open.

#[path = "support/fabric.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use softroce::Fabric;
use softroce_engine::TxBatch;
use support::*;

/// Counts what the current thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn sending_receiving_passing_on_and_the_care_for_steering_do_not_allocate() {
    let address = fresh_address();
    let mut members = [open(address), open(address), open(address)];
    let group = "239.255.77.99".parse().unwrap();
    for member in &mut members {
        member.join(group).unwrap();
    }
    let qpns = [0, 1, 2].map(|at: usize| members[at].qpn_slice().start);
    let way = path(address, address);
    let other_way = softroce_engine::Path {
        traffic_class: 4,
        hop_limit: 9,
        ..way
    };
    let group_way = path(address, group);
    let mut batch = TxBatch::new(1 << 17, 128);
    let mut received = 0;
    let before = ALLOCATIONS.with(Cell::get);
    // Long enough for checks by the timer, and from the start for links that were not accepted yet.
    let end = Instant::now() + Duration::from_millis(200);
    let mut sent = 0;
    while Instant::now() < end {
        batch.clear();
        for tag in 0..12 {
            let (len, way) = if tag % 5 == 0 {
                (24, other_way)
            } else {
                (1040, way)
            };
            if let Some(bytes) = batch.push(way, len) {
                fill_packet(bytes, qpns[tag as usize / 4], tag);
                sent += 1;
            }
        }
        if let Some(bytes) = batch.push(group_way, 60) {
            fill_packet(bytes, 0xff_ffff, 0);
        }
        members[sent % 3].send(&mut batch);
        for member in &mut members {
            member.recv(&mut |_, bytes| received += bytes.len());
            std::hint::black_box((member.receive_pressure(), member.counters(), member.qpn_slice()));
        }
    }
    let allocations = ALLOCATIONS.with(Cell::get) - before;
    assert!(
        sent > 1000 && received > 100_000,
        "{sent} packets sent, {received} bytes received"
    );
    assert_eq!(allocations, 0);
}
