//! Devices in manual progress, over a cable in memory and on a standing clock.

use softroce::Softroce;
use verbs_api::{CompletionQueue, Context, Provider, QueuePair, SendOp, Wc, WcOpcode, WcStatus};

use super::pair::{End, connected, pattern};
use super::wire::devices;

fn poll(end: &End) -> Vec<Wc> {
    let mut wcs = [Wc::default(); 16];
    let count = end.cq.poll(&mut wcs).unwrap();
    wcs[..count].to_vec()
}

#[test]
fn a_send_moves_only_when_devices_progress() {
    let (left, right, _) = devices();
    let provider = Softroce::from_devices(vec![left.clone(), right.clone()]);
    let (a, b) = connected(provider.open("left").unwrap(), provider.open("right").unwrap());
    let data = pattern(3000, 5);
    a.buffer.write(0, &data);
    b.recv(1, 0, 4096);
    a.send(2, 0, 3000);
    assert!(poll(&a).is_empty() && poll(&b).is_empty());

    assert!(left.progress());
    assert!(poll(&b).is_empty());
    assert!(right.progress());
    let [received] = poll(&b)[..] else {
        panic!("one completion")
    };
    assert_eq!(
        (received.wr_id, received.status, received.opcode),
        (1, WcStatus::Success, WcOpcode::Recv)
    );
    assert_eq!((received.byte_len, received.qp_num), (3000, b.qp.qpn()));
    assert_eq!(b.buffer.to_vec(0..3000), data);

    assert!(left.progress());
    let [sent] = poll(&a)[..] else {
        panic!("one completion")
    };
    assert_eq!(
        (sent.wr_id, sent.status, sent.opcode),
        (2, WcStatus::Success, WcOpcode::Send)
    );
    assert!(!left.progress() && !right.progress());
}

#[test]
fn a_peer_that_never_answers_ends_the_request_when_the_clock_says_so() {
    let (left, right, clock) = devices();
    let provider = Softroce::from_devices(vec![left.clone(), right.clone()]);
    let (a, _b) = connected(provider.open("left").unwrap(), provider.open("right").unwrap());
    a.post(9, SendOp::Send { imm: None }, 0, 8);
    left.progress();
    for _ in 0..1000 {
        let Some(deadline) = left.next_timeout() else {
            break;
        };
        clock.advance_to(deadline);
        left.progress();
    }
    let [failed] = poll(&a)[..] else {
        panic!("one completion")
    };
    assert_eq!((failed.wr_id, failed.status), (9, WcStatus::RetryExcErr));
    // Timeout code 14 is 67 ms; eight transmissions, each waiting for one to four times that.
    let seconds = a.context.clock_ns().unwrap() as f64 / 1e9;
    assert!((8.0 * 0.067..=8.0 * 0.27).contains(&seconds), "{seconds} s");
}

#[test]
fn counters_show_what_engine_and_fabric_did() {
    let (left, right, _) = devices();
    let provider = Softroce::from_devices(vec![left.clone(), right.clone()]);
    let (a, b) = connected(provider.open("left").unwrap(), provider.open("right").unwrap());
    b.recv(1, 0, 64);
    a.send(2, 0, 64);
    while left.progress() | right.progress() {}
    assert_eq!(left.counters().fabric.sent_datagrams, 1);
    assert_eq!(left.counters().engine.sent_pkts, 1);
    assert_eq!(right.counters().engine.rcvd_pkts, 1);
    assert_eq!(right.counters().fabric.received_datagrams, 1);
}
