//! What the bare UDP fabric costs over raw UDP sockets, measured in one run and in turns between two processes.
//!
//! `cargo run --release -p softroce --example fabric_speed`
//!
//! Half round trips of 24-byte packets with both ends spinning, and streams of trains with an acknowledgement for each
//! (three in flight). The fabric's figures include sealing, but neither checking of ICRCs nor any protocol.
//!
//! Between the two, what RoCE asks of a raw socket: connected sockets are cheapest, but the kernel numbers their IPv4
//! packets as it likes, which the ICRC does not allow; and the size of the packets in a train is only told by `recvmsg`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use softroce::{Fabric, UdpFabric, UdpOptions};
use softroce_engine::{Path, TxBatch};

const ROUNDS: usize = 9;
const PING_BYTES: usize = 24;
const PINGS: usize = 20_000;
const TRAINS: usize = 2_000;
const TRAINS_IN_FLIGHT: usize = 3;
const GIVE_UP: Duration = Duration::from_secs(2);

/// A way to the other process.
trait Way {
    /// Send this many packets of this size together.
    fn send(&mut self, packets: usize, packet_bytes: usize);
    /// Packets that have arrived; does not wait.
    fn receive(&mut self) -> usize;
}

struct Bare {
    fabric: UdpFabric,
    to: IpAddr,
    qpn: u32,
    batch: TxBatch,
}

impl Way for Bare {
    fn send(&mut self, packets: usize, packet_bytes: usize) {
        self.batch.clear();
        let path = Path {
            src: self.fabric.address(),
            dst: self.to,
            source_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
        };
        for _ in 0..packets {
            let bytes = self
                .batch
                .push(path, packet_bytes)
                .expect("the batch holds a train");
            bytes[5..8].copy_from_slice(&self.qpn.to_be_bytes()[1..]);
        }
        self.fabric.send(&mut self.batch);
    }

    fn receive(&mut self) -> usize {
        self.fabric.recv(&mut |_, bytes| {
            std::hint::black_box(bytes);
        })
    }
}

/// How a raw socket is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Connected: `send` and `recv`.
    Connected,
    /// `sendto` and `recv`.
    Unconnected,
    /// `sendto` and `recvmsg`, with room for the sender's address and control messages.
    WithHeaders,
}

struct Raw {
    used: Use,
    socket: UdpSocket,
    to: SocketAddr,
    buffer: Vec<u8>,
    segment_bytes: libc::c_int,
    arriving_bytes: usize,
}

impl Raw {
    fn option(&self, name: libc::c_int, value: libc::c_int) {
        // SAFETY: pointer and length describe `value`.
        unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::IPPROTO_UDP,
                name,
                (&raw const value).cast(),
                4,
            );
        }
    }
}

impl Raw {
    fn receive_with_headers(&mut self) -> io::Result<usize> {
        let mut control = [0u64; 16];
        let mut part = libc::iovec {
            iov_base: self.buffer.as_mut_ptr().cast(),
            iov_len: self.buffer.len(),
        };
        // SAFETY: all-zero names and headers are valid; then every pointer and length describes live memory.
        let length = unsafe {
            let mut name: libc::sockaddr_storage = std::mem::zeroed();
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_name = (&raw mut name).cast();
            header.msg_namelen = std::mem::size_of_val(&name) as libc::socklen_t;
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = std::mem::size_of_val(&control) as _;
            libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0)
        };
        usize::try_from(length).map_err(|_| io::Error::last_os_error())
    }
}

impl Way for Raw {
    fn send(&mut self, packets: usize, packet_bytes: usize) {
        const UDP_SEGMENT: libc::c_int = 103;
        let segment_bytes = if packets > 1 {
            packet_bytes as libc::c_int
        } else {
            0
        };
        if segment_bytes != self.segment_bytes {
            self.segment_bytes = segment_bytes;
            self.option(UDP_SEGMENT, segment_bytes);
        }
        let bytes = &self.buffer[..packets * packet_bytes];
        let _ = match self.used {
            Use::Connected => self.socket.send(bytes),
            Use::Unconnected | Use::WithHeaders => self.socket.send_to(bytes, self.to),
        };
    }

