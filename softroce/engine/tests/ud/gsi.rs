//! Queue pair 1.

use softroce_engine::{QpConfig, SendOperation};
use verbs_api::{ErrorKind, QpType, SqSigType, WcStatus};

use super::bench::{AREA, Bench, INBOX, headers, open};
use crate::node::{Connection, Node};

const GSI_QKEY: u32 = 0x8001_0000;

fn config(node: &Node) -> QpConfig {
    QpConfig {
        pd: node.pd,
        qp_type: QpType::Gsi,
        send_cq: Some(node.cq),
        recv_cq: Some(node.cq),
        srq: None,
        xrc_domain: None,
        cap: Connection::default().cap,
        sq_sig: SqSigType::All,
    }
}

#[test]
fn it_has_number_one_and_there_is_one_of_it() {
    let mut bench = Bench::new();
    let (now, max_qp) = (bench.now, bench.node.engine.device_attr().max_qp);
    assert_eq!(open(&mut bench.node, now, QpType::Gsi, 0), 1);
    let init = config(&bench.node);
    let error = bench.node.engine.create_qp(&init).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    bench.node.engine.destroy_qp(now, 1).unwrap();
    assert!(bench.node.engine.query_qp(1).is_err());
    assert_eq!(bench.node.engine.create_qp(&init).unwrap().qpn, 1);
    assert_eq!(bench.node.engine.device_attr().max_qp, max_qp);
}

#[test]
fn it_sends_and_takes_its_own_q_key_whatever_else_is_said() {
    let mut bench = Bench::new();
    let now = bench.now;
    open(&mut bench.node, now, QpType::Gsi, 0x1234);
    let ah = bench.handle();
    let sge = bench.node.sge(0, 256);
    for (qkey, expected) in [(GSI_QKEY, GSI_QKEY), (0x8000_0001, GSI_QKEY)] {
        let op = SendOperation::SendTo {
            ah,
            remote_qpn: 1,
            remote_qkey: qkey,
            imm: None,
        };
        bench.node.post(now, 1, 3, op, &[sge]);
        let sent = bench.sent_one();
        let deth = sent.headers.deth.unwrap();
        assert_eq!((deth.qkey.0, deth.source_qp.value()), (expected, 1));
        assert_eq!(sent.headers.bth.dest_qp.value(), 1);
    }
    assert_eq!(bench.node.completions().len(), 2);
    let room = bench.node.sge(INBOX, AREA + 256);
    bench.node.recv(now, 1, 4, &[room]);
    bench.inject(&headers(1, 0x1234), &[1; 256]);
    assert_eq!(bench.node.completions(), []);
    bench.inject(&headers(1, GSI_QKEY), &[1; 256]);
    let wc = bench.completion();
    assert_eq!(
        (wc.wr_id, wc.status, wc.byte_len, wc.qp_num),
        (4, WcStatus::Success, 296, 1)
    );
}

#[test]
fn it_is_in_no_group() {
    let mut bench = Bench::new();
    let now = bench.now;
    open(&mut bench.node, now, QpType::Gsi, 0);
    let group = "239.1.2.3".parse::<std::net::IpAddr>().unwrap().into();
    let error = bench.node.engine.attach_mcast(1, group).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
