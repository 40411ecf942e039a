//! Datagrams on a shared receive queue.

use roce_wire::{Deth, Opcode, QKey, Qpn};
use softroce_engine::QpConfig;
use verbs_api::{QpAttr, QpState, QpType, WcStatus};

use super::bench::{Bench, create_srq, failures, qp_config};
use crate::raw::Raw;

const QKEY: u32 = 0x77;
/// In front of the payload.
const GRH_BYTES: usize = 40;

fn bench(qps: usize) -> Bench {
    let mut raw = Raw::new();
    let srq = create_srq(&mut raw.node, 16);
    let config = QpConfig {
        qp_type: QpType::Ud,
        ..qp_config(&raw.node, srq)
    };
    let qps = (0..qps)
        .map(|_| {
            let qpn = raw.node.engine.create_qp(&config).unwrap().qpn;
            let now = raw.now;
            let init = QpAttr {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                qkey: Some(QKEY),
                ..QpAttr::default()
            };
            let rtr = QpAttr {
                state: Some(QpState::Rtr),
                ..QpAttr::default()
            };
            raw.node.modify(now, qpn, init);
            raw.node.modify(now, qpn, rtr);
            qpn
        })
        .collect();
    Bench { raw, srq, qps }
}

fn send(bench: &mut Bench, index: usize, payload: &[u8]) {
    let raw = bench.to(index);
    let mut headers = raw.headers(Opcode::UD_SEND_ONLY, 0);
    headers.bth.ack_request = false;
    headers.deth = Some(Deth {
        qkey: QKey(QKEY),
        source_qp: Qpn::new(5).unwrap(),
    });
    raw.inject(headers, payload);
}

#[test]
fn datagrams_to_several_queue_pairs_take_the_requests_in_turn() {
    let mut bench = bench(2);
    for wr_id in 0..3 {
        bench.post(wr_id, wr_id as usize * 64, 64);
    }
    for (step, index) in [1, 0, 1].into_iter().enumerate() {
        send(&mut bench, index, &[step as u8; 8]);
    }
    let qps = bench.qps.clone();
    assert_eq!(
        bench.outcomes(),
        [
            (0, qps[1], WcStatus::Success),
            (1, qps[0], WcStatus::Success),
            (2, qps[1], WcStatus::Success)
        ]
    );
    for step in 0..3 {
        assert_eq!(bench.raw.node.read(step * 64 + GRH_BYTES, 8), [step as u8; 8]);
    }
}

#[test]
fn a_datagram_that_does_not_fit_takes_no_request_from_anybody() {
    let mut bench = bench(2);
    bench.post(1, 0, GRH_BYTES + 8);
    send(&mut bench, 0, &[1; 9]);
    send(&mut bench, 0, &[1; 9]);
    assert_eq!(bench.raw.node.engine.counters().dropped_unserved, 2);
    send(&mut bench, 1, &[2; 8]);
    assert_eq!(bench.outcomes(), [(1, bench.qps[1], WcStatus::Success)]);
    send(&mut bench, 0, &[3; 8]);
    assert_eq!(bench.raw.node.engine.counters().dropped_no_receive, 1);
    assert_eq!(failures(&mut bench.raw.node), []);
}
