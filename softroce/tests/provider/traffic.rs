//! Data over UDP on loopback.

use softroce::Softroce;
use verbs_api::{
    CompletionQueue, QpAttr, QpState, QueuePair, RecvWr, SendOp, SendWr, Wc, WcFlags, WcOpcode, WcStatus,
};

use super::pair::{End, over_udp, pattern};

#[test]
fn messages_of_all_sizes_arrive_whole_both_ways() {
    let (a, b) = over_udp();
    for (round, size) in [0, 1, 63, 1024, 4097, 65_536, 500_000].into_iter().enumerate() {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let data = pattern(size, round as u8);
            from.buffer.write(0, &data);
            to.buffer.fill(0..size, 0xee);
            to.recv(1, 0, size);
            from.send(2, 0, size);
            assert_eq!(to.success(1).byte_len as usize, size);
            from.success(2);
            assert_eq!(to.buffer.to_vec(0..size), data, "{size} bytes");
        }
    }
}

#[test]
fn an_immediate_travels_with_a_send() {
    let (a, b) = over_udp();
    b.recv(1, 0, 16);
    a.post(
        2,
        SendOp::Send {
            imm: Some(0x0102_0304),
        },
        0,
        16,
    );
    let wc = b.success(1);
    assert_eq!((wc.flags, wc.immediate()), (WcFlags::WITH_IMM, Some(0x0102_0304)));
}

#[test]
fn inline_data_may_be_reused_at_once() {
    let (a, b) = over_udp();
    b.recv(1, 0, 64);
    let mut bytes = *b"inline bytes";
    let request = SendWr::<Softroce>::inline(2, SendOp::Send { imm: None }, &bytes);
    a.qp.post_send(&[request]).unwrap();
    bytes.fill(0);
    b.success(1);
    assert_eq!(b.buffer.to_vec(0..12), b"inline bytes");
}

#[test]
fn a_long_stream_keeps_order_and_content() {
    let (a, b) = over_udp();
    const MESSAGES: u64 = 5_000;
    const SIZE: usize = 512;
    let offset = |i: u64| (i % 128) as usize * SIZE;
    let (mut posted, mut received, mut sent, mut receives) = (0, 0, 0, 0);
    while received < MESSAGES || sent < MESSAGES {
        while receives < MESSAGES && receives < received + 128 {
            b.recv(receives, offset(receives), SIZE);
            receives += 1;
        }
        while posted < MESSAGES && posted < sent + 64 {
            a.buffer.store_u64(offset(posted), posted);
            a.send(posted, offset(posted), SIZE);
            posted += 1;
        }
        for wc in drain(&b) {
            assert_eq!((wc.wr_id, wc.status), (received, WcStatus::Success));
            assert_eq!(b.buffer.load_u64(offset(received)), received);
            received += 1;
        }
        for wc in drain(&a) {
            assert_eq!((wc.wr_id, wc.status), (sent, WcStatus::Success));
            sent += 1;
        }
    }
}

fn drain(end: &End) -> Vec<Wc> {
    let mut wcs = [Wc::default(); 32];
    let count = end.cq.poll(&mut wcs).unwrap();
    wcs[..count].to_vec()
}

#[test]
fn a_bad_request_in_a_list_is_named_and_earlier_ones_go() {
    let (a, b) = over_udp();
    b.recv(1, 0, 64);
    let (good, many) = ([a.sge(0, 8)], [a.sge(0, 8); 40]);
    let list = [
        SendWr::<Softroce>::new(1, SendOp::Send { imm: None }, &good),
        SendWr::new(2, SendOp::Send { imm: None }, &many),
        SendWr::new(3, SendOp::Send { imm: None }, &good),
    ];
    let refused = a.qp.post_send(&list).unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (1, 22));
    b.success(1);
    a.success(1);
    let refused =
        a.qp.post_recv(&[RecvWr {
            wr_id: 4,
            sges: &many,
        }])
        .unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (0, 22));
}

#[test]
fn a_queue_pair_talks_to_itself() {
    let end = End::new(super::pair::open(), None);
    end.connect(end.gid(), end.qp.qpn());
    end.buffer.write(0, b"to myself");
    end.recv(1, 1000, 100);
    end.send(2, 0, 9);
    let mut seen = [end.completion(), end.completion()];
    seen.sort_by_key(|wc| wc.wr_id);
    assert_eq!(
        seen.map(|wc| (wc.wr_id, wc.status, wc.opcode)),
        [
            (1, WcStatus::Success, WcOpcode::Recv),
            (2, WcStatus::Success, WcOpcode::Send),
        ]
    );
    assert_eq!(end.buffer.to_vec(1000..1009), b"to myself");
}

#[test]
fn what_a_leaving_program_received_is_acknowledged() {
    for leave_by_error in [false, true] {
        let (a, b) = over_udp();
        b.recv(1, 0, 64);
        a.send(2, 0, 64);
        b.success(1);
        if leave_by_error {
            b.qp.modify(&QpAttr {
                state: Some(QpState::Err),
                ..QpAttr::default()
            })
            .unwrap();
            a.success(2);
        } else {
            drop(b);
            a.success(2);
        }
        assert_eq!(a.context.device().counters().engine.retransmitted_bytes, 0);
    }
}