    fn receive(&mut self) -> usize {
        let received = match self.used {
            Use::Connected | Use::Unconnected => self.socket.recv(&mut self.buffer),
            Use::WithHeaders => self.receive_with_headers(),
        };
        match received {
            Ok(length) => length.div_ceil(self.arriving_bytes.min(length.max(1))),
            Err(_) => 0,
        }
    }
}

/// Turns of a round, in order: what the measuring end does and what the other end has to echo.
#[derive(Clone, Copy)]
enum Turn {
    PingPong,
    /// Trains of so many packets of so many bytes.
    Stream(usize, usize),
}

/// The ways, from the cheapest on.
const NAMES: [&str; 4] = [
    "raw UDP, connected",
    "raw UDP, unconnected",
    "raw UDP, with recvmsg",
    "fabric",
];

const TURNS: [Turn; 3] = [Turn::PingPong, Turn::Stream(15, 4116), Turn::Stream(128, 84)];

/// Wait for packets; what arrives beyond them stays in `got` for the next time.
fn wait_for(way: &mut dyn Way, got: &mut usize, packets: usize) -> io::Result<()> {
    let start = Instant::now();
    let mut polls = 0u32;
    while *got < packets {
        *got += way.receive();
        polls += 1;
        if polls.is_multiple_of(1024) && start.elapsed() > GIVE_UP {
            return Err(io::Error::other(format!("{got} of {packets} packets arrived")));
        }
    }
    *got -= packets;
    Ok(())
}

fn measure(way: &mut dyn Way, turn: Turn) -> io::Result<Duration> {
    let start = Instant::now();
    let mut got = 0;
    match turn {
        Turn::PingPong => {
            for _ in 0..PINGS {
                way.send(1, PING_BYTES);
                wait_for(way, &mut got, 1)?;
            }
        }
        Turn::Stream(packets, bytes) => {
            for train in 0..TRAINS {
                if train >= TRAINS_IN_FLIGHT {
                    wait_for(way, &mut got, 1)?;
                }
                way.send(packets, bytes);
            }
            wait_for(way, &mut got, TRAINS_IN_FLIGHT)?;
        }
    }
    Ok(start.elapsed())
}

fn echo(way: &mut dyn Way, turn: Turn) -> io::Result<()> {
    let mut got = 0;
    match turn {
        Turn::PingPong => {
            for _ in 0..PINGS {
                wait_for(way, &mut got, 1)?;
                way.send(1, PING_BYTES);
            }
        }
        Turn::Stream(packets, _) => {
            for _ in 0..TRAINS {
                wait_for(way, &mut got, packets)?;
                way.send(1, PING_BYTES);
            }
        }
    }
    Ok(())
}

fn pin(processor: usize) {
    // SAFETY: an all-zero set is valid; pointer and length describe it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &raw const set);
    }
}

fn ways(own: u8, other: u8) -> (Bare, [Raw; 3]) {
    let address = |number| IpAddr::V4(Ipv4Addr::new(127, 91, 7, number));
    let fabric = UdpFabric::open(&UdpOptions::new(address(own))).expect("the address is free");
    let bare = Bare {
        fabric,
        to: address(other),
        qpn: 0,
        batch: TxBatch::new(1 << 17, 256),
    };
    let raw = |used: Use, port: u16| {
        let socket = UdpSocket::bind((address(own), port)).expect("the port is free");
        socket.set_nonblocking(true).expect("sockets can be non-blocking");
        if used == Use::Connected {
            socket
                .connect((address(other), port))
                .expect("UDP sockets connect");
        }
        let raw = Raw {
            used,
            socket,
            to: (address(other), port).into(),
            buffer: vec![1; 1 << 16],
            segment_bytes: 0,
            arriving_bytes: 1,
        };
        raw.option(104, 1);
        raw
    };
    let raws = [
        raw(Use::Connected, 4788),
        raw(Use::Unconnected, 4790),
        raw(Use::WithHeaders, 4789),
    ];
    (bare, raws)
}

