//! After set-up datagrams allocate nothing: neither sent, nor received, nor copied to the members of a group.

use softroce_engine::{Acks, RxMeta, SendOperation, SendRequest, Time, TxBatch};
use verbs_api::{Payload, QpType, RecvWr, SendFlags};

use crate::counting::allocations;
use crate::ud::bench::{AREA, Bench, INBOX, QKEY, open};

const GROUP: &str = "239.1.2.3";
const MEMBERS: usize = 5;
const ROUNDS: u64 = 2_000;

#[test]
fn sending_receiving_and_copying_to_a_group_allocate_nothing() {
    let mut bench = Bench::new();
    let mut qpns = vec![bench.qpn];
    for _ in 1..MEMBERS {
        qpns.push(open(&mut bench.node, bench.now, QpType::Ud, QKEY));
    }
    let group: std::net::IpAddr = GROUP.parse().unwrap();
    for qpn in &qpns {
        bench.node.engine.attach_mcast(*qpn, group.into()).unwrap();
    }
    let (ah, own) = (bench.handle_to(GROUP), bench.node.sge(0, 1000));
    let room = bench.node.sge(INBOX, AREA + 1000);
    let mut batch = TxBatch::new(64 << 10, 64);
    let mut now = bench.now;
    let mut before = 0;
    let mut completions = 0;
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            before = allocations();
        }
        for qpn in &qpns {
            let request = RecvWr {
                wr_id: 1,
                sges: &[room],
            };
            bench.node.engine.post_recv(now, *qpn, &request).unwrap();
        }
        let request = SendRequest {
            wr_id: 2,
            op: SendOperation::SendTo {
                ah,
                remote_qpn: 0xff_ffff,
                remote_qkey: QKEY,
                imm: None,
            },
            payload: Payload::Sges(&[own]),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        bench.node.engine.post_send(now, bench.qpn, &request).unwrap();
        carry(&mut bench, &mut batch, &mut now);
        while bench.node.ring.pop().is_some() {
            completions += 1;
        }
        while bench.node.engine.poll_event().is_some() {}
    }
    assert_eq!(allocations() - before, 0);
    assert_eq!(completions, ROUNDS as usize * (MEMBERS + 1));
}

/// What leaves comes back, as the kernel does it with what is sent to a group.
fn carry(bench: &mut Bench, batch: &mut TxBatch, now: &mut Time) {
    loop {
        batch.clear();
        bench.node.engine.poll_transmit(*now, batch, Acks::Flush);
        if !batch.is_empty() {
            break;
        }
        let due = bench
            .node
            .engine
            .poll_timeout()
            .expect("a datagram waits for its turn");
        *now = (*now).max(due);
        bench.node.engine.handle_timeout(*now);
    }
    let packet = batch.packets()[0];
    let path = packet.path;
    let flow = roce_wire::icrc::Flow {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        dest_port: roce_wire::ROCE_V2_PORT,
    };
    let bytes = batch.run_mut(0, 1);
    roce_wire::icrc::seal(&flow, 0, bytes);
    let meta = RxMeta {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        segment: 0,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    };
    bench.node.engine.handle_datagram(*now, &meta, bytes);
}
