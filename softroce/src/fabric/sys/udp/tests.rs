use super::*;

fn options() -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: None,
        receive_trains: true,
        header_fields: HeaderFields::Reported,
        sharing: Sharing::SameUser,
    }
}

fn pair(address: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
    let any: SocketAddr = address.parse().unwrap();
    let (left, right) = (
        UdpSocket::bind(&any, options()).unwrap(),
        UdpSocket::bind(&any, options()).unwrap(),
    );
    let to = right.local_address().unwrap();
    (left, right, to)
}

fn message(start: u32, len: u32, to: SocketAddr) -> Message {
    Message {
        start,
        len,
        packets: 1,
        segment_bytes: 0,
        to,
        traffic_class: None,
        hop_limit: None,
    }
}

/// Everything that arrives, as (bytes, segment size, traffic class, hop limit).
fn all_arrivals(socket: &UdpSocket) -> Vec<(Vec<u8>, usize, u8, u8)> {
    let mut arena = ReceiveArena::new();
    let mut all = Vec::new();
    loop {
        let count = socket.receive(&mut arena);
        if count == 0 {
            return all;
        }
        for at in 0..count {
            let got = arena.datagram(at);
            assert!(!got.is_cut_off);
            all.push((
                got.bytes.to_vec(),
                got.segment_bytes,
                got.traffic_class,
                got.hop_limit,
            ));
        }
    }
}

#[test]
fn a_train_arrives_whole_with_its_segment_size_in_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (left, right, to) = pair(address);
        let buffer: Vec<u8> = (0..250u8).collect();
        let train = Message {
            packets: 3,
            segment_bytes: 100,
            ..message(0, 250, to)
        };
        assert_eq!(left.send(&mut SendArena::new(), &buffer, &[train]).unwrap(), 1);
        let arrivals = all_arrivals(&right);
        assert_eq!(arrivals.len(), 1, "{address}");
        assert_eq!((&arrivals[0].0, arrivals[0].1), (&buffer, 100));
    }
}

#[test]
fn many_messages_leave_in_one_call_and_keep_their_order() {
    let (left, right, to) = pair("127.0.0.1:0");
    let buffer: Vec<u8> = (0..20u8).collect();
    let messages: Vec<Message> = (0..20).map(|i| message(i, 1, to)).collect();
    assert_eq!(left.send(&mut SendArena::new(), &buffer, &messages).unwrap(), 20);
    let got: Vec<u8> = all_arrivals(&right).iter().map(|a| a.0[0]).collect();
    assert_eq!(got, buffer);
}

#[test]
fn traffic_class_and_hop_limit_travel_with_each_packet() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (left, right, to) = pair(address);
        let special = Message {
            traffic_class: Some(0x68),
            hop_limit: Some(7),
            ..message(0, 4, to)
        };
        left.send(&mut SendArena::new(), &[1; 8], &[special, message(4, 4, to)])
            .unwrap();
        let arrivals = all_arrivals(&right);
        assert_eq!((arrivals[0].2, arrivals[0].3), (0x68, 7), "{address}");
        assert_eq!(arrivals[1].2, 0);
        assert!(arrivals[1].3 >= 32);
    }
}

/// The kernel's rxe sends such. Before, nothing of it was seen over IPv6, and nothing told: the system dropped it all.
#[test]
fn what_carries_no_udp_checksum_arrives_in_both_families() {
    const SO_NO_CHECK: libc::c_int = 11;
    const UDP_NO_CHECK6_TX: libc::c_int = 101;
    for (address, level, name) in [
        ("127.0.0.1:0", libc::SOL_SOCKET, SO_NO_CHECK),
        ("[::1]:0", libc::IPPROTO_UDP, UDP_NO_CHECK6_TX),
    ] {
        let (left, right, to) = pair(address);
        set_int_option(left.as_raw_fd(), level, name, 1).unwrap();
        left.send(&mut SendArena::new(), b"unchecked", &[message(0, 9, to)])
            .unwrap();
        let arrived = all_arrivals(&right);
        assert_eq!(arrived.len(), 1, "to {address}");
        assert_eq!(arrived[0].0, b"unchecked");
    }
}

#[test]
fn an_error_concerns_the_first_message_alone() {
    let (left, right, to) = pair("127.0.0.1:0");
    let too_long = vec![0; 1 << 16];
    let messages = [message(0, 65_530, to), message(0, 1, to)];
    let error = left
        .send(&mut SendArena::new(), &too_long, &messages)
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(
        left.send(&mut SendArena::new(), &too_long, &messages[1..])
            .unwrap(),
        1
    );
    assert_eq!(all_arrivals(&right).len(), 1);
}

#[test]
fn a_full_receive_buffer_is_reported_with_the_datagrams_lost() {
    let (left, right, to) = pair("127.0.0.1:0");
    let mut arena = SendArena::new();
    for _ in 0..400 {
        left.send(&mut arena, &[0; 4096], &[message(0, 4096, to)])
            .unwrap();
    }
    let (waiting, size) = right.receive_memory().unwrap();
    assert!(waiting > size / 2, "{waiting} of {size}");
    let arrived = all_arrivals(&right).len();
    // The count comes with the first datagram after the loss.
    left.send(&mut arena, &[0; 1], &[message(0, 1, to)]).unwrap();
    let mut received = ReceiveArena::new();
    assert_eq!(right.receive(&mut received), 1);
    assert_eq!(received.datagram(0).overflows, Some(400 - arrived as u32));
}

#[test]
fn the_kernel_takes_at_least_64_segments_or_says_that_it_takes_none() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let limit = largest_train_segments(&address.parse().unwrap());
        assert!([1, 64, 128].contains(&limit), "{limit}");
    }
}
