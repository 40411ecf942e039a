//! What raw UDP can do: the limits that softroce is measured against.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use nix::sys::socket::{setsockopt, sockopt};

use crate::stats::Distribution;

/// One end of a raw UDP measurement
#[derive(Args, Debug)]
pub struct Raw {
    mode: Mode,
    host: Option<String>,
    #[arg(long)]
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Ping-pong, both ends spinning: half round trip, us.
    Spin,
    /// Ping-pong, both ends blocking: half round trip, us.
    Block,
    /// GSO to GRO, packets of 4,116 bytes, copied out, an acknowledgement per 64 KB: Gbit/s.
    Stream,
    /// Trains of 64 datagrams of 64 bytes, staged once: messages a second.
    Staged,
}

const PING_BYTES: usize = 24;
const PINGS: usize = 40_000;
const MEASURE_TIME: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(5);

/// The shape of a stream: segments of a train, and how many bytes may be unacknowledged.
struct Shape {
    segment_bytes: usize,
    segments: usize,
    window_trains: usize,
}

const STREAM: Shape = Shape {
    segment_bytes: 4116,
    segments: 15,
    window_trains: 3,
};
const STAGED: Shape = Shape {
    segment_bytes: 64,
    segments: 64,
    window_trains: 12,
};

impl Raw {
    /// Run one end; the client prints its figure.
    pub fn run(self) -> Result<()> {
        let socket = match &self.host {
            Some(_) => UdpSocket::bind("127.0.0.1:0")?,
            None => UdpSocket::bind(("127.0.0.1", self.port))
                .with_context(|| format!("UDP port {}", self.port))?,
        };
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_nonblocking(self.mode == Mode::Spin)?;
        let Some(host) = &self.host else {
            return self.serve(&socket);
        };
        socket.connect((host.as_str(), self.port))?;
        let figure = match self.mode {
            Mode::Spin | Mode::Block => ping(&socket)?,
            Mode::Stream => stream(&socket, &STREAM)? * STREAM.segment_bytes as f64 * 8.0 / 1e9,
            Mode::Staged => stream(&socket, &STAGED)?,
        };
        println!("{figure}");
        Ok(())
    }

    fn serve(&self, socket: &UdpSocket) -> Result<()> {
        match self.mode {
            Mode::Spin | Mode::Block => loop {
                let mut bytes = [0; PING_BYTES];
                let (length, from) = receive_from(socket, &mut bytes)?;
                socket.send_to(&bytes[..length], from)?;
            },
            Mode::Stream => acknowledge(socket, &STREAM),
            Mode::Staged => acknowledge(socket, &STAGED),
        }
    }
}

fn receive_from(socket: &UdpSocket, bytes: &mut [u8]) -> Result<(usize, std::net::SocketAddr)> {
    let mut empty = 0u64;
    loop {
        match socket.recv_from(bytes) {
            Ok(received) => return Ok(received),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && empty < 20_000_000 => empty += 1,
            Err(error) => return Err(error).context("the other end fell silent"),
        }
    }
}

fn ping(socket: &UdpSocket) -> Result<f64> {
    let mut samples = Vec::with_capacity(PINGS);
    let mut bytes = [0; PING_BYTES];
    for round in 0..PINGS + 100 {
        let start = Instant::now();
        socket.send(&bytes)?;
        receive_from(socket, &mut bytes)?;
        if round >= 100 {
            samples.push(start.elapsed().as_nanos() as u64);
        }
    }
    Ok(Distribution::from_nanos(&mut samples, 2.0)
        .context("samples")?
        .p50_us)
}

/// Send trains as fast as acknowledgements allow; acknowledged segments a second.
fn stream(socket: &UdpSocket, shape: &Shape) -> Result<f64> {
    let train = vec![7u8; shape.segment_bytes * shape.segments];
    setsockopt(socket, sockopt::UdpGsoSegment, &(shape.segment_bytes as i32)).context("UDP_SEGMENT")?;
    let mut in_flight = 0;
    let mut acknowledged = 0usize;
    let mut ack = [0; 8];
    let start = Instant::now();
    while start.elapsed() < MEASURE_TIME {
        while in_flight < shape.window_trains {
            socket.send(&train)?;
            in_flight += 1;
        }
        let length = socket.recv(&mut ack).context("an acknowledgement was lost")?;
        if length != ack.len() {
            bail!("an acknowledgement of {length} bytes");
        }
        in_flight -= 1;
        acknowledged += shape.segments;
    }
    Ok(acknowledged as f64 / start.elapsed().as_secs_f64())
}

/// Receive trains, copy them out, acknowledge each train's worth of bytes.
fn acknowledge(socket: &UdpSocket, shape: &Shape) -> Result<()> {
    setsockopt(socket, sockopt::UdpGroSegment, &true).context("UDP_GRO")?;
    let train_bytes = shape.segment_bytes * shape.segments;
    let mut bytes = vec![0u8; 65_536];
    let mut out = vec![0u8; 1 << 20];
    let (mut at, mut unacknowledged) = (0, 0);
    loop {
        let (length, from) = socket.recv_from(&mut bytes)?;
        if at + length > out.len() {
            at = 0;
        }
        out[at..at + length].copy_from_slice(&bytes[..length]);
        std::hint::black_box(&out);
        at += length;
        unacknowledged += length;
        while unacknowledged >= train_bytes {
            unacknowledged -= train_bytes;
            socket.send_to(&[0; 8], from)?;
        }
    }
}
