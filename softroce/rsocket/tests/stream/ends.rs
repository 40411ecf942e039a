//! What the tests share: hosts, connected pairs, patterns.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use softroce::Cm;
use softroce_rsocket::{Amount, Family, Options, Patience, Ready, StreamSocket};

#[path = "../support/hosts.rs"]
mod hosts;
pub use hosts::*;

pub type Socket = StreamSocket<Cm>;

impl Host {
    pub fn socket(&self) -> Socket {
        self.socket_of(Family::V4)
    }

    pub fn socket_of(&self, family: Family) -> Socket {
        StreamSocket::new(&self.open, family).unwrap()
    }

    pub fn listener(&self, address: IpAddr) -> (Socket, SocketAddr) {
        let socket = self.socket_of(family_of(address));
        socket.bind((address, 0).into()).unwrap();
        socket.listen(8).unwrap();
        let local = socket.local_addr();
        (socket, local)
    }
}

fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

pub fn connect_hosts(
    server: &Host,
    client: &Host,
    address: IpAddr,
    of_server: impl FnOnce(&mut Options),
    of_client: impl FnOnce(&mut Options),
) -> (Socket, Socket) {
    let (listener, to) = server.listener(address);
    listener.settings().set_options(of_server);
    let a = client.socket_of(family_of(address));
    a.settings().set_options(of_client);
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap().0);
        a.connect(to).unwrap();
        (a, accepted.join().unwrap())
    })
}

/// A client and a server that are connected.
pub fn pair(
    address: IpAddr,
    of_server: impl FnOnce(&mut Options),
    of_client: impl FnOnce(&mut Options),
) -> (Socket, Socket) {
    let server = Host::on(address);
    let client = match address {
        IpAddr::V4(_) => Host::on(fresh_address()),
        IpAddr::V6(_) => Host::on(address),
    };
    connect_hosts(&server, &client, address, of_server, of_client)
}

pub fn pair_on(address: IpAddr, options: impl Fn(&mut Options)) -> (Socket, Socket) {
    pair(address, &options, &options)
}

pub fn pair_with(options: impl Fn(&mut Options)) -> (Socket, Socket) {
    pair_on(fresh_address(), options)
}

/// Bytes from `start` of a stream in which a shift shows.
pub fn pattern(start: usize, bytes: usize) -> Vec<u8> {
    (start..start + bytes)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

pub fn read(socket: &Socket, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    assert_eq!(
        socket
            .receive(&mut read, Amount::All, Patience::OfSocket)
            .unwrap(),
        bytes
    );
    read
}

pub fn send_pattern(socket: &Socket, bytes: usize) {
    let mut sent = 0;
    let mut length = 1;
    while sent < bytes {
        length = (length * 7 + 3) % 20_011;
        let piece = length.min(bytes - sent);
        assert_eq!(
            socket.send(&pattern(sent, piece), Patience::OfSocket).unwrap(),
            piece
        );
        sent += piece;
    }
}

pub fn expect_pattern(socket: &Socket, bytes: usize) {
    let mut buffer = vec![0; 7919];
    let mut position = 0;
    while position < bytes {
        let room = buffer.len().min(bytes - position);
        let count = socket
            .receive(&mut buffer[..room], Amount::Some, Patience::OfSocket)
            .unwrap();
        assert!(count > 0, "the data ends after {position} bytes");
        assert!(
            buffer[..count] == pattern(position, count)[..],
            "bytes {position}..+{count} are wrong"
        );
        position += count;
    }
}

/// A stream from one to the other, closed by its sender.
pub fn stream_through(from: Socket, to: Socket, bytes: usize) {
    thread::scope(|scope| {
        scope.spawn(|| {
            send_pattern(&from, bytes);
            from.close();
        });
        expect_pattern(&to, bytes);
        assert_eq!(
            to.receive(&mut [0; 9], Amount::Some, Patience::OfSocket).unwrap(),
            0
        );
    });
}

/// Sleep until it is ready for something, as `poll` does.
pub fn wait_for(socket: &Socket, wanted: impl Fn(Ready) -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let (ready, watch) = socket.watch().unwrap();
        if wanted(ready) {
            return;
        }
        assert!(Instant::now() < until, "{ready:?}");
        let mut entries: Vec<_> = watch
            .fds()
            .map(|fd| nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN))
            .collect();
        nix::poll::poll(&mut entries, 100_u16).unwrap();
    }
}
