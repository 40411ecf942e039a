//! A real wire: a device under test somewhere, and a UDP socket as the played end.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use roce_wire::ROCE_V2_PORT;
use roce_wire::frame::Frame;
use roce_wire::icrc::{self, Flow, Verdict};
use roce_wire::ip::{Ip, IpFields};
use roce_wire::pcap::{LinkType, NgWriter};
use roce_wire::udp::Udp;
use verbs_api::Gid;

use super::{Activity, Bench, RemoteDut, Seal, Seen, read};
use crate::call::{Call, Reply};

/// The largest datagram that can come.
const DATAGRAM: usize = 1 << 16;
/// Packets that a bench remembers for its capture.
const MOST_KEPT: usize = 1 << 16;
/// How long to sleep at most before completions are asked for again.
const STEP: Duration = Duration::from_millis(1);

struct Kept {
    at: Duration,
    flow: Flow,
    /// The IPv4 identification: a socket does not show it, but the ICRC covers it, and so tells.
    ip_id: u16,
    bytes: Vec<u8>,
}

/// A device under test behind an [`Agent`](super::Agent), and the played end here.
pub struct WireBench {
    dut: RemoteDut,
    socket: UdpSocket,
    own: IpAddr,
    device: IpAddr,
    begun: Instant,
    unread: Vec<Seen>,
    kept: VecDeque<Kept>,
}

impl WireBench {
    /// The played end has the address `own`, which nothing else may use for RoCE on this host.
    pub fn new(dut: RemoteDut, own: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddr::new(own, ROCE_V2_PORT)).map_err(|error| {
            let message = format!(
                "the played end cannot have {own}, port {ROCE_V2_PORT}: {error}; give another address of this \
                 host with --from, on which no RDMA device or program is (any of 127.0.0.0/8 is free to take)"
            );
            io::Error::new(error.kind(), message)
        })?;
        forbid_fragments(&socket, own)?;
        socket.set_nonblocking(true)?;
        let device = Gid(dut.gid()).ip();
        Ok(WireBench {
            dut,
            socket,
            own,
            device,
            begun: Instant::now(),
            unread: Vec::new(),
            kept: VecDeque::new(),
        })
    }

    fn keep(&mut self, flow: Flow, ip_id: u16, bytes: &[u8]) {
        if self.kept.len() == MOST_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Kept {
            at: self.begun.elapsed(),
            flow,
            ip_id,
            bytes: bytes.to_vec(),
        });
    }

    /// Reads what has come.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let (length, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if from.ip() != self.device {
                continue;
            }
            let bytes = &buffer[..length];
            let flow = Flow {
                src: from.ip(),
                dst: self.own,
                source_port: from.port(),
                dest_port: ROCE_V2_PORT,
            };
            let packet = read(bytes);
            // What is no packet may be too short for an ICRC.
            let verdict = packet.map_or(Verdict::Invalid, |_| icrc::verify(&flow, &[0], bytes));
            self.unread.extend(packet.map(|packet| Seen {
                at: self.begun.elapsed(),
                headers: packet.headers,
                payload: packet.payload.to_vec(),
                icrc_is_valid: verdict != Verdict::Invalid,
            }));
            let ip_id = match verdict {
                Verdict::ValidWithIpId(ip_id) => ip_id,
                Verdict::Valid | Verdict::Invalid => 0,
            };
            self.keep(flow, ip_id, bytes);
        }
    }
}

impl Bench for WireBench {
    fn call(&mut self, call: &Call) -> io::Result<Reply> {
        self.dut.call(call)
    }

    fn inject(&mut self, udp_payload: &[u8], seal: Seal) -> io::Result<()> {
        let flow = Flow {
            src: self.own,
            dst: self.device,
            source_port: ROCE_V2_PORT,
            dest_port: ROCE_V2_PORT,
        };
        let mut bytes = udp_payload.to_vec();
        icrc::seal(&flow, 0, &mut bytes);
        if seal == Seal::Wrong {
            let last = bytes.len() - 1;
            bytes[last] ^= 0xff;
        }
        self.socket
            .send_to(&bytes, SocketAddr::new(self.device, ROCE_V2_PORT))?;
        self.keep(flow, 0, &bytes);
        Ok(())
    }

    fn take_seen(&mut self) -> io::Result<Vec<Seen>> {
        self.receive()?;
        Ok(std::mem::take(&mut self.unread))
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn advance(&mut self, until: Duration) -> io::Result<Activity> {
        let left = until.saturating_sub(self.now());
        if !left.is_zero() {
            std::thread::sleep(left.min(STEP));
        }
        self.receive()?;
        Ok(Activity::Going)
    }

    fn played_gid(&self) -> [u8; 16] {
        Gid::from(self.own).0
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn slack(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn save_capture(&self, path: &Path) -> io::Result<()> {
        let file = io::BufWriter::new(std::fs::File::create(path)?);
        let mut writer = NgWriter::new(file, LinkType::RawIp)?;
        let mut frame = Vec::new();
        for kept in &self.kept {
            let parts = Frame {
                ethernet: None,
                ip: header(kept),
                udp: Udp {
                    source_port: kept.flow.source_port,
                    dest_port: ROCE_V2_PORT,
                    checksum: 0,
                },
                payload: &kept.bytes,
                trailer: &[],
            };
            frame.resize(parts.len(), 0);
            parts.emit(&mut frame).map_err(io::Error::other)?;
            writer.write(kept.at.as_nanos() as u64, &frame, None)?;
        }
        writer.flush()
    }
}

/// The IP header of a kept packet; a socket does not show the real one.
fn header(kept: &Kept) -> Ip {
    let fields = IpFields {
        traffic_class: 0,
        hop_limit: 64,
        identification: kept.ip_id,
    };
    Ip::between(kept.flow.src, kept.flow.dst, fields)
}

/// Packets leave whole, with "don't fragment" and the identification 0 that their ICRC is made for.
#[allow(unsafe_code)]
fn forbid_fragments(socket: &UdpSocket, own: IpAddr) -> io::Result<()> {
    let (level, name, value) = match own {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        IpAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
    };
    // SAFETY: the descriptor is open, and the option's value is an int that outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