fn report(name: &str, turn: Turn, mut times: Vec<Duration>) {
    times.sort();
    let (best, median) = (times[0].as_secs_f64(), times[times.len() / 2].as_secs_f64());
    match turn {
        Turn::PingPong => {
            let half = |time: f64| time * 1e6 / PINGS as f64 / 2.0;
            println!(
                "{name:22} ping-pong {PING_BYTES} B: half round trip {:.2} µs (best {:.2})",
                half(median),
                half(best)
            );
        }
        Turn::Stream(packets, bytes) => {
            let gbit = |time: f64| (TRAINS * packets * bytes * 8) as f64 / time / 1e9;
            let rate = |time: f64| (TRAINS * packets) as f64 / time / 1e6;
            println!(
                "{name:22} trains {packets} x {bytes} B: {:.1} Gbit/s, {:.2} M packets/s (best {:.1}, {:.2})",
                gbit(median),
                rate(median),
                gbit(best),
                rate(best)
            );
        }
    }
}

fn main() -> io::Result<()> {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` takes two descriptors.
    unsafe { libc::pipe(pipe.as_mut_ptr()) };
    // SAFETY: there is one thread.
    let is_child = unsafe { libc::fork() } == 0;
    pin(usize::from(is_child));
    let (mut bare, mut raws) = if is_child { ways(2, 1) } else { ways(1, 2) };
    let own_qpn = bare.fabric.qpn_slice().start;
    exchange(&mut bare, own_qpn, is_child, pipe)?;
    let mut times = [const { [const { Vec::new() }; NAMES.len()] }; TURNS.len()];
    for _ in 0..ROUNDS {
        for (turn, times) in TURNS.into_iter().zip(&mut times) {
            for raw in &mut raws {
                raw.arriving_bytes = match turn {
                    Turn::Stream(_, bytes) if is_child => bytes,
                    Turn::Stream(..) | Turn::PingPong => PING_BYTES,
                };
            }
            let [connected, unconnected, with_headers] = &mut raws;
            let all: [&mut dyn Way; NAMES.len()] = [connected, unconnected, with_headers, &mut bare];
            for (way, times) in all.into_iter().zip(times) {
                if is_child {
                    echo(way, turn)?;
                } else {
                    times.push(measure(way, turn)?);
                }
            }
        }
    }
    if !is_child {
        for (turn, times) in TURNS.into_iter().zip(times) {
            for (name, times) in NAMES.into_iter().zip(times) {
                report(name, turn, times);
            }
        }
        println!("{:?}", bare.fabric.counters());
    }
    Ok(())
}

/// Tell each other the queue pair numbers: the child's through the pipe, the parent's in a first packet.
fn exchange(bare: &mut Bare, own_qpn: u32, is_child: bool, pipe: [libc::c_int; 2]) -> io::Result<()> {
    let mut number = own_qpn;
    if is_child {
        // SAFETY: pointer and length describe `number`.
        unsafe { libc::write(pipe[1], (&raw const number).cast(), 4) };
        let mut parent = None;
        let start = Instant::now();
        while parent.is_none() {
            bare.fabric
                .recv(&mut |_, bytes| parent = bytes[12..].first_chunk().map(|b| u32::from_be_bytes(*b)));
            if start.elapsed() > GIVE_UP {
                return Err(io::Error::other("the other end did not say its number"));
            }
        }
        bare.qpn = parent.unwrap_or(0);
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { libc::read(pipe[0], (&raw mut number).cast(), 4) };
    bare.qpn = number;
    bare.batch.clear();
    let path = Path {
        src: bare.fabric.address(),
        dst: bare.to,
        source_port: 4791,
        traffic_class: 0,
        hop_limit: 64,
    };
    let hello = bare.batch.push(path, PING_BYTES).expect("the batch is empty");
    hello[5..8].copy_from_slice(&number.to_be_bytes()[1..]);
    hello[12..16].copy_from_slice(&own_qpn.to_be_bytes());
    bare.fabric.send(&mut bare.batch);
    Ok(())
}
