//! What nobody acknowledges has a rate, however many queue pairs share it.

use softroce_engine::Acks;
use verbs_api::QpType;

use super::bench::{Bench, QKEY, open, send_to};

const QPS: usize = 4_000;

/// All waking for each would be some 80 rounds a message.
#[test]
fn thousands_of_queue_pairs_that_wait_for_their_turn_do_not_all_wake_for_each() {
    let mut bench = Bench::new();
    let handle = bench.handle();
    let start = bench.now;
    let qps: Vec<u32> = (0..QPS)
        .map(|_| open(&mut bench.node, start, QpType::Ud, QKEY))
        .collect();
    let sge = bench.node.sge(0, 1024);
    for qpn in qps {
        bench.node.post(start, qpn, 1, send_to(handle, None), &[sge]);
    }
    let (mut sent, mut rounds) = (0, 0);
    while sent < QPS {
        sent += bench.node.transmit(bench.now, Acks::Flush).len();
        rounds += 1;
        if let Some(due) = bench.node.engine.poll_timeout() {
            bench.now = bench.now.max(due);
        }
        assert!(rounds < 5 * QPS, "{sent} messages after {rounds} rounds");
    }
    // Each counts as some 2.9 KB: the line wastes nothing of the rate.
    let micros = bench.now.since(start) / 1000;
    assert!((11_000..12_000).contains(&micros), "{micros} us");
}
