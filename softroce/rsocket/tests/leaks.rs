//! What sockets leave behind. In a program of its own, since descriptors are counted.

use std::net::SocketAddr;
use std::thread;

use softroce_rsocket::{Amount, DatagramSocket, Family, Patience, StreamSocket};

#[path = "support/hosts.rs"]
mod hosts;

use hosts::*;

const ROUNDS: usize = 50;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A connection that carries something, and an attempt that is refused.
fn connect(client: &Host, listener: &StreamSocket<softroce::Cm>, to: SocketAddr, nobody: SocketAddr) {
    let a = StreamSocket::new(&client.open, Family::V4).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let b = listener.accept().unwrap().0;
            b.send(b"x", Patience::OfSocket).unwrap();
            b.close();
        });
        a.connect(to).unwrap();
        assert_eq!(
            a.receive(&mut [0; 2], Amount::All, Patience::OfSocket).unwrap(),
            1
        );
        a.close();
    });
    let refused = StreamSocket::new(&client.open, Family::V4).unwrap();
    assert_eq!(errno(refused.connect(nobody)), libc_errno::ECONNREFUSED);
}

/// A datagram to a socket that is there only for that.
fn exchange(host: &Host, address: std::net::IpAddr) {
    let a = DatagramSocket::new(&host.open, Family::V4).unwrap();
    let b = DatagramSocket::new(&host.open, Family::V4).unwrap();
    b.bind((address, 0).into()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| b.receive(&mut [0; 9], false, Patience::OfSocket).unwrap());
        a.send(Some(b.local_addr()), b"x", Patience::OfSocket).unwrap();
    });
    a.close();
    b.close();
}

#[test]
fn sockets_that_are_gone_have_given_back_their_descriptors() {
    let address = fresh_address();
    let (server, client) = (Host::on(address), Host::on(fresh_address()));
    let listener = StreamSocket::new(&server.open, Family::V4).unwrap();
    listener.bind((address, 0).into()).unwrap();
    listener.listen(8).unwrap();
    let to = listener.local_addr();
    let nobody = SocketAddr::new(address, 1);
    // The devices stay open while somebody uses them.
    let keeper = StreamSocket::new(&client.open, Family::V4).unwrap();
    keeper.bind("0.0.0.0:0".parse().unwrap()).unwrap();
    connect(&client, &listener, to, nobody);
    exchange(&server, address);
    let before = descriptors();
    for _ in 0..ROUNDS {
        connect(&client, &listener, to, nobody);
        exchange(&server, address);
    }
    assert_eq!(descriptors(), before);
}
